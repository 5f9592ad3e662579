"""The values in the metadata store: compact JSON with a version ``v``, checked when read.

Owns how each kind of value is encoded and decoded, nothing else. Another version of Ottla, or a
person with an editor, may have written a value. So unknown fields are ignored; an unknown ``v`` or
a field of the wrong type raises UnreadableValue. Source: cluster design 4.2.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from math import inf
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.ids import LeaderEpoch, NodeId, TopicId, parse_topic_id, topic_id_text
from ottla.security.credentials import ScramCredential

VERSION = 1
NO_LEADER = NodeId(-1)


class UnreadableValue(OttlaError):
    """A value that this version cannot read."""


class MetaValue(NamedTuple):
    """``meta``: written once, when the cluster is created."""

    cluster_id: str
    format_version: int = 1


class ListenerAddress(NamedTuple):
    """A broker's listener and its address, as clients are told it."""

    name: str
    host: str
    port: int


class BrokerState(Enum):
    """The state of a live broker."""

    RUNNING = "running"
    DRAINING = "draining"
    """The broker is stopping and asks that others take over its leaderships."""


class BrokerValue(NamedTuple):
    """``brokers/live/<id>``. ``incarnation`` differs with every start of the process."""

    host: str
    port: int
    rack: str | None = None
    listeners: tuple[ListenerAddress, ...] = ()
    incarnation: str = ""
    state: BrokerState = BrokerState.RUNNING
    is_full: bool = False
    """A log directory of the broker has no space: it asks to be given no lead meanwhile."""


class KnownBrokerValue(NamedTuple):
    """``brokers/known/<id>``: what is known of a broker, whether it runs or not.

    ``directories``: by directory id, the path of each log directory that the node has ever had.
    """

    directories: Mapping[str, str]


class Stamp(NamedTuple):
    """What a node writes into the store, then into its directories, when it acts on changes."""

    number: int
    """Counts a node's stamps, from 1 on."""
    token: str
    """Random: nobody else has made it."""


class TopicValue(NamedTuple):
    """``topics/<name>``. The topic has the partitions ``[0, partition_count)``."""

    topic_id: TopicId
    partition_count: int
    grown_from: int = 0
    """How many partitions it was created with, if some were added since; 0: none were added."""


class PartitionState(NamedTuple):
    """``p/<topic id>/<n>``: the replicas of a partition, those in sync, and the leader.

    ``leader_epoch`` rises with every change of leader, ``partition_epoch`` with every change.
    """

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    unclean: bool = False
    """True: the leader was elected outside of the ISR and has not recovered from that yet."""
    elr: tuple[NodeId, ...] = ()
    """Eligible leader replicas (KIP-966): out of the ISR, but they hold all that is committed."""
    left: tuple[NodeId, ...] = ()
    """Nodes that were replicas, or were to be: they delete what they have, at their next start at
    the latest."""
    unmade: tuple[NodeId, ...] = ()
    """Replicas that were in the ISR before they had made their log, and have not been since: they
    ended too early, and their log directories are those of then."""

    @property
    def may_have_it(self) -> tuple[NodeId, ...]:
        """The nodes that may have a directory of it: also those that had to leave."""
        return (*self.replicas, *self.left)

    def is_in_doubt(self, lacking: Collection[NodeId]) -> bool:
        """Tell whether all who count as having all, one of several, are among ``lacking``."""
        have_all = {*self.isr, *self.elr}
        return len(self.replicas) > 1 and bool(have_all) and have_all.issubset(lacking)


NO_STATE = PartitionState((), (), NO_LEADER, LeaderEpoch(-1), -1)
"""The state of a partition that its topic counts but that has no key: it has no replicas."""


def encode_meta(value: MetaValue) -> bytes:
    """Return the value of ``meta``."""
    return _encode({"cluster_id": value.cluster_id, "format_version": value.format_version})


def decode_meta(data: bytes) -> MetaValue:
    """Read the value of ``meta``."""
    fields = _Fields(data)
    return MetaValue(fields.text("cluster_id"), fields.integer("format_version", minimum=1))


def encode_controller(node: NodeId) -> bytes:
    """Return the value of ``controller``."""
    return _encode({"node": node})


def decode_controller(data: bytes) -> NodeId:
    """Read the value of ``controller``."""
    return NodeId(_Fields(data).integer("node"))


def encode_number(number: int) -> bytes:
    """Return the value of a key that holds one number (controller_epoch, pid_block)."""
    return _encode({"number": number})


def decode_number(data: bytes) -> int:
    """Read the value of a key that holds one number."""
    return _Fields(data).integer("number")


def encode_name(name: str) -> bytes:
    """Return the value of ``topic_ids/<topic id>``."""
    return _encode({"name": name})


def encode_deleted(name: str, nodes: Iterable[NodeId]) -> bytes:
    """Return the value of ``delete/<topic id>``; ``nodes`` may still have directories of it."""
    return _encode({"name": name, "nodes": list(nodes)})


def with_nodes(data: bytes, nodes: Iterable[NodeId]) -> bytes:
    """Return the value of ``delete/<topic id>`` when ``nodes`` may have directories of it, too."""
    fields = _Fields(data)
    return encode_deleted(fields.text("name"), sorted({*fields.nodes_or_none("nodes"), *nodes}))


