"""The direct way of OffsetCommit: a request as consumers send it becomes one tuple per partition.

Owns the positions of the fields of such a request, and the bytes of its answer. Below the handler
it goes on as every offset commit (``GroupCoordinator.commit_offsets_then``). Any other request (one
with metadata, a partition that does not exist, any tag) is left to the ordinary way by returning
``NOT_DIRECT`` before anything has happened. The message tables stay the truth: a test compares both
ways, byte for byte, in every version.

    request   v2-7    group:string generation:int32 member:string [v7 instance:string?]
                      [v2-4 retention:int64] topics:array
              v8-10   tags(0) group:string generation:int32 member:string instance:string?
                      topics:array tags(0)
    topic             name:string, v10 id:uuid  partitions:array  [v8+ tags(0)]
    partition         index:int32 offset:int64 [v6+ leader_epoch:int32] metadata:string?(empty)
                      [v8+ tags(0)]

    response          [v3+ throttle:int32(0)] topics:array [v8+ tags(0)]
    topic             name:string, v10 id:uuid  partitions:array  [v8+ tags(0)]
    partition         index:int32 error:int16 [v8+ tags(0)]

From v8 on texts and arrays are compact: lengths and counts are varints, stored plus one.
"""

from __future__ import annotations  # else each call would build those of inner functions

import struct

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.offsets.committing import CommitRequest, PartitionCommit, TopicCommit
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.handlers.call import NOT_DIRECT, Answer, NotDirect
from ottla.handlers.client import Client
from ottla.ids import TOPIC_ID_BYTES, TopicId
from ottla.metadata.image import MetadataImage, TopicImage
from ottla.pending import Pending
from ottla.protocol.compiler import STRING_BYTES_MAX
from ottla.protocol.header import LENGTH_BYTES
from ottla.protocol.primitives import get_uvarint, put_uvarint

THROTTLED_SINCE = 3
RETENTION_BEFORE = 5
LEADER_EPOCHS_SINCE = 6
INSTANCES_SINCE = 7
COMPACT_SINCE = 8
TELLS_UNKNOWN_GROUP_SINCE = 9
IDS_SINCE = 10

NO_RETENTION = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OLD_PARTITION = struct.Struct(">iqh")
_PLAIN_PARTITION = struct.Struct(">iqih")
_PARTITION = struct.Struct(">iqiBB")
_COMPACT_END = struct.Struct(">iqiBBBB")
"""The last partition of a request, and the empty tags of its topic and of the request."""
_EMPTY_PLAIN_TEXTS = (-1, 0)
_EMPTY_TEXTS = (0, 1)
"""The encoded lengths of a null text and of an empty one."""
_TO_TOPICS = struct.Struct(">iii")
"""Length, correlation id, count of topics."""
_TO_TOPICS_V3 = struct.Struct(">iiii")
"""The same, with a throttle time before the count."""
_TO_COMPACT_TOPICS = struct.Struct(">iixi")
"""Length, correlation id, no tags, throttle time."""
_ANSWERED = struct.Struct(">ih")
_COMPACT_ANSWERED = struct.Struct(">ihx")

Echo = tuple[bytes, list[PartitionCommit]]
"""What an answer repeats of a topic: its encoded name or id, and its partitions."""

Known = tuple[CommitRequest, bytes]
"""A request that was read before, and the encoded name or id of its one topic."""
_KNOWN_MAX = 4096
"""Remembered requests per version: about one per consumer that commits one partition at a time."""
_KNOWN_BYTES_MAX = 512


