"""The direct way of Produce for several partitions, one batch each, all of them led by this node.

Owns the walk over such a request and the bytes of its answer. ``direct`` passes requests on to this
file; the appends are made by ``Appends.many``, as in the ordinary way. It exists because half of
the ordinary way's cost per partition above the log goes into objects of requests and answers. Any
other request (a transaction, a partition led elsewhere, very many partitions) is left to the
ordinary way before anything has happened. An answer with a refusal is made by the message tables.
The byte layout of requests and answers is written down in ``direct``.
"""

from __future__ import annotations  # else each call would build those of inner functions

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.errors import MalformedMessage
from ottla.handlers.apis.produce.layout import Layout
from ottla.handlers.apis.produce.many import PARTITIONS_AT_A_TIME
from ottla.handlers.call import NOT_DIRECT, Answer, NotDirect
from ottla.handlers.client import Client
from ottla.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, TopicId, TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.produce import TOPIC_IDS_SINCE, ZSTD_SINCE
from ottla.protocol.primitives import get_uvarint, put_uvarint
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_BIT,
)
from ottla.records.compression import Codec
from ottla.replication.append import AppendOutcome
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.results import AppendResult

LOG_START_SINCE = 5
RECORD_ERRORS_SINCE = 8
COMPACT_SINCE = 9
PARTITIONS_MAX = PARTITIONS_AT_A_TIME
"""A request for more partitions goes the ordinary way, which serves it in parts."""

_ACKS = frozenset((-1, 1))
_ATTRIBUTES_AT = ATTRIBUTES_POSITION + 1
_BEGIN = struct.Struct(">hhii")
_COMPACT_BEGIN = struct.Struct(">BBhi")
_INDEX_AND_SIZE = struct.Struct(">ii")
_INDEX = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LENGTH = struct.Struct(">ii")

_PART_V3 = struct.Struct(">ixxqq").pack
_PART_V5 = struct.Struct(">ixxqqq").pack
_PART_V8 = struct.Struct(">ixxqqq4xh").pack
_PART_V9 = struct.Struct(">ixxqqqBxx").pack

Topics = list[tuple[bytes, list[int]]]
"""The topics' names or ids (raw bytes) and their partitions, in the order of the request."""
AnswerByTable = Callable[[Layout, list[AppendOutcome], int, Client], Answer]
"""Encodes an answer by the message tables: layout, outcomes, correlation id."""


class Several(NamedTuple):
    """The parts of a request that this way serves."""

    acks: int
    timeout_ms: int
    topics: Topics
    wanted: list[tuple[TopicPartition, memoryview]]


