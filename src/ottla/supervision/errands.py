"""What a supervisor and a node's process tell each other, beside the metadata, on the same link.

Each is one frame with JSON in it: the two are always of one installation. What a node is told holds
passwords, so it goes through the link and never through a command line, and has no repr.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cluster.copies import Copy, Held
from ottla.errors import MalformedMessage
from ottla.ids import NodeId, parse_topic_id, topic_id_text
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
HELD = WELCOME + 4
"""A node says what it has that the metadata does not know, and waits."""
SETTLED = WELCOME + 5
"""The supervisor says that what nodes had is taken in, or need not be."""


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


class Settled(NamedTuple):
    """From when on a node may serve."""

    revision: int
    """The store's, when all was taken in; 0: nothing was."""


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


def write_held(held: Held) -> Errand:
    """Return the body for what a node has."""
    copies = {
        name: [
            [
                index,
                None if copy.topic_id is None else topic_id_text(copy.topic_id),
                *copy[1:],
            ]
            for index, copy in partitions.items()
        ]
        for name, partitions in held.copies.items()
    }
    return Errand(json=json.dumps(held._asdict() | {"copies": copies}).encode())


def read_held(body: memoryview) -> Held:
    """Return what a node has. Raises MalformedMessage."""
    fields = _read(body)
    copies = {
        name: {
            index: Copy(None if text is None else parse_topic_id(text), *rest)
            for index, text, *rest in partitions
        }
        for name, partitions in fields["copies"].items()
    }
    return Held(copies, tuple(fields["unreadable"]), fields["may_lack"])


def read_settled(body: memoryview) -> Settled:
    """Return from when on a node may serve. Raises MalformedMessage."""
    return Settled(**_read(body))


def _read(body: memoryview) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(Errand.decode(body, 0).json)
    except ValueError as error:
        raise MalformedMessage(f"not JSON: {error}") from error
    return fields
