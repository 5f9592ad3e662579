"""The direct way of OffsetCommit, as consumers send it: one tuple per partition, no objects.

Owns where the fields of such a request stand, and the bytes of its answer. Below it is the way of
every commit (``GroupCoordinator.commit``). Any other request (metadata, a partition that does not
exist, any tag, versions before 8) is left to the ordinary way by returning ``NOT_DIRECT`` before
anything has happened. The message tables stay the truth: a test holds both ways against each other,
byte for byte, in every version. Texts and arrays are compact, lengths and counts one too large.

    request   v8-10   tags(0) group:string generation:int32 member:string instance:string?
                      topics:array tags(0)
    topic             name:string, v10 id:uuid  partitions:array  tags(0)
    partition         index:int32 offset:int64 leader_epoch:int32 metadata:string?(empty) tags(0)

    response  v8-10   tags(0) throttle:int32(0) topics:array tags(0)
    topic             name:string, v10 id:uuid  partitions:array  tags(0)
    partition         index:int32 error:int16 tags(0)
"""

from __future__ import annotations  # else those of inner functions are made at each call

import struct

from ottla.coordinator.group.committing import CommitRequest, PartitionCommit, TopicCommit
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.handlers.call import NOT_DIRECT, Answer, NotDirect
from ottla.ids import TOPIC_ID_BYTES, TopicId
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.compiler import STRING_BYTES_MAX
from ottla.protocol.header import LENGTH_BYTES
from ottla.protocol.primitives import get_uvarint, put_uvarint

COMPACT_SINCE = 8
TELLS_UNKNOWN_GROUP_SINCE = 9
IDS_SINCE = 10

_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">iqiBB")
_EMPTY_TEXTS = (0, 1)
"""Null, and a text without characters."""
_ANSWER_HEAD = struct.Struct(">iixi")
"""Length, correlation id, no tags, throttle time."""
_CODE = struct.Struct(">hx")

Echo = tuple[bytes, list[PartitionCommit]]
"""What an answer repeats of a topic: its name or id with the length in front, its partitions."""


class DirectOffsetCommit:
    """Serves such requests of one version."""

    def __init__(self, version: int, groups: GroupCoordinator, image: MetadataImage) -> None:
        self._has_ids = version >= IDS_SINCE
        self._tells_unknown_group = version >= TELLS_UNKNOWN_GROUP_SINCE
        self._groups = groups
        self._image = image

    def serve(
        self, frame: memoryview, position: int, correlation_id: int
    ) -> Answer | Pending[Answer | None] | NotDirect:
        """Serve the frame whose client id ends at ``position``: ``ottla.handlers.call.Direct``.

        Raises nothing of a bad frame: it is ``NOT_DIRECT``, too.
        """
        echoes: list[Echo] = []
        try:
            request = self._read(frame, position, echoes)
        except (struct.error, IndexError, MalformedMessage):
            return NOT_DIRECT
        if request is None:
            return NOT_DIRECT

        def answer(outcome: list[ErrorCode] | KafkaError) -> Answer | None:
            # One partition is refused by itself for its metadata only, and there is none.
            code = outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE
            return [_answer(echoes, code, correlation_id)]

        return self._groups.commit(request).then(answer)

    def _read(self, frame: memoryview, position: int, echoes: list[Echo]) -> CommitRequest | None:
        """Read a request, and what its answer repeats; None if it is of another form."""
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
            if self._has_ids:
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
            group, member, instance, generation, -1, topics, self._tells_unknown_group
        )


def _text(frame: memoryview, position: int) -> tuple[str | None, int]:
    """Return a compact text and where it ends. Raises IndexError, MalformedMessage."""
    length, position = get_uvarint(frame, position)
    if not length:
        return None, position
    end = position + length - 1
    if end > len(frame) or length > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"a text of {length - 1} bytes")
    return str(frame[position:end], "utf-8", "replace"), end


def _answer(echoes: list[Echo], code: ErrorCode, correlation_id: int) -> bytearray:
    """Return the framed answer: the same code for all."""
    out = bytearray(_ANSWER_HEAD.size)
    put_uvarint(out, len(echoes) + 1)
    tail, pack = _CODE.pack(code), _INT32.pack
    for head, partitions in echoes:
        out += head
        put_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += pack(partition[0]) + tail
        out.append(0)
    out.append(0)
    _ANSWER_HEAD.pack_into(out, 0, len(out) - LENGTH_BYTES, correlation_id, 0)
    return out
