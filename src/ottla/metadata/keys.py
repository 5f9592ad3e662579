"""Makes and reads the keys of the metadata store; no other module writes out a key.

Owns the layout below ``/ottla/<cluster>/``; ``values`` knows what the values hold.
Source: cluster design 4.2.

    meta                      controller            controller_epoch      pid_block
    brokers/live/<id>         brokers/known/<id>    stamps/<id>           generations/<id>
    topics/<name>             topic_ids/<topic id>  p/<topic id>/<partition>
    delete/<topic id>         unsettled             behind/<id>
    config/<type>/<name>      type: topic, broker, client, user, group; <default> for the empty name
    secret                    scram/<mechanism>/<user>          acl/<hash of the ACL>
    quota/<entity>            parts of an entity: user=<name>, client-id=<name>, ip=<address>
"""

from enum import Enum
from typing import NamedTuple
from urllib.parse import quote, unquote

from ottla.ids import NodeId, QuotaEntity, TopicId, parse_topic_id, topic_id_text
from ottla.security.credentials import HASHES

_DEFAULT_NAME = "<default>"
"""Stands for an empty name. No escaped name can equal it."""


_QUOTA_PARTS = ("user", "client-id", "ip")
"""The names of a QuotaEntity's parts, in their order."""


class KeyKind(Enum):
    """The kinds of keys."""

    META = "meta"
    CONTROLLER = "controller"
    CONTROLLER_EPOCH = "controller_epoch"
    PRODUCER_ID_BLOCK = "pid_block"
    LIVE_BROKER = "brokers/live"
    KNOWN_BROKER = "brokers/known"
    TOPIC = "topics"
    TOPIC_ID = "topic_ids"
    PARTITION = "p"
    CONFIG = "config"
    DELETED_TOPIC = "delete"
    SCRAM = "scram"
    QUOTA = "quota"
    ACL = "acl"
    OTHER = "other"
    """A key of another program, or of a newer version."""


class ConfigType(Enum):
    """The types of things that may have a config."""

    TOPIC = "topic"
    BROKER = "broker"
    CLIENT = "client"
    USER = "user"
    GROUP = "group"


class Place(NamedTuple):
    """The parts of a key. Which fields are set depends on ``kind``; the others are empty.

    ``name``: of a TOPIC or CONFIG, a SCRAM credential's user, or an ACL's hash. ``number``: a
    broker's id or a partition. ``topic_id``: of a TOPIC_ID, PARTITION or DELETED_TOPIC.
    ``config_type``: of a CONFIG. ``mechanism``: of a SCRAM. ``entity``: of a QUOTA.
    """

    kind: KeyKind
    name: str = ""
    number: int = -1
    topic_id: TopicId | None = None
    config_type: ConfigType | None = None
    mechanism: str = ""
    entity: QuotaEntity | None = None


_OTHER = Place(KeyKind.OTHER)
_SINGLE = {
    kind.value: Place(kind)
    for kind in (
        KeyKind.META,
        KeyKind.CONTROLLER,
        KeyKind.CONTROLLER_EPOCH,
        KeyKind.PRODUCER_ID_BLOCK,
    )
}