def without_node(data: bytes, node: NodeId) -> bytes | None:
    """Return the value of ``delete/<topic id>`` when ``node`` has no directory of it any more.

    None: no node has; the mark is to be removed. Marks of older versions name no nodes.
    """
    fields = _Fields(data)
    left = [other for other in fields.nodes_or_none("nodes") if other != node]
    return encode_deleted(fields.text("name"), left) if left else None


def decode_name(data: bytes) -> str:
    """Read the value of ``topic_ids/<topic id>``."""
    return _Fields(data).text("name")


def encode_topic(value: TopicValue) -> bytes:
    """Return the value of ``topics/<name>``."""
    fields: dict[str, object] = {
        "id": topic_id_text(value.topic_id),
        "partitions": value.partition_count,
    }
    if value.grown_from:
        fields["grown_from"] = value.grown_from
    return _encode(fields)


def decode_topic(data: bytes) -> TopicValue:
    """Read the value of ``topics/<name>``."""
    fields = _Fields(data)
    try:
        topic_id = parse_topic_id(fields.text("id"))
    except ValueError as error:
        raise UnreadableValue(f"id: {error}") from error
    grown_from = fields.integer("grown_from", minimum=0) if fields.has("grown_from") else 0
    return TopicValue(topic_id, fields.integer("partitions", minimum=1), grown_from)


def encode_partition(state: PartitionState) -> bytes:
    """Return the value of ``p/<topic id>/<n>``."""
    fields: dict[str, object] = {
        "replicas": state.replicas,
        "adding": state.adding,
        "removing": state.removing,
        "leader": state.leader,
        "le": state.leader_epoch,
        "isr": state.isr,
        "ce": state.partition_epoch,
        "unclean": state.unclean,
    }
    if state.elr:
        fields["elr"] = state.elr
    if state.left:
        fields["left"] = state.left
    if state.unmade:
        fields["unmade"] = state.unmade
    return _encode(fields)


def decode_partition(data: bytes) -> PartitionState:
    """Read the value of ``p/<topic id>/<n>``."""
    fields = _Fields(data)
    return PartitionState(
        replicas=fields.nodes("replicas"),
        isr=fields.nodes("isr"),
        leader=NodeId(fields.integer("leader", minimum=NO_LEADER)),
        leader_epoch=LeaderEpoch(fields.integer("le")),
        partition_epoch=fields.integer("ce"),
        adding=fields.nodes("adding"),
        removing=fields.nodes("removing"),
        unclean=fields.truth("unclean"),
        elr=fields.nodes("elr") if fields.has("elr") else (),
        left=fields.nodes("left") if fields.has("left") else (),
        unmade=fields.nodes("unmade") if fields.has("unmade") else (),
    )


def encode_broker(value: BrokerValue) -> bytes:
    """Return the value of ``brokers/live/<id>``."""
    fields: dict[str, object] = {
        "host": value.host,
        "port": value.port,
        "rack": value.rack,
        "listeners": [[at.name, at.host, at.port] for at in value.listeners],
        "incarnation": value.incarnation,
        "state": value.state.value,
    }
    if value.is_full:
        fields["full"] = True
    return _encode(fields)


def decode_broker(data: bytes) -> BrokerValue:
    """Read the value of ``brokers/live/<id>``."""
    fields = _Fields(data)
    try:
        state = BrokerState(fields.text("state"))
    except ValueError as error:
        raise UnreadableValue(f"state: {error}") from error
    return BrokerValue(
        host=fields.text("host"),
        port=fields.integer("port"),
        rack=fields.text_or_none("rack"),
        listeners=fields.listeners("listeners"),
        incarnation=fields.text("incarnation"),
        state=state,
        is_full=fields.has("full") and fields.truth("full"),
    )


def encode_known_broker(value: KnownBrokerValue) -> bytes:
    """Return the value of ``brokers/known/<id>``."""
    return _encode({"directories": dict(value.directories)})


def decode_known_broker(data: bytes) -> KnownBrokerValue:
    """Read the value of ``brokers/known/<id>``."""
    return KnownBrokerValue(_Fields(data).text_by_text("directories"))


def encode_stamps(stamps: Iterable[Stamp]) -> bytes:
    """Return the value of ``stamps/<id>``: the newest stamp first."""
    return _encode({"stamps": [list(stamp) for stamp in stamps]})


def decode_stamps(data: bytes) -> tuple[Stamp, ...]:
    """Read the value of ``stamps/<id>``."""
    return _Fields(data).stamps("stamps")


def encode_generations(generations: Mapping[str, Iterable[Stamp]]) -> bytes:
    """Return the value of ``generations/<id>``: by directory id, the newest generation first."""
    found = {one: [list(stamp) for stamp in stamps] for one, stamps in generations.items()}
    return _encode({"generations": found})


def decode_generations(data: bytes) -> Mapping[str, tuple[Stamp, ...]]:
    """Read the value of ``generations/<id>``."""
    return _Fields(data).stamps_by_text("generations")


