"""OffsetFetch, key 9: reads back what OffsetCommit stored.

Before v8 one group, from v8 on many. v1 has no error of its own, so that each partition carries it.
v7 may ask for stable offsets only (KIP-447), v10 names topics by id: offsets of a topic that is
gone, or has been made anew, are not shown there.
"""

from collections.abc import Sequence
from itertools import islice

from ottla.coordinator.group.coordinator import FetchedOffset, GroupCoordinator
from ottla.coordinator.group.offsets import CommittedOffset
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
BATCHED_SINCE = 8
IDS_SINCE = 10
OFFSETS_AT_A_TIME = 256
"""They are looked up together: a millisecond or two."""
NOTHING = CommittedOffset(-1, -1, "", -1)
"""What a partition without a commit is answered with."""

Fetched = list[FetchedOffset] | KafkaError


class OffsetFetch:
    """Asks the group for its durable offsets."""

    def __init__(
        self, groups: GroupCoordinator, image: MetadataImage, *, elements_max: int
    ) -> None:
        self._groups = groups
        self._image = image
        self._elements_max = elements_max

    def handle(self, request: OffsetFetchRequest, call: Call) -> Steps[OffsetFetchResponse]:
        """Answer every group by itself; the same asked of it again is left out."""
        room = AnswerRoom(self._elements_max)
        if call.api_version < BATCHED_SINCE:
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
        outcome = yield from self._fetch(
            asked.group_id,
            wanted,
            room,
            require_stable=require_stable,
            member=(asked.member_id, asked.member_epoch),
        )
        if isinstance(outcome, KafkaError):
            return OffsetFetchResponseGroup(
                group_id=asked.group_id, topics=[], error_code=outcome.code
            )
        if asked.topics is None:
            topics = yield from self._all_topics(outcome, version)
        else:
            topics = yield from self._topics(asked.topics, unknown, outcome, version)
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    def _fetch(
        self,
        group_id: str,
        wanted: Sequence[tuple[str, int]] | None,
        room: AnswerRoom,
        *,
        require_stable: bool,
        member: tuple[str | None, int] = (None, -1),
    ) -> Steps[Fetched]:
        """Return what is ``wanted``, all there is if that is None, or why not, some at a time.

        A partition named again is answered again, as in Kafka, while there is room.
        """
        names = wanted
        if names is None:
            known: list[tuple[str, int]] | KafkaError = yield self._groups.partitions_of(
                group_id, require_stable=require_stable
            )
            if isinstance(known, KafkaError):
                return known
            names = known
        found: list[FetchedOffset] = []
        elements, begin = 0, 0
        while not begin or begin < len(names):  # Also if there are none: the group may be refused.
            some: Fetched = yield self._groups.fetch_offsets(
                group_id,
                names[begin : begin + OFFSETS_AT_A_TIME],
                require_stable=require_stable,
                member=member,
            )
            if isinstance(some, KafkaError):
                return some
            if wanted is None:
                some = [one for one in some if one.committed or one.code is not ErrorCode.NONE]
            found += some
            elements += sum(weight(one.committed.metadata) if one.committed else 1 for one in some)
            begin += OFFSETS_AT_A_TIME
            yield None
        has_repeated = wanted is not None and len(set(wanted)) < len(wanted)
        return found if room.take(elements, first_is_free=not has_repeated) else room.refusal

    def _wanted(
        self, asked: Sequence[OffsetFetchRequestTopics], version: int
    ) -> Steps[tuple[list[tuple[str, int]], list[bool]]]:
        """Return what is asked for by name, and which of the topics have an unknown id."""
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
        """Put what was found into the request's order."""
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
        outcome = yield from self._fetch(
            request.group_id, wanted, room, require_stable=request.require_stable
        )
        if isinstance(outcome, KafkaError):
            if version >= TOP_LEVEL_ERROR_SINCE:
                return OffsetFetchResponse(error_code=outcome.code)
            failed = outcome.code
            outcome = [FetchedOffset(*one, None, failed) for one in wanted or ()]
        return OffsetFetchResponse(topics=(yield from _single_topics(request, outcome)))


def _wish(asked: OffsetFetchRequestGroup) -> tuple[object, ...]:
    """Return what tells two groups of a request apart."""
    topics = asked.topics
    if topics is not None:
        wanted = tuple((one.name, one.topic_id, tuple(one.partition_indexes)) for one in topics)
    else:
        wanted = None
    return asked.group_id, asked.member_id, asked.member_epoch, wanted


def _single_topics(
    request: OffsetFetchRequest, found: Sequence[FetchedOffset]
) -> Steps[list[OffsetFetchResponseTopic]]:
    """Put what was found into the request's order; all there is if it names no topics."""
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
    """Tell whether an offset was committed for an earlier topic of the name."""
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
