"""How a stream follows its topics: where it begins, how far a micro-batch goes, what was lost.

The planner's side, in one process of the driver that lives as long as the query, with one client.
Knows no pyspark: ``stream`` turns Spark's words into these. Blocks.

Spark asks for the initial offset again when it repeats a first micro-batch that was cut short, and
by then "latest" is another place. So the end of the first micro-batch carries where it began. And
each end carries how the micro-batch is divided into tasks, as far as that was learned here: what a
query computes may depend on it (``monotonically_increasing_id``), and another process that repeats
the micro-batch has learned nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.errors import ConnectionFailed
from ottla.env.blocking import BlockingClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicId, TopicPartition, topic_id_text
from ottla.spark.lookup import cluster_state, partitions_of, resolve, with_epoch_ends
from ottla.spark.loss import ClusterState, Loss, PartitionGone, TopicRecreated, find_losses
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.planning.admission import EVERYTHING, Gate, Limits, backlog, share
from ottla.spark.planning.sharing import Sharing
from ottla.spark.planning.split import split
from ottla.spark.planning.subscription import Subscription
from ottla.spark.positions import Positions

LOG = logging.getLogger("ottla.spark")

PUBLISH_TIMEOUT_MS = 5_000
PUBLISH_AGAIN_SECONDS = 60.0
HAVE_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)

Offsets = Mapping[TopicPartition, int]
Connect = Callable[[SourceOptions, int], BlockingClient]
"""Connects by the options; the number says for how many milliseconds calls are tried again."""


class _Planned(NamedTuple):
    """The micro-batch that ``latest`` decided on, which ``plan`` is asked for next."""

    start: Positions
    end: Positions
    starts: Offsets


def connect(options: SourceOptions, retry_timeout_ms: int) -> BlockingClient:
    """Return a client that goes on trying for so long."""
    return BlockingClient(options.settings(retry_timeout_ms=retry_timeout_ms))


class StreamTracker:
    """One stream's view of its topics. Not for use from two threads at once.

    Every method that asks the cluster raises KafkaError, ConnectionFailed, and, unless the options
    say to go on, DataLoss for what went wrong with offsets noted earlier.
    """

    def __init__(
        self,
        options: SourceOptions,
        connect: Connect = connect,
        clock: BlockingClock | None = None,
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock = clock or BlockingClock()
        self._client = connect(options, options.first_retry_ms)
        self._coordinators = BlockingCoordinators(self._client)
        self._subscription = Subscription(options)
        self._has_begun = False
        self._has_judged_ids = False
        self._same: dict[tuple[str, TopicId], TopicId] = {}
        """From a topic and the id that the checkpoint says to the one that is accepted for it."""
        self._gate = Gate(options.trigger.max_delay_ms)
        self._sharing = Sharing()
        self._initial: Positions | None = None
        self._newest: Positions | None = None
        self._target: Positions | None = None
        self._planned: _Planned | None = None
        self._published: Offsets = {}
        self._publish_from = float("-inf")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def initial(self) -> Positions:
        """Return where a stream without a checkpoint begins. Raises OptionError besides.

        Spark asks twice, for the first micro-batch's end and to plan it, and gets the same answer.
        """
        if self._initial is not None:
            return self._initial
        options = self._options
        now = self._look(may_be_gone=False)
        offsets = resolve(self._client, options.starting, now, options)
        given = options.starting.positions or Positions()
        starts = self._starts(Positions(offsets, given.ids, given.epochs), now)
        self._initial = _positions(starts, now)
        return self._initial

    def hold_end(self) -> None:
        """Take what is there now for all there will ever be (``Trigger.AvailableNow``)."""
        self._look()
        self._target = self._newest

    @property
    def newest(self) -> Positions | None:
        """The ends of the logs when they were looked at last; None before that."""
        return self._newest

    def latest(self, start: Positions, limits: Limits = EVERYTHING) -> Positions:
        """Return where a micro-batch from ``start`` ends; ``start`` itself when it is to be none.

        That it is asked says that everything before ``start`` is done.
        """
        self._sharing.ended(self._clock.monotonic())
        now = self._look(start)
        starts = self._starts(self._renamed(start), now)
        self.publish(
            {each: offset for each, offset in start.offsets.items() if starts.get(each) == offset}
        )
        ends = self._ends(start, starts, now)
        least = None if self._target is not None else limits.least
        if not self._gate.lets_through(backlog(starts, ends), least, self._clock.monotonic()):
            return start
        is_behind = False
        if limits.most is not None:
            there, ends = ends, share(limits.most, starts, ends)
            is_behind = ends != there
        end = _positions(ends, now)
        if start == self._initial:
            end = replace(end, begin=dict(start.offsets))
        elif end.offsets == start.offsets and (not start.ids or end.ids == start.ids):
            return start
        end = replace(end, shared=self._shared(is_behind=is_behind))
        self._planned = _Planned(start, end, starts)
        return end

    def _shared(self, *, is_behind: bool) -> int:
        """Return how many offsets share a task in the next micro-batch, where that is left to us.

        None do while the stream ``is_behind``: what waits would make ranges too large to share, if
        the options allowed, and now needs all tasks there can be.
        """
        shared = self._sharing.planned(self._clock.monotonic())
        return 0 if is_behind or self._options.says_tasks else shared

    def _ends(
        self, start: Positions, starts: Offsets, now: ClusterState
    ) -> dict[TopicPartition, int]:
        """Return where what is there ends; never before ``starts``.

        Below its start a log can end for ``read_committed`` alone: what was read uncommitted, or is
        named by ``startingOffsets``, may be beyond the first open transaction.
        """
        if self._target is None:
            return {each: max(log.end, starts[each]) for each, log in now.logs.items()}
        targets = self._target.offsets
        return {
            each: max(min(targets.get(each, starts[each]), log.end), starts[each])
            for each, log in now.logs.items()
            if each in targets or each in start.offsets  # what was not seen then is not forgotten
        }

    def plan(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """Return the ranges of a micro-batch, divided; ``end.shared`` says which share a task."""
        planned = self._planned
        if planned is not None and (planned.start, planned.end) == (start, end):
            starts, ends = planned.starts, end.offsets
        else:
            now = self._look(start, end)
            start, end = self._renamed(start), self._renamed(end)
            starts, ends = self._recall(start, end, now)
        ranges = [
            OffsetRange(*each, starts[each], ends[each], end.ids.get(each.topic, NULL_TOPIC_ID))
            for each in sorted(ends)
        ]
        return split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def publish(self, finished: Offsets) -> None:
        """Commit, as the stream's group if it has one, that everything below is done.

        The commit is for other tools to see: a failure is a warning, and the next try is a minute
        later.
        """
        group = self._options.group
        fresh = {each: at for each, at in finished.items() if self._published.get(each) != at}
        now = self._clock.monotonic()
        if not group or not fresh or now < self._publish_from:
            return
        try:
            self._coordinators.commit(group, fresh, timeout_ms=PUBLISH_TIMEOUT_MS)
        except (KafkaError, ConnectionFailed) as error:
            self._publish_from = now + PUBLISH_AGAIN_SECONDS
            has_members = isinstance(error, KafkaError) and error.code in HAVE_MEMBERS
            hint = "; it has members: group.id= wants a group of its own" if has_members else ""
            LOG.warning("the stream's progress is not shown as group %s%s: %s", group, hint, error)
            return
        self._published = {**self._published, **fresh}

    def _recall(
        self, start: Positions, end: Positions, now: ClusterState
    ) -> tuple[Offsets, Offsets]:
        """Return starts and ends of a micro-batch that was decided on before this process began."""
        ends = dict(end.offsets)
        for each, loss in self._losses(end, now).items():
            if isinstance(loss.error, (PartitionGone, TopicRecreated)) or loss.resume is None:
                del ends[each]
            else:
                ends[each] = loss.resume
        if end.begin:
            start = Positions(end.begin, end.ids, end.epochs)
        start = replace(start, offsets={t: o for t, o in start.offsets.items() if t in ends})
        here = replace(now, logs={t: log for t, log in now.logs.items() if t in ends})
        return self._starts(start, here), ends

    def _look(self, *known: Positions, may_be_gone: bool | None = None) -> ClusterState:
        """Ask which partitions there are and what their logs hold.

        ``may_be_gone``: whether topics that are not in ``known`` need not be there, either; None:
        as for those that are.
        """
        options = self._options
        topics = {each.topic for positions in known for each in positions.offsets}
        if may_be_gone is None:
            may_be_gone = not options.fail_on_data_loss
        subscription = self._subscription
        if options.pattern:
            found = partitions_of(self._client, options)
            partitions = subscription.completed(self._client, found, topics)
        else:
            partitions = subscription.named(self._client, topics, may_be_gone=may_be_gone)
        now = cluster_state(self._client, partitions, read_committed=options.read_committed)
        if known and not self._has_judged_ids:
            self._has_judged_ids = True
            self._accept_ids(known, now)
        self._newest = _positions({each: log.end for each, log in now.logs.items()}, now)
        if not self._has_begun:
            self._has_begun = True
            self.close()
            self._client = self._connect(options, options.later_retry_ms)
            self._coordinators = BlockingCoordinators(self._client)
        return now

    def _accept_ids(self, known: Iterable[Positions], now: ClusterState) -> None:
        """Take topics whose ids have changed since the checkpoint for the same, if told so."""
        if not self._options.accept_topic_ids:
            return
        for topic, topic_id in {pair for positions in known for pair in positions.ids.items()}:
            current = now.ids.get(topic)
            if current is not None and current != topic_id:
                there, told = topic_id_text(current), topic_id_text(topic_id)
                LOG.warning("topic %s: the id %s is taken for %s", topic, there, told)
                self._same[topic, topic_id] = current

    def _renamed(self, positions: Positions) -> Positions:
        """Return positions with the ids that are accepted in place of those noted earlier."""
        accepted = {
            topic: self._same[topic, topic_id]
            for topic, topic_id in positions.ids.items()
            if (topic, topic_id) in self._same
        }
        if not accepted:
            return positions
        # Another cluster's leader epochs say nothing here.
        epochs = {each: at for each, at in positions.epochs.items() if each.topic not in accepted}
        return replace(positions, ids={**positions.ids, **accepted}, epochs=epochs)

    def _starts(self, start: Positions, now: ClusterState) -> dict[TopicPartition, int]:
        """Return where to go on in every partition there is; in a new one that is its begin."""
        offsets = {**dict.fromkeys(now.logs, 0), **start.offsets}
        for each, loss in self._losses(replace(start, offsets=offsets), now).items():
            if loss.resume is None:
                del offsets[each]
            else:
                offsets[each] = loss.resume
        return offsets

    def _losses(self, positions: Positions, now: ClusterState) -> dict[TopicPartition, Loss]:
        """Return what went wrong with positions; raises the first where that ends the query."""
        checked = with_epoch_ends(
            self._client, now, positions, read_committed=self._options.read_committed
        )
        losses = find_losses(positions, checked)
        for loss in losses.values():
            if self._options.fail_on_data_loss:
                raise loss.error
            LOG.warning("%s", loss.error)
        return losses


def _positions(offsets: Offsets, now: ClusterState) -> Positions:
    """Return ``offsets`` with the ids and epochs that are in force."""
    topics = {each.topic for each in offsets}
    epochs = {each: now.logs[each].epoch for each in offsets if now.logs[each].epoch >= 0}
    return Positions(offsets, {t: now.ids[t] for t in topics & now.ids.keys()}, epochs)
