"""What a supervisor and a node's process tell each other, beside the metadata, on the same link.

Each is one frame with JSON in it: the two are always of one installation. What a node is told holds
passwords, so it goes through the link and never through a command line, and has no repr.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.errors import MalformedMessage
from ottla.ids import NodeId
from ottla.metadata.remote.messages import Kind
from ottla.node.interbroker import InterBroker
from ottla.protocol.schema import Message, bytes_
from ottla.security.credentials import FirstUser

WELCOME = int(Kind.OF_OTHERS)
"""The supervisor tells a node who it is."""
READY = WELCOME + 1
"""The node serves."""
FAILED = WELCOME + 2
"""The node cannot start, or go on."""
ALL_STOP = WELCOME + 3
"""The supervisor says that all nodes stop: a signal follows, and nobody is to take over."""


class Errand(Message):
    """The body of them all."""

    json: bytes = bytes_()

    def __repr__(self) -> str:
        return f"Errand({len(self.json)} bytes)"


class Socket(NamedTuple):
    """Where sockets listen that the node is started with."""

    host: str
    port: int
    descriptors: Sequence[int]


class Welcome(NamedTuple):
    """All that a node has to know."""

    node: NodeId
    texts: Mapping[str, str]
    """Its options."""
    is_memory: bool
    sockets: Sequence[Socket]
    doors: Mapping[str, tuple[str, int]]
    inter_broker: InterBroker | None = None
    """None: it is the only one."""
    first_users: Sequence[FirstUser] = ()

    def __repr__(self) -> str:
        return f"Welcome(node={self.node})"


class Ready(NamedTuple):
    """What a node found."""

    data_is_new: bool


class Failed(NamedTuple):
    """Why a node cannot start, or go on; ``why`` and ``fix`` may be empty."""

    what: str
    why: str = ""
    fix: str = ""
    is_usage: bool = False
    """Whether its options are to blame."""


def write(errand: NamedTuple) -> Errand:
    """Return the body for an errand."""
    return Errand(json=json.dumps(errand._asdict()).encode())


def read_welcome(body: memoryview) -> Welcome:
    """Return the welcome. Raises MalformedMessage."""
    fields = _read(body)
    inter_broker = fields["inter_broker"]
    return Welcome(
        node=NodeId(fields["node"]),
        texts=fields["texts"],
        is_memory=fields["is_memory"],
        sockets=[Socket(*each) for each in fields["sockets"]],
        doors={name: (host, port) for name, (host, port) in fields["doors"].items()},
        inter_broker=None if inter_broker is None else InterBroker(*inter_broker),
        first_users=tuple(FirstUser(*each) for each in fields["first_users"]),
    )


def read_ready(body: memoryview) -> Ready:
    """Return what a node found. Raises MalformedMessage."""
    return Ready(**_read(body))


def read_failed(body: memoryview) -> Failed:
    """Return why a node failed. Raises MalformedMessage."""
    return Failed(**_read(body))


def _read(body: memoryview) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(Errand.decode(body, 0).json)
    except ValueError as error:
        raise MalformedMessage(f"not JSON: {error}") from error
    return fields