class DirectOffsetCommit:
    """The direct way of OffsetCommit in one version."""

    def __init__(self, version: int, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._version = version
        self._tells_unknown_group = version >= TELLS_UNKNOWN_GROUP_SINCE
        self._groups = groups
        self._image = image
        self._read = self._read_compact if version >= COMPACT_SINCE else self._read_plain
        self._end = _OLD_PARTITION
        if version >= COMPACT_SINCE:
            self._end = _COMPACT_END
        elif version >= LEADER_EPOCHS_SINCE:
            self._end = _PLAIN_PARTITION
        self._known: dict[bytes, Known] = {}
        """Use: requests for one partition, by their bytes before that partition. A consumer sends
        the same bytes again and again, each time with another offset behind them."""

    def serve(
        self, frame: memoryview, position: int, correlation_id: int, client: Client
    ) -> Answer | Pending[Answer | None] | NotDirect:
        """Serve the frame whose client id ends at ``position``; see ``ottla.handlers.call.Direct``.

        A malformed frame is ``NOT_DIRECT``, too; the ordinary way raises its error.
        """
        echoes: list[Echo] = []
        try:
            request = self._read_again(frame, position, echoes)
            if request is None:
                request = self._read(frame, position, echoes)
                if request is not None:
                    self._know(frame, position, request, echoes)
        except (struct.error, IndexError, MalformedMessage):
            return NOT_DIRECT
        if request is None:
            return NOT_DIRECT
        access = client.access
        if access is not None and not (
            access.may_read_group(request.group_id)
            and all(access.may_read(one.topic) for one in request.topics)
        ):
            return NOT_DIRECT
        answered: Pending[Answer | None] = Pending()

        def told(_: list[ErrorCode]) -> None:
            # The group refuses a single partition only for its metadata, and there is none.
            answered.resolve([self._answer(echoes, ErrorCode.NONE, correlation_id)])

        def refused(error: KafkaError) -> None:
            answered.resolve([self._answer(echoes, error.code, correlation_id)])

        self._groups.commit_offsets_then(request, told, refused)
        return answered.value if answered.value is not None else answered

    # Reading requests. Each method returns None for a request of another form.

    def _know(
        self, frame: memoryview, position: int, request: CommitRequest, echoes: list[Echo]
    ) -> None:
        """Remember a request for one partition, by its bytes before that partition."""
        begin = len(frame) - self._end.size
        if len(request.topics) > 1 or len(request.topics[0].partitions) > 1:
            return
        if begin - position <= _KNOWN_BYTES_MAX:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[bytes(frame[position:begin])] = request, echoes[0][0]

    def _read_again(
        self, frame: memoryview, position: int, echoes: list[Echo]
    ) -> CommitRequest | None:
        """Read a request that begins with the same bytes as a remembered one; None if none does.

        Only its partition is decoded, and its topic is looked up again.
        """
        end = self._end
        begin = len(frame) - end.size
        known = self._known.get(bytes(frame[position:begin])) if begin > position else None
        if known is None:
            return None
        before, head = known
        group, member, instance, generation, retention_ms, topics, _, _, _ = before
        if self._version >= IDS_SINCE:
            topic = self._image.topic_by_id(topics[0].topic_id)
        else:
            topic = self._image.topic(topics[0].topic)
        epoch = -1
        if end is _COMPACT_END:
            index, offset, epoch, text, tags, topic_tags, request_tags = end.unpack_from(
                frame, begin
            )
            is_usual = text in _EMPTY_TEXTS and not (tags or topic_tags or request_tags)
        elif end is _PLAIN_PARTITION:
            index, offset, epoch, text = end.unpack_from(frame, begin)
            is_usual = text in _EMPTY_PLAIN_TEXTS
        else:
            index, offset, text = end.unpack_from(frame, begin)
            is_usual = text in _EMPTY_PLAIN_TEXTS
        if topic is None or not is_usual or not 0 <= index < len(topic.partitions):
            return None
        partitions: list[PartitionCommit] = [(index, offset, epoch, None)]
        echoes.append((head, partitions))
        asked = [TopicCommit(topic.name, partitions, topic.topic_id)]
        return CommitRequest(
            group, member, instance, generation, retention_ms, asked, self._tells_unknown_group
        )

    def _read_plain(
        self, frame: memoryview, position: int, echoes: list[Echo]
    ) -> CommitRequest | None:
        """Read a request up to v7, and append to ``echoes`` what its answer repeats."""
        version = self._version
        group, position = _plain_text(frame, position)
        (generation,) = _INT32.unpack_from(frame, position)
        member, position = _plain_text(frame, position + _INT32.size)
        instance: str | None = None
        if version >= INSTANCES_SINCE:
            instance, position = _plain_text(frame, position)
        retention_ms = NO_RETENTION
        if version < RETENTION_BEFORE:
            (retention_ms,) = _INT64.unpack_from(frame, position)
            position += _INT64.size
        (topic_count,) = _INT32.unpack_from(frame, position)
        position += _INT32.size
        if group is None or member is None or topic_count < 1:
            return None
        topics: list[TopicCommit] = []
        for _ in range(topic_count):
            begin = position
            name, position = _plain_text(frame, position)
            topic = self._image.topic(name or "")
            (partition_count,) = _INT32.unpack_from(frame, position)
            head = bytes(frame[begin:position])
            position += _INT32.size
            if topic is None or partition_count < 1:
                return None
            partitions, position = self._plain_partitions(frame, position, partition_count, topic)
            if partitions is None:
                return None
            topics.append(TopicCommit(topic.name, partitions, topic.topic_id))
            echoes.append((head, partitions))
        if position != len(frame):
            return None
        return CommitRequest(
            group, member, instance, generation, retention_ms, topics, self._tells_unknown_group
        )

    def _plain_partitions(
        self, frame: memoryview, position: int, partition_count: int, topic: TopicImage
    ) -> tuple[list[PartitionCommit] | None, int]:
        """Return the partitions of a topic, and the position where they end."""
        has_epochs = self._version >= LEADER_EPOCHS_SINCE
        form = _PLAIN_PARTITION if has_epochs else _OLD_PARTITION
        end = position + partition_count * form.size
        if end > len(frame):
            return None, end
        count = len(topic.partitions)
        partitions: list[PartitionCommit] = []
        epoch = -1
        for fields in form.iter_unpack(frame[position:end]):
            if has_epochs:
                index, offset, epoch, text = fields
            else:
                index, offset, text = fields
            if text not in _EMPTY_PLAIN_TEXTS or not 0 <= index < count:
                return None, end
            partitions.append((index, offset, epoch, None))
        return partitions, end

    def _read_compact(
        self, frame: memoryview, position: int, echoes: list[Echo]
    ) -> CommitRequest | None:
        """Read a request from v8 on, and append to ``echoes`` what its answer repeats."""
        if frame[position]:
            return None
        group, position = _text(frame, position + 1)
        (generation,) = _INT32.unpack_from(frame, position)
        member, position = _text(frame, position + _INT32.size)
        instance, position = _text(frame, position)
        topic_count, position = get_uvarint(frame, position)
        if group is None or member is None or topic_count < 2:
            return None
        topics: list[TopicCommit] = []
        for _ in range(topic_count - 1):
            begin = position
            if self._version >= IDS_SINCE:
                position += TOPIC_ID_BYTES
                topic = self._image.topic_by_id(TopicId(bytes(frame[begin:position])))
            else:
                name, position = _text(frame, position)
                topic = self._image.topic(name or "")
            head = bytes(frame[begin:position])
            partition_count, position = get_uvarint(frame, position)
            end = position + (partition_count - 1) * _PARTITION.size
            if topic is None or partition_count < 2 or end >= len(frame) or frame[end]:
                return None
            count = len(topic.partitions)
            partitions: list[PartitionCommit] = []
            for index, offset, epoch, text, tags in _PARTITION.iter_unpack(frame[position:end]):
                if text not in _EMPTY_TEXTS or tags or not 0 <= index < count:
                    return None
                partitions.append((index, offset, epoch, None))
            position = end + 1
            topics.append(TopicCommit(topic.name, partitions, topic.topic_id))
            echoes.append((head, partitions))
        if position + 1 != len(frame) or frame[position]:
            return None
        return CommitRequest(
            group, member, instance, generation, NO_RETENTION, topics, self._tells_unknown_group
        )

    # Answers.

    def _answer(self, echoes: list[Echo], code: ErrorCode, correlation_id: int) -> bytes:
        """Return the framed answer, with the same code for all partitions."""
        if self._version >= COMPACT_SINCE:
            return _compact_answer(echoes, code, correlation_id)
        parts = [b""]
        size_bytes = 0
        pack, pack_count = _ANSWERED.pack, _INT32.pack
        for head, partitions in echoes:
            parts += (head, pack_count(len(partitions)))
            size_bytes += len(head) + _INT32.size + len(partitions) * _ANSWERED.size
            for partition in partitions:
                parts.append(pack(partition[0], code))
        if self._version < THROTTLED_SINCE:
            size_bytes += _TO_TOPICS.size - LENGTH_BYTES
            parts[0] = _TO_TOPICS.pack(size_bytes, correlation_id, len(echoes))
        else:
            size_bytes += _TO_TOPICS_V3.size - LENGTH_BYTES
            parts[0] = _TO_TOPICS_V3.pack(size_bytes, correlation_id, 0, len(echoes))
        return b"".join(parts)


def _plain_text(frame: memoryview, position: int) -> tuple[str | None, int]:
    """Return a text and the position where it ends. Raises struct.error, MalformedMessage."""
    (length,) = _INT16.unpack_from(frame, position)
    position += _INT16.size
    if length < 0:
        if length < -1:
            raise MalformedMessage(f"a text of {length} bytes")
        return None, position
    end = position + length
    if end > len(frame):
        raise MalformedMessage(f"a text of {length} bytes")
    return str(frame[position:end], "utf-8", "replace"), end


def _text(frame: memoryview, position: int) -> tuple[str | None, int]:
    """Return a compact text and the position where it ends. Raises IndexError, MalformedMessage."""
    length, position = get_uvarint(frame, position)
    if not length:
        return None, position
    end = position + length - 1
    if end > len(frame) or length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"a text of {length - 1} bytes")
    return str(frame[position:end], "utf-8", "replace"), end


def _compact_answer(echoes: list[Echo], code: ErrorCode, correlation_id: int) -> bytes:
    out = bytearray(_TO_COMPACT_TOPICS.size)
    put_uvarint(out, len(echoes) + 1)
    pack = _COMPACT_ANSWERED.pack
    for head, partitions in echoes:
        out += head
        put_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += pack(partition[0], code)
        out.append(0)
    out.append(0)
    _TO_COMPACT_TOPICS.pack_into(out, 0, len(out) - LENGTH_BYTES, correlation_id, 0)
    return bytes(out)
