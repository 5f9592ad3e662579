"""The direct way of Produce: a request with one batch for one partition, as most clients send it.

Owns the positions of the few fields of such a request, and the bytes of its answer. It exists
because two thirds of the ordinary way's cost above the log goes into objects of requests and
answers. Below the handler the append is that of every Produce (``replication.appends``). A request
for more partitions goes on to ``direct_many``. Any other request (a transaction, acks=0, an
internal topic, any tag) is left to the ordinary way by returning ``NOT_DIRECT`` before anything has
happened. A refused append is answered by the message tables. These stay the truth: a test compares
both ways, byte for byte, in every version.

    request   v3-8    transactional_id:int16(-1) acks:int16 timeout_ms:int32 topics:int32(1)
                      name:string partitions:int32(1) index:int32 records:bytes
              v9-13   the same, compact, no tags; v13 has a topic id for the name
    response  v3-8    topics:int32(1) name:string partitions:int32(1) index:int32 error:int16(0)
                      base_offset:int64 append_time:int64 [v5+ log_start:int64]
                      [v8 record_errors:int32(0) error_message:int16(-1)] throttle:int32(0)
              v9-13   the same, compact, no tags; v13 has a topic id for the name
"""

from __future__ import annotations  # else each call would build those of inner functions

import struct

from ottla.errors import MalformedMessage
from ottla.handlers.apis.produce.direct_many import (
    COMPACT_SINCE,
    LOG_START_SINCE,
    RECORD_ERRORS_SINCE,
    AnswerByTable,
    DirectProduceMany,
)
from ottla.handlers.apis.produce.layout import Layout
from ottla.handlers.call import NOT_DIRECT, Answer, NotDirect
from ottla.handlers.client import Client
from ottla.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, TopicId, TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.produce import TOPIC_IDS_SINCE, ZSTD_SINCE
from ottla.protocol.primitives import long_uvarint
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_BIT,
)
from ottla.records.compression import Codec
from ottla.replication.append import AppendOutcome, AppendRefusal
from ottla.replication.replica_manager import ReplicaManager

_ACKS = frozenset((-1, 1))
_NAME_BYTES_MAX = 126
"""The compact length of a longer name takes two bytes."""

# Requests: from the client id to the name, and from there to the records.
_BEFORE_NAME = struct.Struct(">hhiih")
_BEHIND_NAME = struct.Struct(">iii")
_BEFORE_COMPACT_NAME = struct.Struct(">BBhiBB")
_BEFORE_TOPIC_ID = struct.Struct(">BBhiB")
_BEHIND_COMPACT_NAME = struct.Struct(">BiB")
_TAGS_BYTES = 3
"""After the records: the empty tags of the partition, the topic and the request."""

# Answers: from the length to the name, and from there to the end.
_TO_NAME = struct.Struct(">iiih")
_TO_COMPACT_NAME = struct.Struct(">iixBB")
_TO_TOPIC_ID = struct.Struct(">iixB")
_TAIL_V3 = struct.Struct(">iixxqq4x")
_TAIL_V5 = struct.Struct(">iixxqqq4x")
_TAIL_V8 = struct.Struct(">iixxqqq4xh4x")
_TAIL_V9 = struct.Struct(">BixxqqqB8x")

Located = tuple[bytes, int, int, int, int, int]
"""The topic's name or id (raw bytes), partition, acks, timeout in ms, and the positions where the
records begin and end."""


