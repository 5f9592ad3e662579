"""OffsetFetch, key 9: reads back what OffsetCommit stored.

Before v8 a request names one group, from v8 on many. v1 has no error for the whole answer, so each
partition carries it. v7 may ask for stable offsets only (KIP-447). v10 names topics by id, and does
not show offsets of a topic that was deleted, even if it was created again.
"""

from collections.abc import Sequence
from itertools import islice

from ottla.coordinator.group.coordinator import FetchedOffset, GroupCoordinator
from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.call import Call
from ottla.ids import NULL_TOPIC_ID
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.sliced import STRIDE, Steps, each

TOP_LEVEL_ERROR_SINCE = 2
MANY_SINCE = 8
IDS_SINCE = 10
OFFSETS_AT_A_TIME = 256
"""So many offsets are looked up without a yield: a millisecond or two."""
NOTHING = CommittedOffset(-1, -1, "", -1)
"""The answer for a partition without a committed offset."""


class OffsetFetch:
    """Asks the group coordinator for durable committed offsets."""

    def __init__(
        self, groups: GroupCoordinator, image: MetadataImage, *, elements_max: int
    ) -> None:
        self._groups = groups
        self._image = image
        self._elements_max = elements_max

    def handle(self, request: OffsetFetchRequest, call: Call) -> Steps[OffsetFetchResponse]:
        """Return each group's offsets or error; exact repetitions are left out."""
        room = AnswerRoom(self._elements_max)
        if call.api_version < MANY_SINCE:
            return (yield from self._single(request, call.api_version, room))
        groups: list[OffsetFetchResponseGroup] = []
        wishes: dict[tuple[object, ...], OffsetFetchRequestGroup] = {}
        yield from each(request.groups, lambda one: wishes.setdefault(_wish(one), one))
        for asked in list(wishes.values()):
            found = yield from self._group(
                asked, call.api_version, room, require_stable=request.require_stable
            )
            groups.append(found)
        return OffsetFetchResponse(groups=groups)

    def _group(
        self,
        asked: OffsetFetchRequestGroup,
        version: int,
        room: AnswerRoom,
        *,
        require_stable: bool,
    ) -> Steps[OffsetFetchResponseGroup]:
        wanted: list[tuple[str, int]] | None = None
        unknown: list[bool] = []
        if asked.topics is not None:
            wanted, unknown = yield from self._wanted(asked.topics, version)
        try:
            found = yield from self._fetch(
                asked.group_id,
                wanted,
                room,
                require_stable=require_stable,
                member=(asked.member_id, asked.member_epoch),
            )
        except KafkaError as error:
            return OffsetFetchResponseGroup(
                group_id=asked.group_id, topics=[], error_code=error.code
            )
        if asked.topics is None:
            topics = yield from self._all_topics(found, version)
        else:
            topics = yield from self._topics(asked.topics, unknown, found, version)
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    def _fetch(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]] | None,
        room: AnswerRoom,
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> Steps[list[FetchedOffset]]:
        """Return the offsets of ``wanted`` (None: of all partitions). Raises KafkaError.

        A partition that is named twice is answered twice, as in Kafka, while there is room.
        """
        names = wanted
        if names is None:
            known: list[tuple[str, int]] = yield self._groups.partitions_of(
                group_id, require_stable=require_stable
            )
            names = known
        found: list[FetchedOffset] = []
        elements, begin = 0, 0
        while not begin or begin < len(names):  # Even without names: the group may be refused.
            some: list[FetchedOffset] = yield self._groups.fetch_offsets(
                group_id,
                names[begin : begin + OFFSETS_AT_A_TIME],
                require_stable=require_stable,
                member=member,
            )
            if wanted is None:
                some = [one for one in some if one.committed or one.code is not ErrorCode.NONE]
            found += some
            elements += sum(weight(one.committed.metadata) if one.committed else 1 for one in some)
            begin += OFFSETS_AT_A_TIME
            yield None
        has_repeated = wanted is not None and len(set(wanted)) < len(wanted)
        if not room.take(elements, first_is_free=not has_repeated):
            raise room.refusal
        return found

    def _wanted(
        self, asked: Sequence[OffsetFetchRequestTopics], version: int
    ) -> Steps[tuple[list[tuple[str, int]], list[bool]]]:
        """Return the partitions by topic name, and for each topic whether its id is unknown."""
        wanted: list[tuple[str, int]] = []
        unknown: list[bool] = []
        for topic in asked:
            yield None
            name: str | None = topic.name
            if version >= IDS_SINCE:
                known = self._image.topic_by_id(topic.topic_id)
                name = None if known is None else known.name
            unknown.append(name is None)
            if name is not None:
                wanted += [(name, index) for index in topic.partition_indexes]
        return wanted, unknown

    def _topics(
        self,
        asked: Sequence[OffsetFetchRequestTopics],
        unknown: Sequence[bool],
        found: Sequence[FetchedOffset],
        version: int,
    ) -> Steps[list[OffsetFetchResponseTopics]]:
        """Return the found offsets in the request's order."""
        offsets = iter(found)
        topics: list[OffsetFetchResponseTopics] = []
        for topic, is_unknown in zip(asked, unknown, strict=True):
            if len(topics) % STRIDE == STRIDE - 1:
                yield None
            parts: list[OffsetFetchResponsePartitions] = []
            for index in topic.partition_indexes:
                if len(parts) % STRIDE == STRIDE - 1:
                    yield None
                if is_unknown:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                    parts.append(_part(FetchedOffset("", index, None, code)))
                    continue
                one = next(offsets)
                if version >= IDS_SINCE and _is_of_another(one, topic.topic_id):
                    one = one._replace(committed=None)
                parts.append(_part(one))
            topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name, topic_id=topic.topic_id, partitions=parts
                )
            )
        return topics

    def _all_topics(
        self, found: Sequence[FetchedOffset], version: int
    ) -> Steps[list[OffsetFetchResponseTopics]]:
        by_topic: dict[str, list[FetchedOffset]] = {}
        for one in found:
            by_topic.setdefault(one.topic, []).append(one)
        topics = []
        for name, offsets in by_topic.items():
            yield None
            topic_id = NULL_TOPIC_ID
            if version >= IDS_SINCE:
                known = self._image.topic(name)
                if known is None:
                    continue
                topic_id = known.topic_id
            told = (
                one for one in offsets if version < IDS_SINCE or not _is_of_another(one, topic_id)
            )
            parts = yield from each(told, _part)
            if parts:
                topics.append(
                    OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=parts)
                )
        return topics

    def _single(
        self, request: OffsetFetchRequest, version: int, room: AnswerRoom
    ) -> Steps[OffsetFetchResponse]:
        wanted = None
        if request.topics is not None:
            wanted = []
            for topic in request.topics:
                wanted += [(topic.name, index) for index in topic.partition_indexes]
                yield None
        try:
            found = yield from self._fetch(
                request.group_id, wanted, room, require_stable=request.require_stable
            )
        except KafkaError as error:
            if version >= TOP_LEVEL_ERROR_SINCE:
                return OffsetFetchResponse(error_code=error.code)
            code = error.code
            found = [FetchedOffset(*one, None, code) for one in wanted or ()]
        return OffsetFetchResponse(topics=(yield from _single_topics(request, found)))