def encode_config(entries: Mapping[str, str]) -> bytes:
    """Return the value of ``config/<type>/<name>``."""
    return _encode({"entries": dict(entries)})


def decode_config(data: bytes) -> Mapping[str, str]:
    """Read the value of ``config/<type>/<name>``."""
    return _Fields(data).text_by_text("entries")


def encode_scram(value: ScramCredential) -> bytes:
    """Return the value of ``scram/<mechanism>/<user>``."""
    return _encode(
        {
            "salt": b64encode(value.salt).decode(),
            "stored_key": b64encode(value.stored_key).decode(),
            "server_key": b64encode(value.server_key).decode(),
            "iterations": value.iterations,
        }
    )


def decode_scram(data: bytes) -> ScramCredential:
    """Read the value of ``scram/<mechanism>/<user>``."""
    fields = _Fields(data)
    return ScramCredential(
        salt=fields.raw("salt"),
        stored_key=fields.raw("stored_key"),
        server_key=fields.raw("server_key"),
        iterations=fields.integer("iterations", minimum=1),
    )


def encode_quota(values: Mapping[str, float]) -> bytes:
    """Return the value of ``quota/<entity>``."""
    return _encode({"quotas": dict(values)})


def decode_quota(data: bytes) -> Mapping[str, float]:
    """Read the value of ``quota/<entity>``. Every bound is above 0 and finite."""
    return _Fields(data).bounds("quotas")


def encode_secret(value: bytes) -> bytes:
    """Return the value of ``secret``."""
    return _encode({"secret": b64encode(value).decode()})


def decode_secret(data: bytes) -> bytes:
    """Read the value of ``secret``."""
    return _Fields(data).raw("secret")


def _encode(fields: dict[str, object]) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":")).encode()


class _Fields:
    """A decoded value. Each getter raises UnreadableValue unless the field has its type."""

    def __init__(self, data: bytes) -> None:
        try:
            decoded = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UnreadableValue(f"not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise UnreadableValue("not a JSON object")
        self._fields: dict[str, object] = decoded
        version = self.integer("v")
        if version != VERSION:
            raise UnreadableValue(f"version {version}; this Ottla reads {VERSION}")

    def integer(self, name: str, minimum: int = 0) -> int:
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self._wrong(name, f"an integer of at least {minimum}")
        return value

    def has(self, name: str) -> bool:
        return name in self._fields

    def truth(self, name: str) -> bool:
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def raw(self, name: str) -> bytes:
        text = self.text(name)
        try:
            return b64decode(text, validate=True)
        except ValueError:
            # The value may be a secret: the message does not show it.
            raise UnreadableValue(f"{name}: expected base64") from None

    def text_or_none(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        texts = [text for text in self._list(name) if isinstance(text, str)]
        if len(texts) != len(self._list(name)):
            raise self._wrong(name, "a list of texts")
        return tuple(texts)

    def text_by_text(self, name: str) -> Mapping[str, str]:
        value = self._fields.get(name)
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self._wrong(name, "an object of texts")
        return value

    def bounds(self, name: str) -> Mapping[str, float]:
        value = self._fields.get(name)
        expected = "an object of numbers above 0"
        if not isinstance(value, dict):
            raise self._wrong(name, expected)
        bounds: dict[str, float] = {}
        for key, number in value.items():
            if not isinstance(number, int | float) or not 0 < number < inf:
                raise self._wrong(name, expected)
            bounds[key] = float(number)
        return bounds

    def nodes(self, name: str) -> tuple[NodeId, ...]:
        nodes = []
        for value in self._list(name):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise self._wrong(name, "a list of node ids")
            nodes.append(NodeId(value))
        return tuple(nodes)

    def nodes_or_none(self, name: str) -> tuple[NodeId, ...]:
        return () if self._fields.get(name) is None else self.nodes(name)

    def listeners(self, name: str) -> tuple[ListenerAddress, ...]:
        listeners = []
        for value in self._list(name):
            match value:
                case [str(listener), str(host), int(port)]:
                    listeners.append(ListenerAddress(listener, host, port))
                case _:
                    raise self._wrong(name, "a list of [name, host, port]")
        return tuple(listeners)

    def stamps(self, name: str) -> tuple[Stamp, ...]:
        return self._stamps(name, self._list(name))

    def stamps_by_text(self, name: str) -> Mapping[str, tuple[Stamp, ...]]:
        value = self._fields.get(name)
        if not isinstance(value, dict) or not all(isinstance(v, list) for v in value.values()):
            raise self._wrong(name, "an object of lists")
        return {key: self._stamps(name, found) for key, found in value.items()}

    def _stamps(self, name: str, values: Iterable[object]) -> tuple[Stamp, ...]:
        stamps = []
        for value in values:
            match value:
                case [int(number), str(token)]:
                    stamps.append(Stamp(number, token))
                case _:
                    raise self._wrong(name, "a list of [number, token]")
        return tuple(stamps)

    def _list(self, name: str) -> list[object]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def _wrong(self, name: str, expected: str) -> UnreadableValue:
        return UnreadableValue(f"{name}: expected {expected}, found {self._fields.get(name)!r}")
