"""The leader's part of the ISR: when to ask for another one, and what comes of that.

For each partition that this node leads with followers: after a fetch of one, and every so often, it
is decided whether somebody may join, has lagged for too long, or the ELR can be cleared; then the
next state is proposed to the store, one proposal at a time, by compare-and-set. What a proposal
means meanwhile, and when it is gone, replica_state says; here it is carried out through a port, and
committed again while nobody knows what became of it. Times are of a clock that stands while this
process does. Knows no store and no image. Source: KIP-497, KIP-903, KIP-966; rules 1 to 5 of
several nodes, which tests/model checks.
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Protocol

from ottla.env.clock import Clock, Timer
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.values import PartitionState
from ottla.pending import Pending
from ottla.replication.elections import effective_min_isr
from ottla.replication.partition import Partition
from ottla.replication.replica_state import (
    LeaderView,
    Proposal,
    is_behind,
    lagging,
    may_clear_elr,
    may_join,
    propose_clear,
    propose_expand,
    propose_shrink,
    was_refused,
)

LOOKS_PER_LAG = 4
"""How often in ``replica.lag.time.max.ms`` it is looked who lags."""
LOOKED_AT_PER_TURN = 500
"""Partitions looked at before the loop gets its turn: each costs microseconds."""
IN_FLIGHT_MAX = 1_000
"""Proposals without an answer. More wait for the next look: a node that dies is in as many ISRs as
there are partitions."""


class Outcome(Enum):
    """What became of one attempt to commit a proposal."""

    COMMITTED = "committed"
    KEY_CHANGED = "the partition's key was another one"
    """Also if a registration was gone, too."""
    REGISTRATION_GONE = "this node, or who would join, is not registered as it was"
    UNKNOWN = "no answer: it may have been committed"


class ProposeState(Protocol):
    """The port to the store."""

    def __call__(
        self, where: TopicPartition, topic_id: TopicId, before: PartitionState, proposal: Proposal
    ) -> Pending[Outcome]:
        """Commit ``proposal.state`` in place of ``before``. Does not block; never fails.

        Guarded by the key's revision that ``before`` was read in, by this node's registration, and
        by that of ``proposal.joining``, if there is one, which must be ``proposal.broker_epoch``.
        """


def next_proposal(
    view: LeaderView,
    *,
    high_watermark: int,
    log_end_offset: int,
    min_insync_replicas: int,
    now_ms: int,
    began_at_ms: int,
    lag_max_ms: int,
    full: Collection[NodeId] = (),
) -> LeaderView | None:
    """Return the view with the proposal that is due now; None: none is. Pure.

    ``began_at_ms``: see ``lagging``. ``full``: followers that have no space for records. They do
    not join; and they leave as soon as they are behind, if enough others are in sync: what is
    committed would wait for them until they count as lagging. Joins come first: they let more of
    the log be committed, and keep the ISR large when another follower has to leave.
    """
    if view.proposal is not None:
        return None
    if may_clear_elr(view, min_insync_replicas):
        return propose_clear(view, min_insync_replicas)
    for node in view.state.replicas:
        if node not in full and may_join(view, node, high_watermark):
            return propose_expand(view, node, min_insync_replicas)
    leaving = lagging(
        view,
        log_end_offset=log_end_offset,
        now_ms=now_ms,
        began_at_ms=began_at_ms,
        lag_max_ms=lag_max_ms,
    )
    stuck = {node for node in full if is_behind(view, node, log_end_offset)}.union(leaving)
    if len({*view.state.isr} - stuck) >= effective_min_isr(view.state, min_insync_replicas):
        leaving = tuple(stuck)
    return propose_shrink(view, leaving, min_insync_replicas) if leaving else None


class _Leadership:
    """What is remembered of one leader epoch of a partition."""

    __slots__ = ("began_at_ms", "committed", "epoch", "full", "in_flight", "partition", "refused")

    def __init__(self, partition: Partition, now_ms: int) -> None:
        self.partition = partition
        self.epoch: LeaderEpoch = partition.leader_epoch
        self.began_at_ms = now_ms
        """When it was seen first."""
        self.in_flight: Proposal | None = None
        """Use: one attempt at a time."""
        self.committed: Proposal | None = None
        """Use: the last one that was committed: the image will tell, it is not tried again."""
        self.refused: tuple[NodeId, int] | None = None
        """Use: who could not join, by the registration it had. Cleared at each look: perhaps it was
        this node's registration that was gone."""
        self.full: set[NodeId] = set()
        """Use: followers that have no space for records now."""


