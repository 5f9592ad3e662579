"""The identities that everything else is keyed by.

Owns the types of a topic-partition, a topic id, a principal and of integers that must not be
mixed up, and how large integers are. Knows nothing of the wire, of files or of the cluster. Source:
Kafka's protocol guide, KIP-516.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
NodeId = NewType("NodeId", int)
TopicId = NewType("TopicId", bytes)
"""16 raw bytes, as on the wire. As text: URL-safe base64 without padding, as Kafka prints it."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
"""The largest numbers that Kafka's fields of these types hold."""

TOPIC_ID_BYTES = 16
NULL_TOPIC_ID = TopicId(bytes(TOPIC_ID_BYTES))
"""On the wire: "no topic id". Never the id of a topic."""


class TopicPartition(NamedTuple):
    """One partition of a topic. ``str()`` gives Kafka's directory name, ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Principal(NamedTuple):
    """The identity that a client has proved. ``str()`` gives Kafka's form, ``User:alice``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""A client that has proved nothing, as on a PLAINTEXT listener."""
NODE_KIND = "Node"
"""The kind of a principal that is a node of this cluster. No login of a client gives it."""
STRANGER = Principal("Stranger", "")
"""A client that must log in, and has not yet: not ANONYMOUS, whom quotas may hold for."""


class QuotaEntity(NamedTuple):
    """Whom a quota holds for: a user, a client id, both together, or an address.

    None: it does not matter. QUOTA_DEFAULT: all that have no quota of their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


QUOTA_DEFAULT = ""
"""Stands for the default of users, client ids or addresses: none of them has an empty name."""


def topic_id_text(topic_id: TopicId) -> str:
    """Return the 22-character text form of a topic id."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """Return the topic id that ``text`` (22 characters, as ``topic_id_text`` prints) stands for.

    Raises ValueError when it is not one.
    """
    try:
        raw = urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a topic id: {text!r}") from error
    if len(raw) != len(NULL_TOPIC_ID):
        raise ValueError(f"not a topic id: {text!r} holds {len(raw)} bytes, expected 16")
    return TopicId(raw)
