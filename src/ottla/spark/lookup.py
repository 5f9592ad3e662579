"""What the planner asks of the cluster: which partitions there are, and what their logs hold.

The planner's side, between the options and the plans of batches and streams. Blocks; owns no
connection. Imports nothing but the standard library and this project.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.backoff import MISSING
from ottla.client.wire.offsets import EARLIEST, LATEST, NO_OFFSET
from ottla.client.wire.view import ClusterView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.spark.connection import OptionError
from ottla.spark.loss import ClusterState, LogState
from ottla.spark.offsets import EARLIEST as EARLIEST_WORD
from ottla.spark.offsets import LATEST as LATEST_WORD
from ottla.spark.offsets import Bound
from ottla.spark.option_table import TIMESTAMP_STRATEGY
from ottla.spark.options import SourceOptions
from ottla.spark.positions import Positions


def partitions_of(client: BlockingClient, options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions that the options mean now, each of which exists, in order.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if options.pattern:
        view = client.refresh(None)
        matches = named_by(options.pattern)
        topics = [
            name for name, topic in view.topics.items() if matches(name) and not topic.is_internal
        ]
        return _all_of(view, topics)
    if options.topics:
        return _all_of(client.refresh(options.topics), options.topics)
    view = client.refresh({topic for topic, _ in options.partitions})
    for topic, partition in options.partitions:
        there = view.topic(topic).partitions
        if partition not in there:
            why = f"{topic}-{partition}: the topic has {len(there)} partitions, numbered from 0"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    return sorted(options.partitions)


def named_by(pattern: str) -> Callable[[str], object]:
    """Return the test of whether a topic's name fits: anywhere in it, as in Spark's connector."""
    return re.compile(pattern).search


def _all_of(view: ClusterView, topics: Iterable[str]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic, partition)
        for topic in topics
        for partition in view.topic(topic).partitions
    )


def cluster_state(
    client: BlockingClient, partitions: Iterable[TopicPartition], *, read_committed: bool
) -> ClusterState:
    """Return what the logs of ``partitions`` hold, as far as they are there.

    One that is gone by now, asked for by its topic's name for the client's settings' time, is left
    out. With ``read_committed`` a log ends where the first open transaction begins.
    """
    named = list(partitions)
    while True:
        try:
            return _state_of(client, named, read_committed=read_committed)
        except KafkaError as error:
            if error.code not in MISSING:
                raise
            there = client.existing(named)
            if there.issuperset(named):
                raise
            named = [each for each in named if each in there]


def _state_of(
    client: BlockingClient, named: Sequence[TopicPartition], *, read_committed: bool
) -> ClusterState:
    if not named:
        return ClusterState({}, {})
    if not {topic for topic, _ in named} <= client.view.topics.keys():
        client.refresh({topic for topic, _ in named})
    ids = _ids(client.view, {topic for topic, _ in named})
    starts = client.list_offsets(dict.fromkeys(named, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(named, LATEST), read_committed=read_committed)
    logs = {
        each: LogState(starts[each].offset, ends[each].offset, ends[each].leader_epoch)
        for each in named
    }
    return ClusterState(logs, ids)


def _ids(view: ClusterView, topics: Iterable[str]) -> dict[str, TopicId]:
    found = (view.topics[name] for name in topics if name in view.topics)
    return {topic.name: topic.topic_id for topic in found if topic.has_id}


def with_epoch_ends(
    client: BlockingClient, now: ClusterState, positions: Positions, *, read_committed: bool
) -> ClusterState:
    """Return ``now`` with the ends of those epochs of ``positions`` that are not in force any more.

    With ``read_committed``, a position that was read uncommitted earlier, and is beyond the first
    open transaction, counts as the end of its log. Asks nothing when all is as it was.
    """
    older = {
        each: epoch
        for each, epoch in positions.epochs.items()
        if each in now.logs
        and each in positions.offsets
        and epoch < now.logs[each].epoch
        and positions.ids.get(each.topic) in {None, now.ids.get(each.topic)}
    }
    found = client.epoch_ends(older) if older else {}
    ends = {each: end.end_offset for each, end in found.items() if end.end_offset != NO_OFFSET}
    beyond = [
        each
        for each, offset in positions.offsets.items()
        if read_committed and each in now.logs and offset > now.logs[each].end
    ]
    logs = dict(now.logs)
    for each, latest in client.latest_offsets(beyond).items() if beyond else ():
        logs[each] = logs[each]._replace(end=min(positions.offsets[each], latest))
    return replace(now, logs=logs, epoch_ends=ends)


def resolve(
    client: BlockingClient, bound: Bound, now: ClusterState, options: SourceOptions
) -> dict[TopicPartition, int]:
    """Return the offset of each partition of ``now`` that ``bound`` means.

    Raises OptionError when it does not name exactly these partitions, and when no record is as new
    as a starting timestamp and the strategy is ``error``.
    """
    if bound.is_by_time:
        return _by_time(client, bound, now, options)
    words = dict.fromkeys(now.logs, bound.word)
    if bound.positions is not None:
        _check_complete(bound.option, bound.positions.offsets, now.logs)
        words = dict(bound.positions.offsets)
    return {each: _offset(words[each], log) for each, log in now.logs.items()}


def _offset(offset: int | None, log: LogState) -> int:
    if offset == EARLIEST_WORD:
        return log.start
    return log.end if offset is None or offset == LATEST_WORD else offset


def _check_complete(
    option: str,
    named: Mapping[TopicPartition, int],
    there: Mapping[TopicPartition, LogState],
) -> None:
    if named.keys() != there.keys():
        message = (
            f"option {option} must name every partition: it names {_list(named)}; "
            f"there are {_list(there)}"
        )
        raise OptionError(message)


def _list(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


def _by_time(
    client: BlockingClient, bound: Bound, now: ClusterState, options: SourceOptions
) -> dict[TopicPartition, int]:
    asked = dict(bound.timestamps_ms)
    if bound.timestamp_ms is not None:
        asked = dict.fromkeys(now.logs, bound.timestamp_ms)
    else:
        _check_complete(bound.option, asked, now.logs)
    found = client.list_offsets(asked, read_committed=options.read_committed) if asked else {}
    resolved: dict[TopicPartition, int] = {}
    for each, log in now.logs.items():
        offset = found[each].offset
        is_end = bound is options.ending
        if offset == NO_OFFSET and not (is_end or options.latest_when_none_as_new):
            message = (
                f"option {bound.option}: no record of {each} is as new as {asked[each]}; "
                f"{TIMESTAMP_STRATEGY}=latest begins at the end there"
            )
            raise OptionError(message)
        resolved[each] = log.end if offset == NO_OFFSET else min(offset, log.end)
    return resolved