class IsrChanges:
    """Keeps the ISRs of the partitions that this node leads."""

    def __init__(
        self,
        clock: Clock,
        propose: ProposeState,
        lag_max_ms: Callable[[], int],
    ) -> None:
        """``clock`` stands while this process does. ``lag_max_ms``: ``replica.lag.time.max.ms``."""
        self._clock = clock
        self._propose = propose
        self._lag_max_ms = lag_max_ms
        self._leaderships: dict[TopicPartition, _Leadership] = {}
        """Invariant: with followers; those of partitions that this node led when it last looked."""
        self._in_flight_count = 0
        self.fetched: Callable[[Partition, NodeId], None] | None = None
        """Use: told of each fetch that counts. None: nobody is."""
        self.failed: Callable[[Partition], None] = lambda _: None
        """Use: told, again and again, of a partition whose log is out of service here."""
        self._timer: Timer | None = None
        self._is_stopped = False

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # Who is looked after.

    def watch(self, partition: Partition) -> None:
        """Look after a partition that this node may lead with followers. Harmless twice."""
        where = partition.topic_partition
        known = self._leaderships.get(where)
        if partition.view is None or not partition.is_leader:
            self._leaderships.pop(where, None)
            return
        is_known = known is not None and known.partition is partition
        if not (is_known and known is not None and known.epoch == partition.leader_epoch):
            self._leaderships[where] = _Leadership(partition, self._now_ms())
        self._arm()

    def follower_fetched(
        self,
        partition: Partition,
        node: NodeId,
        end_offset: int,
        broker_epoch: int,
        *,
        is_full: bool = False,
    ) -> None:
        """Note a fetch as ``Partition.follower_fetched`` does, and what follows from it.

        ``is_full``: the follower has no space for records; see ``next_proposal``. Raises
        KafkaError, as that does.
        """
        partition.follower_fetched(node, end_offset, broker_epoch, now_ms=self._now_ms())
        if self.fetched is not None:
            self.fetched(partition, node)
        leadership = self._leaderships.get(partition.topic_partition)
        if leadership is None or leadership.epoch != partition.leader_epoch:
            self.watch(partition)
            leadership = self._leaderships[partition.topic_partition]
        (leadership.full.add if is_full else leadership.full.discard)(node)
        if is_full or node not in partition.state.isr:
            self._look_at(leadership)

    def stop(self) -> None:
        """Propose nothing more."""
        self._is_stopped = True
        self._leaderships.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Looking.

    def _arm(self) -> None:
        if self._timer is None and not self._is_stopped and self._leaderships:
            seconds = self._lag_max_ms() / 1000 / LOOKS_PER_LAG
            self._timer = self._clock.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._go_on(self._looking())

    def _go_on(self, work: Iterator[None]) -> None:
        if self._is_stopped:
            return
        if next(work, self) is self:
            self._arm()
        else:
            self._timer = self._clock.call_later(0, lambda: self._go_on(work))

    def _looking(self) -> Iterator[None]:
        for number, leadership in enumerate(list(self._leaderships.values()), 1):
            leadership.refused = None
            self._look_at(leadership)
            if number % LOOKED_AT_PER_TURN == 0:
                yield

    def _look_at(self, leadership: _Leadership) -> None:
        """Propose what is due, or try again what nobody knows the outcome of."""
        partition = leadership.partition
        view = partition.view
        if view is None or not partition.is_leader or leadership.epoch != partition.leader_epoch:
            self.watch(partition)  # It is led no more, or anew.
            return
        if partition.is_failed:  # Nobody can fetch: that is not the followers' lag.
            self.failed(partition)
            return
        if leadership.in_flight is not None or self._in_flight_count >= IN_FLIGHT_MAX:
            return
        if view.proposal is None:
            log = partition.log
            proposing = next_proposal(
                _without(view, leadership.refused),
                high_watermark=partition.high_watermark,
                log_end_offset=log.log_end_offset,
                min_insync_replicas=partition.min_insync_replicas,
                now_ms=self._now_ms(),
                began_at_ms=leadership.began_at_ms,
                lag_max_ms=self._lag_max_ms(),
                full=leadership.full,
            )
            if proposing is None:
                return
            view = view._replace(proposal=proposing.proposal)
            partition.take_view(view)
        elif view.proposal is leadership.committed:
            return
        self._commit(leadership, view)

    def _commit(self, leadership: _Leadership, view: LeaderView) -> None:
        proposal = view.proposal
        assert proposal is not None
        leadership.in_flight = proposal
        self._in_flight_count += 1
        partition = leadership.partition
        pending = self._propose(partition.topic_partition, partition.topic_id, view.state, proposal)
        pending.on_done(lambda done: self._committed(leadership, proposal, done.value))

    def _committed(
        self, leadership: _Leadership, proposal: Proposal, outcome: Outcome | None
    ) -> None:
        """Take the outcome. Whatever stands is ended by the image, or committed again."""
        leadership.in_flight = None
        self._in_flight_count -= 1
        if outcome is Outcome.COMMITTED:
            leadership.committed = proposal
        partition = leadership.partition
        view = partition.view
        if view is None or not partition.is_leader or leadership.epoch != partition.leader_epoch:
            return
        if outcome is Outcome.REGISTRATION_GONE:
            if proposal.joining is not None:
                leadership.refused = proposal.joining, proposal.broker_epoch
            partition.take_view(was_refused(view, proposal, is_key_changed=False))
        elif outcome is Outcome.KEY_CHANGED:
            partition.take_view(was_refused(view, proposal, is_key_changed=True))


def _without(view: LeaderView, refused: tuple[NodeId, int] | None) -> LeaderView:
    """Return ``view`` without a follower whose registration is gone; nothing else is decided so."""
    if refused is None:
        return view
    node, broker_epoch = refused
    remote = view.remote(node)
    if remote is None or remote.broker_epoch != broker_epoch or node in view.state.isr:
        return view
    return view._replace(remotes=tuple(one for one in view.remotes if one[0] != node))