class DirectProduceMany:
    """The direct way for several partitions, in one version."""

    def __init__(
        self,
        version: int,
        replica_manager: ReplicaManager,
        image: MetadataImage,
        answer_by_table: AnswerByTable,
    ) -> None:
        self._version = version
        self._replica_manager = replica_manager
        self._image = image
        self._answer_by_table = answer_by_table
        self._locate = self._locate_compact if version >= COMPACT_SINCE else self._locate_plain

    def serve(
        self, frame: memoryview, position: int, correlation_id: int, client: Client
    ) -> Answer | Pending[Answer | None] | NotDirect:
        """Do as ``DirectProduce.serve``."""
        try:
            found = self._locate(frame, position)
        except (struct.error, IndexError, MalformedMessage):
            return NOT_DIRECT
        if found is None:
            return NOT_DIRECT
        acks, timeout_ms, topics, wanted = found
        access = client.access
        if access is not None and not all(
            map(access.may_write, {where.topic for where, _ in wanted})
        ):
            return NOT_DIRECT
        outcomes = self._replica_manager.appends.many(wanted, acks=acks, timeout_ms=timeout_ms)
        if isinstance(outcomes, Pending):

            def answer(outcomes: list[AppendOutcome]) -> Answer | None:
                return self._answer(topics, outcomes, correlation_id, client)

            return outcomes.then(answer)
        return self._answer(topics, outcomes, correlation_id, client)

    def _locate_plain(self, frame: memoryview, position: int) -> Several | None:
        """Find the parts of a request up to v8; None if it has another form."""
        transaction, acks, timeout_ms, topic_count = _BEGIN.unpack_from(frame, position)
        if transaction != -1 or acks not in _ACKS or not 0 < topic_count <= PARTITIONS_MAX:
            return None
        position += _BEGIN.size
        topics: Topics = []
        wanted: list[tuple[TopicPartition, memoryview]] = []
        unpack = _INDEX_AND_SIZE.unpack_from
        for _ in range(topic_count):
            (size,) = _SHORT.unpack_from(frame, position)
            position += 2
            name = bytes(frame[position : position + max(size, 0)])
            position += len(name)
            (count,) = _INDEX.unpack_from(frame, position)
            position += 4
            if not 0 < count <= PARTITIONS_MAX - len(wanted):
                return None
            indexes: list[int] = []
            parts: list[memoryview] = []
            for _ in range(count):
                index, size = unpack(frame, position)
                begin = position + 8
                position = begin + size
                if size < HEADER_SIZE_BYTES:
                    return None
                indexes.append(index)
                parts.append(frame[begin:position])
            if position > len(frame) or not self._take(name, indexes, parts, wanted):
                return None
            topics.append((name, indexes))
        return Several(acks, timeout_ms, topics, wanted) if position == len(frame) else None

    def _locate_compact(self, frame: memoryview, position: int) -> Several | None:
        """Find the parts of a request from v9 on; None if it has another form."""
        tags, transaction, acks, timeout_ms = _COMPACT_BEGIN.unpack_from(frame, position)
        topic_count, position = get_uvarint(frame, position + _COMPACT_BEGIN.size)
        if tags or transaction or acks not in _ACKS or not 1 < topic_count <= PARTITIONS_MAX + 1:
            return None
        topics: Topics = []
        wanted: list[tuple[TopicPartition, memoryview]] = []
        unpack = _INDEX.unpack_from
        for _ in range(topic_count - 1):
            size = TOPIC_ID_BYTES + 1
            if self._version < TOPIC_IDS_SINCE:
                size, position = get_uvarint(frame, position)
            name = bytes(frame[position : position + max(size - 1, 0)])
            count, position = get_uvarint(frame, position + len(name))
            if not 1 < count <= PARTITIONS_MAX + 1 - len(wanted):
                return None
            indexes: list[int] = []
            parts: list[memoryview] = []
            for _ in range(count - 1):
                (index,) = unpack(frame, position)
                size, begin = get_uvarint(frame, position + 4)
                end = begin + size - 1
                if size <= HEADER_SIZE_BYTES or frame[end]:
                    return None
                position = end + 1
                indexes.append(index)
                parts.append(frame[begin:end])
            if frame[position] or not self._take(name, indexes, parts, wanted):
                return None
            position += 1
            topics.append((name, indexes))
        if frame[position] or position + 1 != len(frame):
            return None
        return Several(acks, timeout_ms, topics, wanted)

    def _take(
        self,
        topic: bytes,
        indexes: list[int],
        parts: list[memoryview],
        wanted: list[tuple[TopicPartition, memoryview]],
    ) -> bool:
        """Append a topic's batches to ``wanted``; False if this way cannot serve one of them."""
        if self._version < TOPIC_IDS_SINCE:
            name = str(topic, "utf-8", "replace")
        else:
            known = self._image.topic_by_id(TopicId(topic))
            name = "" if known is None else known.name
        if not name or name.startswith("__"):
            return False
        knows_zstd = self._version >= ZSTD_SINCE
        find = self._replica_manager.find
        for index, records in zip(indexes, parts, strict=True):
            partition = find((name, index))
            if partition is None or not partition.is_leader:
                return False  # The ordinary way names the leader.
            attributes = records[_ATTRIBUTES_AT]
            if attributes and (
                attributes & TRANSACTIONAL_BIT
                or (attributes & CODEC_MASK == Codec.ZSTD and not knows_zstd)
            ):
                return False
            wanted.append((partition.topic_partition, records))
        return True

    def _answer(
        self,
        topics: Topics,
        outcomes: list[AppendOutcome],
        correlation_id: int,
        client: Client,
    ) -> Answer:
        """Return the framed answer."""
        parts = self._parts(topics, outcomes)
        if parts is None:
            return self._answer_by_table(self._layout(topics), outcomes, correlation_id, client)
        out = bytearray(8)
        at = 0
        if self._version < COMPACT_SINCE:
            out += _INDEX.pack(len(topics))
            for name, indexes in topics:
                out += _SHORT.pack(len(name)) + name + _INDEX.pack(len(indexes))
                out += b"".join(parts[at : at + len(indexes)])
                at += len(indexes)
            out += bytes(4)  # The throttle time.
        else:
            out.append(0)  # The header's tags.
            put_uvarint(out, len(topics) + 1)
            for name, indexes in topics:
                if self._version < TOPIC_IDS_SINCE:
                    put_uvarint(out, len(name) + 1)
                out += name
                put_uvarint(out, len(indexes) + 1)
                out += b"".join(parts[at : at + len(indexes)])
                out.append(0)
                at += len(indexes)
            out += bytes(5)  # The throttle time, and no tags.
        _LENGTH.pack_into(out, 0, len(out) - 4, correlation_id)
        return [out]

    def _parts(self, topics: Topics, outcomes: Sequence[AppendOutcome]) -> list[bytes] | None:
        """Return the encoded answer of each partition, in order; None if one is refused."""
        version = self._version
        results = iter(outcomes)
        parts: list[bytes] = []
        for _, indexes in topics:
            for index in indexes:
                outcome = next(results)
                if not isinstance(outcome, AppendResult):
                    return None
                base_offset, _, time_ms, log_start_offset = outcome
                if version >= COMPACT_SINCE:
                    part = _PART_V9(index, base_offset, time_ms, log_start_offset, 1)
                elif version >= RECORD_ERRORS_SINCE:
                    part = _PART_V8(index, base_offset, time_ms, log_start_offset, -1)
                elif version >= LOG_START_SINCE:
                    part = _PART_V5(index, base_offset, time_ms, log_start_offset)
                else:
                    part = _PART_V3(index, base_offset, time_ms)
                parts.append(part)
        return parts

    def _layout(self, topics: Topics) -> Layout:
        if self._version >= TOPIC_IDS_SINCE:
            return [("", TopicId(topic), indexes) for topic, indexes in topics]
        return [
            (str(topic, "utf-8", "replace"), NULL_TOPIC_ID, indexes) for topic, indexes in topics
        ]