def _wish(asked: OffsetFetchRequestGroup) -> tuple[object, ...]:
    """Return everything that one group entry asks for, to recognise exact repetitions."""
    topics = asked.topics
    if topics is not None:
        wanted = tuple((one.name, one.topic_id, tuple(one.partition_indexes)) for one in topics)
    else:
        wanted = None
    return asked.group_id, asked.member_id, asked.member_epoch, wanted


def _single_topics(
    request: OffsetFetchRequest, found: Sequence[FetchedOffset]
) -> Steps[list[OffsetFetchResponseTopic]]:
    """Return the found offsets in the request's order; all of them if it names no topics."""
    if request.topics is not None:
        offsets = iter(found)
        topics: list[OffsetFetchResponseTopic] = []
        for topic in request.topics:
            parts = yield from each(islice(offsets, len(topic.partition_indexes)), _single_part)
            topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=parts))
            yield None
        return topics
    by_topic: dict[str, list[OffsetFetchResponsePartition]] = {}
    for ordinal, one in enumerate(found):
        if ordinal % STRIDE == STRIDE - 1:
            yield None
        by_topic.setdefault(one.topic, []).append(_single_part(one))
    return [
        OffsetFetchResponseTopic(name=name, partitions=parts) for name, parts in by_topic.items()
    ]


def _is_of_another(one: FetchedOffset, topic_id: bytes) -> bool:
    """Whether an offset was committed for an earlier topic of the same name."""
    known = NULL_TOPIC_ID if one.committed is None else one.committed.topic_id
    return known not in (NULL_TOPIC_ID, topic_id)


def _part(one: FetchedOffset) -> OffsetFetchResponsePartitions:
    committed = one.committed or NOTHING
    return OffsetFetchResponsePartitions(
        partition_index=one.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=one.code,
    )


def _single_part(one: FetchedOffset) -> OffsetFetchResponsePartition:
    committed = one.committed or NOTHING
    return OffsetFetchResponsePartition(
        partition_index=one.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=one.code,
    )
