"""Whether a leader of several replicas may take itself for the one that the others know.

A process that stood still, or is cut off from the metadata, may have been replaced without knowing.
It acknowledges no record to ``acks=all`` then: that needs fetches of everybody who may be elected.
Records of ``acks=0`` and ``acks=1`` it takes while its registration exists for certain, because
nobody else is elected before it ends. After that it takes them only while everybody who may be
elected follows it in this leader epoch, and has done so since: also who is to join the ISR, as long
as it is not known whether it has.

A fetch that is read now may have been sent long ago, before this process stood still. But it was
sent after the answer to the one before. So a fetch proves that its sender followed when that one
was answered, and nothing later. What must not be told when another node leads already (a committed
offset) waits for fetches that prove it for a time after the question. Knows no store. Source:
cluster design 3.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.clock import Clock, Timer
from ottla.ids import LeaderEpoch, NodeId, TopicPartition
from ottla.pending import Pending

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

RECENT_SECONDS = 3.0
"""How old the last sign may be. A leader looks at each partition of a follower once per second."""
CONFIRMED_SECONDS = 5.0
"""How long is waited for fetches that confirm it: two of each partition, and a round or so."""
PREPARED_SECONDS = 2.0
"""Signs are noted from so long before the registration becomes uncertain."""


class _Sign(NamedTuple):
    epoch: LeaderEpoch
    heard_at: float
    """When the newest fetch was read."""
    followed_at: float
    """When its sender followed for certain."""


class _Question(NamedTuple):
    partition: Partition
    epoch: LeaderEpoch
    asked_at: float
    timer: Timer
    answer: Pending[bool]


class Standing:
    """The one of this process."""

    def __init__(
        self,
        clock: Clock,
        certain_until: Callable[[], float],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """``certain_until``: until when this node is registered for certain, by ``clock``.

        And until when it would have heard of another leader. ``stop``: ends what finds that out.
        """
        self._stop = stop
        self._clock = clock
        self._certain_until = certain_until
        self._signs: dict[tuple[TopicPartition, NodeId], _Sign] = {}
        """Invariant: empty while the registration is certain for long."""
        self._questions: dict[TopicPartition, list[_Question]] = {}
        """Use: what waits for fetches. Invariant: no list is empty; in the order of asking."""

    def stop(self) -> None:
        """Ask no more, and confirm nothing more."""
        self._stop()
        for question in self._all_questions():
            self._end(question, is_confirmed=False)

    def fetched(self, partition: Partition, node: NodeId) -> None:
        """Note that a fetch of a follower, in the present leader epoch, was read."""
        now = self._clock.monotonic()
        if now < self._certain_until() - PREPARED_SECONDS:
            if self._signs:
                self._signs.clear()
            for question in self._all_questions():  # It is certain again: nobody was elected.
                self._end(question, is_confirmed=_leads_yet(question))
            return
        key, epoch = (partition.topic_partition, node), partition.leader_epoch
        before = self._signs.get(key)
        is_known = before is not None and before.epoch == epoch
        followed_at = before.heard_at if before is not None and is_known else float("-inf")
        self._signs[key] = _Sign(epoch, now, followed_at)
        for question in list(self._questions.get(partition.topic_partition, ())):
            if question.partition is partition and self._is_answered(question):
                self._end(question, is_confirmed=_leads_yet(question))

    def may_take(self, partition: Partition) -> bool:
        """Whether records may be taken that nobody else has to have."""
        now, certain_until = self._clock.monotonic(), self._certain_until()
        if now <= certain_until:
            return True
        return self._followed_since(partition, max(certain_until, now - RECENT_SECONDS))

    def confirm(self, partition: Partition) -> Pending[bool]:
        """Return whether nobody else led when this was asked, as soon as that is known.

        At once while the registration is certain, or nobody else may be elected; else once
        everybody who may be has followed since. False when they did not within
        ``CONFIRMED_SECONDS``.
        """
        now = self._clock.monotonic()
        answer: Pending[bool] = Pending()
        if now <= self._certain_until() or self._followed_since(partition, now):
            answer.resolve(True)
            return answer

        def end() -> None:
            self._end(question, is_confirmed=False)

        timer = self._clock.call_later(CONFIRMED_SECONDS, end)
        question = _Question(partition, partition.leader_epoch, now, timer, answer)
        self._questions.setdefault(partition.topic_partition, []).append(question)
        answer.on_cancel(end)
        return answer

    def _is_answered(self, question: _Question) -> bool:
        return not _leads_yet(question) or self._followed_since(
            question.partition, question.asked_at
        )

    def _all_questions(self) -> list[_Question]:
        return [question for asked in self._questions.values() for question in asked]

    def _end(self, question: _Question, *, is_confirmed: bool) -> None:
        if question.answer.is_done:  # Another answer ended it: its connection has gone.
            return
        where = question.partition.topic_partition
        asked = self._questions[where]
        asked.remove(question)
        if not asked:
            del self._questions[where]
        question.timer.cancel()
        question.answer.resolve(is_confirmed)

    def _followed_since(self, partition: Partition, since: float) -> bool:
        state, view = partition.state, partition.view
        may_be_elected = (*state.isr, *state.elr)
        if view is not None and view.proposal is not None:  # It may have been committed.
            may_be_elected += view.proposal.state.isr
        for node in may_be_elected:
            if node == state.leader:
                continue
            sign = self._signs.get((partition.topic_partition, node))
            if sign is None or sign.epoch != state.leader_epoch or sign.followed_at < since:
                return False
        return True


def _leads_yet(question: _Question) -> bool:
    return question.partition.leader_epoch == question.epoch