class Keys:
    """The keys of one cluster. ``cluster`` is the name in the prefix, not the cluster id."""

    def __init__(self, cluster: str) -> None:
        self.prefix = f"/ottla/{quote(cluster, safe='')}/"
        """The prefix of all keys of this cluster."""
        self.meta = f"{self.prefix}meta"
        self.controller = f"{self.prefix}controller"
        self.controller_epoch = f"{self.prefix}controller_epoch"
        self.producer_id_block = f"{self.prefix}pid_block"
        self.live_brokers = f"{self.prefix}brokers/live/"
        self.known_brokers = f"{self.prefix}brokers/known/"
        self.topics = f"{self.prefix}topics/"
        self.topic_ids = f"{self.prefix}topic_ids/"
        self.partitions = f"{self.prefix}p/"
        self.configs = f"{self.prefix}config/"
        self.deleted_topics = f"{self.prefix}delete/"
        self.unsettled = f"{self.prefix}unsettled"
        """There while it is not decided who has the newest records: no node serves yet. See
        ``cluster.unsettled``."""
        self.secret = f"{self.prefix}secret"
        """Known to the cluster's nodes only, and to whoever reads their disks."""

    def live_broker(self, node: NodeId) -> str:
        """Return the key that exists as long as the broker's session."""
        return f"{self.live_brokers}{node}"

    def known_broker(self, node: NodeId) -> str:
        """Return the key for what is known of a broker, whether it runs or not."""
        return f"{self.known_brokers}{node}"

    def stamps(self, node: NodeId) -> str:
        """Return the key of what ties a node's directories to the store."""
        return f"{self.prefix}stamps/{node}"

    def generations(self, node: NodeId) -> str:
        """Return the key of what tells a node's directories from old copies of them."""
        return f"{self.prefix}generations/{node}"

    def behind(self, node: NodeId) -> str:
        """Return the key that is there while a node may have to make copies anew.

        From when the nodes have decided by all copies until that node has done it.
        """
        return f"{self.prefix}behind/{node}"

    def topic(self, name: str) -> str:
        """Return the key of the topic ``name``."""
        return f"{self.topics}{quote(name, safe='')}"

    def topic_id(self, topic_id: TopicId) -> str:
        """Return the key that holds the name of the topic with this id."""
        return f"{self.topic_ids}{topic_id_text(topic_id)}"

    def topic_partitions(self, topic_id: TopicId) -> str:
        """Return the prefix of the topic's partitions."""
        return f"{self.partitions}{topic_id_text(topic_id)}/"

    def partition(self, topic_id: TopicId, partition: int) -> str:
        """Return the key of one partition's state."""
        return f"{self.partitions}{topic_id_text(topic_id)}/{partition}"

    def deleted_topic(self, topic_id: TopicId) -> str:
        """Return the key that marks a deleted topic which may still have directories."""
        return f"{self.deleted_topics}{topic_id_text(topic_id)}"

    def config(self, config_type: ConfigType, name: str) -> str:
        """Return the key of a config; with "" as name, of the type's default config."""
        return f"{self.configs}{config_type.value}/{quote(name, safe='') or _DEFAULT_NAME}"

    def scram(self, mechanism: str, user: str) -> str:
        """Return the key of a user's credential for one SCRAM mechanism."""
        return f"{self.prefix}scram/{mechanism}/{quote(user, safe='')}"

    def quota(self, entity: QuotaEntity) -> str:
        """Return the key of the quotas of an entity."""
        parts = [
            f"{name}={quote(value, safe='') or _DEFAULT_NAME}"
            for name, value in zip(_QUOTA_PARTS, entity, strict=True)
            if value is not None
        ]
        return f"{self.prefix}quota/{'/'.join(parts)}"

    def acl(self, digest: str) -> str:
        """Return the key of the ACL with this hash (hexadecimal digits)."""
        return f"{self.prefix}acl/{digest}"

    def place(self, key: str) -> Place:
        """Return the parts of ``key``; kind OTHER for every key that this version does not know."""
        if not key.startswith(self.prefix):
            return _OTHER
        relative = key[len(self.prefix) :]
        single = _SINGLE.get(relative)
        if single is not None:
            return single
        try:
            return _place(relative.split("/"))
        except ValueError:
            return _OTHER


def _place(parts: list[str]) -> Place:
    match parts:
        case ["p", topic_id, number]:
            return Place(
                KeyKind.PARTITION, number=_number(number), topic_id=parse_topic_id(topic_id)
            )
        case ["topics" | "acl", name] if name:
            return Place(KeyKind(parts[0]), name=unquote(name))
        case ["topic_ids", topic_id]:
            return Place(KeyKind.TOPIC_ID, topic_id=parse_topic_id(topic_id))
        case ["delete", topic_id]:
            return Place(KeyKind.DELETED_TOPIC, topic_id=parse_topic_id(topic_id))
        case ["brokers", "live", number]:
            return Place(KeyKind.LIVE_BROKER, number=_number(number))
        case ["brokers", "known", number]:
            return Place(KeyKind.KNOWN_BROKER, number=_number(number))
        case ["config" | "scram" | "quota" as kind, *named] if named and all(named):
            return _place_of_named(kind, named)
        case _:
            return _OTHER


def _place_of_named(kind: str, named: list[str]) -> Place:
    """Return the place of a config, credential or quota. Raises ValueError if it has none."""
    if kind == "quota":
        return _place_of_quota(named)
    of, name = named
    if kind == "config":
        plain = "" if name == _DEFAULT_NAME else unquote(name)
        return Place(KeyKind.CONFIG, name=plain, config_type=ConfigType(of))
    return Place(KeyKind.SCRAM, name=unquote(name), mechanism=of) if of in HASHES else _OTHER


def _place_of_quota(parts: list[str]) -> Place:
    """Return the place of a quota. Raises ValueError for an entity of unknown parts."""
    named: list[str | None] = [None] * len(_QUOTA_PARTS)
    for part in parts:
        kind, _, name = part.partition("=")
        named[_QUOTA_PARTS.index(kind)] = "" if name == _DEFAULT_NAME else unquote(name)
    return Place(KeyKind.QUOTA, entity=QuotaEntity(*named))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a number: {text!r}")
    return int(text)