class DirectProduce:
    """The direct way of Produce in one version."""

    def __init__(
        self,
        version: int,
        replica_manager: ReplicaManager,
        image: MetadataImage,
        answer_by_table: AnswerByTable,
    ) -> None:
        self._many = DirectProduceMany(version, replica_manager, image, answer_by_table)
        self._version = version
        self._replica_manager = replica_manager
        self._image = image
        self._answer_by_table = answer_by_table
        self._locate = _locate if version < COMPACT_SINCE else _locate_compact

    def serve(
        self, frame: memoryview, position: int, correlation_id: int, client: Client
    ) -> Answer | Pending[Answer | None] | NotDirect:
        """Serve the frame whose client id ends at ``position``; see ``ottla.handlers.call.Direct``.

        A malformed frame is ``NOT_DIRECT``, too; the ordinary way raises its error.
        """
        version = self._version
        try:
            located = self._locate(frame, position, version)
        except (struct.error, IndexError, MalformedMessage):
            return NOT_DIRECT
        if located is None:
            return self._many.serve(frame, position, correlation_id, client)
        topic, index, acks, timeout_ms, begin, end = located
        if acks not in _ACKS or end - begin < HEADER_SIZE_BYTES:
            return NOT_DIRECT
        attributes = frame[begin + ATTRIBUTES_POSITION + 1]
        if attributes & TRANSACTIONAL_BIT or (
            version < ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD
        ):
            return NOT_DIRECT
        if version < TOPIC_IDS_SINCE:
            name = str(topic, "utf-8", "replace")
        else:
            known = self._image.topic_by_id(TopicId(topic))
            name = "" if known is None else known.name
        access = client.access
        if (
            not name  # Unknown.
            or name.startswith("__")  # Perhaps internal: clients may not write to such topics.
            or (access is not None and not access.may_write(name))
        ):
            return NOT_DIRECT
        appended = self._replica_manager.appends.one(
            TopicPartition(name, index), frame[begin:end], acks=acks, timeout_ms=timeout_ms
        )
        if isinstance(appended, Pending):

            def answer(outcomes: list[AppendOutcome]) -> Answer | None:
                return self._answer(topic, index, outcomes[0], correlation_id, client)

            return appended.then(answer)
        return self._answer(topic, index, appended, correlation_id, client)

    def _answer(
        self, topic: bytes, index: int, outcome: AppendOutcome, correlation_id: int, client: Client
    ) -> Answer:
        """Return the framed answer."""
        version = self._version
        if isinstance(outcome, AppendRefusal):
            name, topic_id = "", TopicId(topic)
            if version < TOPIC_IDS_SINCE:
                name, topic_id = str(topic, "utf-8", "replace"), NULL_TOPIC_ID
            layout: Layout = [(name, topic_id, [index])]
            return self._answer_by_table(layout, [outcome], correlation_id, client)
        base_offset, _, append_time_ms, log_start_offset = outcome
        if version < COMPACT_SINCE:
            if version < LOG_START_SINCE:
                tail = _TAIL_V3.pack(1, index, base_offset, append_time_ms)
            elif version < RECORD_ERRORS_SINCE:
                tail = _TAIL_V5.pack(1, index, base_offset, append_time_ms, log_start_offset)
            else:
                tail = _TAIL_V8.pack(1, index, base_offset, append_time_ms, log_start_offset, -1)
            size_bytes = 10 + len(topic) + len(tail)
            return [_TO_NAME.pack(size_bytes, correlation_id, 1, len(topic)) + topic + tail]
        # Compact counts and lengths are stored plus one.
        tail = _TAIL_V9.pack(2, index, base_offset, append_time_ms, log_start_offset, 1)
        if version < TOPIC_IDS_SINCE:
            size_bytes = 7 + len(topic) + len(tail)
            return [
                _TO_COMPACT_NAME.pack(size_bytes, correlation_id, 2, len(topic) + 1) + topic + tail
            ]
        size_bytes = 6 + TOPIC_ID_BYTES + len(tail)
        return [_TO_TOPIC_ID.pack(size_bytes, correlation_id, 2) + topic + tail]


def _locate(frame: memoryview, position: int, version: int) -> Located | None:
    """Find the parts of a request up to v8; None if it has another form."""
    transaction, acks, timeout_ms, topics, name_bytes = _BEFORE_NAME.unpack_from(frame, position)
    if transaction != -1 or topics != 1 or name_bytes < 0:
        return None
    position += _BEFORE_NAME.size
    behind = position + name_bytes
    partitions, index, records_bytes = _BEHIND_NAME.unpack_from(frame, behind)
    begin = behind + _BEHIND_NAME.size
    if partitions != 1 or records_bytes != len(frame) - begin:
        return None
    return bytes(frame[position:behind]), index, acks, timeout_ms, begin, len(frame)


def _locate_compact(frame: memoryview, position: int, version: int) -> Located | None:
    """Find the parts of a request from v9 on; None if it has another form."""
    if version < TOPIC_IDS_SINCE:
        before = _BEFORE_COMPACT_NAME
        tags, transaction, acks, timeout_ms, topics, name_bytes = before.unpack_from(
            frame, position
        )
        name_bytes -= 1
    else:
        before = _BEFORE_TOPIC_ID
        tags, transaction, acks, timeout_ms, topics = before.unpack_from(frame, position)
        name_bytes = TOPIC_ID_BYTES
    if tags or transaction or topics != 2 or not 0 <= name_bytes <= _NAME_BYTES_MAX:
        return None
    position += before.size
    behind = position + name_bytes
    partitions, index, size = _BEHIND_COMPACT_NAME.unpack_from(frame, behind)
    begin = behind + _BEHIND_COMPACT_NAME.size
    if size > 127:
        size, begin = long_uvarint(size, frame, begin)
    end = len(frame) - _TAGS_BYTES
    if partitions != 2 or begin + size - 1 != end or any(frame[end:]):
        return None
    return bytes(frame[position:behind]), index, acks, timeout_ms, begin, end
