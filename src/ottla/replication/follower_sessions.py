"""What the followers of this node's partitions have asked for, and when there is news for them.

A follower asks for all partitions that it follows in one fetch session (KIP-227): a request names
only what changed, an answer holds only news. So a round costs what moved, not what there is: each
session has the partitions that are due to be looked at. The others are looked at in turns, about
once per second, since each request says again that the follower still has what it said before.
One session per node: its registration is proven by the broker epoch, which nobody else is told.
Knows neither requests nor bytes of the wire. Below whoever speaks Fetch. Source: KIP-227, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.env.clock import Clock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT32_MAX, INT64_MAX, NodeId, TopicPartition
from ottla.log.segment.cold_read import COLD_READ_BYTES_MAX, ColdRead, cold_read
from ottla.pending import Pending
from ottla.replication.follower_session import Followed, FollowerSession, FollowerSpec, News
from ottla.replication.followers import FollowerAnswer, answer_follower, is_vouched_for
from ottla.replication.gathering import gathers
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partition import Partition

NEWLY_LED_SECONDS = 0.02
"""A follower that has not asked yet for what it should follow is let go on so often: its next
request names that if it has heard of it by then."""
COMPARED_BYTES = 1 << 16
"""What is looked at to find a batch: from an index entry on, some kilobytes as a rule."""
WITH_DATA_MAX = 64
"""Partitions with records in one answer: each is a piece of a file."""
GATHERED_SECONDS = 0.001
"""So long records of which a follower could be told wait for more, at most."""


class _Reading:
    """One answer to a follower while its partitions are looked at, one after the other."""

    __slots__ = ("left_bytes", "may_gather", "put_off", "with_data")

    def __init__(self, left_bytes: int, *, may_gather: bool) -> None:
        self.left_bytes = left_bytes
        self.with_data = 0
        """Partitions of which there are records in it."""
        self.may_gather = may_gather
        """Use: whether it may still leave later: there is no news in it."""
        self.put_off: list[TopicPartition] = []
        """Partitions of which it has no records because more of them are expected."""


class FollowerSessions:
    """The sessions of all followers of this node; at most one per registered node."""

    def __init__(
        self,
        clock: Clock,
        changes: IsrChanges,
        find: Callable[[TopicPartition], Partition],
        random_below: Callable[[int], int],
    ) -> None:
        """``find``: a partition led here; it raises KafkaError."""
        self._clock = clock
        self._changes = changes
        self._find = find
        self._random_below = random_below
        self._sessions: dict[NodeId, FollowerSession] = {}

    # Sessions.

    def begin(self, node: NodeId, broker_epoch: int) -> FollowerSession:
        """Begin a session; the node's former one ends, and so does its wait."""
        self.end(node)
        session_id = 1 + self._random_below(INT32_MAX)
        session = self._sessions[node] = FollowerSession(node, broker_epoch, session_id)
        session.asked_at = self._clock.monotonic()
        return session

    def go_on(
        self, node: NodeId, broker_epoch: int, *, session_id: int, epoch: int
    ) -> FollowerSession:
        """Return the session that a request goes on with. Raises KafkaError."""
        session = self._sessions.get(node)
        if (
            session is None
            or session.session_id != session_id
            or session.broker_epoch != broker_epoch
        ):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        self._stop_waiting(session)
        session.ask_again(self._clock.monotonic())
        return session

    def is_current(self, session: FollowerSession, epoch: int) -> bool:
        """Tell whether nobody has gone on with the session since it was at ``epoch``."""
        return self._sessions.get(session.node) is session and session.epoch == epoch

    def end(self, node: NodeId) -> None:
        """End the session of a node. Harmless without one."""
        session = self._sessions.pop(node, None)
        if session is not None:
            self._stop_waiting(session)

    def stop(self) -> None:
        """End all."""
        for node in list(self._sessions):
            self.end(node)

    # Reading.

    def read(
        self,
        session: FollowerSession,
        max_bytes: int,
        cold: list[ColdRead] | None = None,
        *,
        is_heard: bool = False,
        may_gather: bool = False,
    ) -> Iterator[News | None]:
        """Look at each partition that is due; yield its news, or None: there is nothing to tell.

        What has no room in ``max_bytes`` stays due; so does, with ``cold``, what would wait for the
        device, and is noted there. The first batch of all may exceed ``max_bytes``. ``is_heard``:
        what the request says has been noted before, see ``answer_follower``. ``may_gather``: the
        request can wait, so what is expected to be more soon stays due, unless there is news of
        another partition.
        """
        reading = _Reading(max_bytes, may_gather=may_gather)
        for where in list(session.due):
            yield self._read_one(session, where, reading, cold, is_heard=is_heard)
        if not reading.may_gather:
            for where in reading.put_off:
                yield self._read_one(session, where, reading, cold, is_heard=True)

    def _read_one(
        self,
        session: FollowerSession,
        where: TopicPartition,
        reading: _Reading,
        cold: list[ColdRead] | None,
        *,
        is_heard: bool,
    ) -> News | None:
        session.due.pop(where, None)
        followed = session.partitions.pop(where, None)
        if followed is None:
            return None
        session.partitions[where] = followed  # To the end.
        spec = followed.spec
        has_room = reading.left_bytes > 0 and reading.with_data < WITH_DATA_MAX
        try:
            partition = self._find(where)
            if partition.topic_id != spec.topic_id:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{where} is of another topic")
            if cold is not None:
                if _is_comparison_cold(partition, session.node, spec, cold):
                    _is_cold(partition, spec, cold)  # Both are read ahead.
                    session.due[where] = None
                    return None
                has_room = has_room and not _is_cold(partition, spec, cold)
            found = self._look_at(
                partition, session.node, spec, reading, has_room=has_room, is_heard=is_heard
            )
        except KafkaError as error:
            del session.partitions[where]
            reading.may_gather = False
            return News(spec, error.as_value())
        if found.region is not None:
            reading.left_bytes -= found.region.length_bytes
            reading.with_data += 1
        elif _lacks_records(partition, spec) and (
            # Also a batch that is larger than what is left.
            not has_room or found.is_put_off or (reading.with_data and not found.parts)
        ):
            session.due[where] = None
        return self._news(session, followed, found, reading)

    def _news(
        self, session: FollowerSession, followed: Followed, found: FollowerAnswer, reading: _Reading
    ) -> News | None:
        """Return what is to be told of a partition; what is not told now stays due."""
        where, news = followed.spec.where, followed.news(found)
        if news is not None and not news.is_quiet:
            reading.may_gather = False
            return news
        if found.is_put_off:
            reading.put_off.append(where)
        if news is not None:
            session.due[where] = None
        return news

    def _look_at(
        self,
        partition: Partition,
        node: NodeId,
        spec: FollowerSpec,
        reading: _Reading,
        *,
        has_room: bool,
        is_heard: bool,
    ) -> FollowerAnswer:
        try:
            return answer_follower(
                partition,
                self._changes,
                node,
                spec.asked,
                max_bytes=min(spec.max_bytes, reading.left_bytes, COLD_READ_BYTES_MAX)
                if has_room
                else 0,
                is_first=not reading.with_data,
                is_heard=is_heard,
                is_full=not spec.max_bytes,
                may_gather=reading.may_gather,
            )
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{spec.where}: {error}") from error

    # Waiting.

    def wait(self, session: FollowerSession, seconds: float) -> Pending[None]:
        """Return what is done when there is news, or when the time is over."""
        pending: Pending[None] = Pending()
        session.waiting = pending
        session.is_woken = False
        over = lambda: self._stop_waiting(session)  # noqa: E731 - it is both
        session.timer = self._clock.call_later(seconds, over)
        pending.on_cancel(over, over)
        if session.due:
            self._look_for_more(session)
        if session.unheard:
            self._let_go(session)
        return pending

    def _look_for_more(self, session: FollowerSession) -> None:
        """Do as ``grown`` for all that is due already."""
        for where in session.due:
            followed = session.partitions.get(where)
            if followed is None:
                continue
            if session.is_woken:
                return
            try:
                partition = self._find(where)
            except KafkaError:  # It is not led here any more: that is news.
                self._wake(session)
                return
            if _lacks_records(partition, followed.spec):
                self._tell_of(session, partition)

    def _tell_of(self, session: FollowerSession, partition: Partition, more: int = 0) -> None:
        """End the wait for new records of a partition: soon, if it gathers; see ``grown``."""
        if session.waiting is None or session.is_woken:
            return
        if not gathers(partition, more):
            self._wake(session)
        elif session.gathering is None:
            over = lambda: self._wake(session)  # noqa: E731 - a function's name says less
            session.gathering = self._clock.call_later(GATHERED_SECONDS, over)

    def _stop_waiting(self, session: FollowerSession) -> None:
        for timer in (session.timer, session.gathering, session.let_go_timer):
            if timer is not None:
                timer.cancel()
        session.timer = session.gathering = session.let_go_timer = None
        waiting, session.waiting = session.waiting, None
        if waiting is not None and not waiting.is_cancelled:
            waiting.resolve(None)

    def _wake(self, session: FollowerSession) -> None:
        """End the wait in a later turn: what else is appended in this one goes along."""
        if session.waiting is None or session.is_woken:
            return
        session.is_woken = True
        waiting = session.waiting

        def go_on() -> None:
            if session.waiting is waiting:
                self._stop_waiting(session)

        self._clock.call_later(0, go_on)

    # What happens to partitions.

    def grown(self, partition: Partition) -> None:
        """Take note that a partition that is led here has more records."""
        where = partition.topic_partition
        for session in self._sessions.values():
            followed = session.partitions.get(where)
            if followed is not None:
                session.due[where] = None
                if followed.spec.max_bytes:
                    self._tell_of(session, partition, 1)
            elif session.node in partition.state.replicas:
                session.unheard.setdefault(where, self._clock.monotonic())
                self._let_go(session)

    def synced(self, where: TopicPartition) -> None:
        """Take note that this node has synced all it has of a partition: nothing more gathers."""
        for session in self._sessions.values():
            if session.gathering is not None and where in session.due:
                self._wake(session)

    def moved(self, where: TopicPartition) -> None:
        """Take note that a high watermark moved: it is told with the next answer.

        At once where consumers wait for it.
        """
        for session in self._sessions.values():
            followed = session.partitions.get(where)
            if followed is not None:
                session.due[where] = None
                if followed.spec.high_watermark != INT64_MAX:
                    self._wake(session)

    def start_moved(self, where: TopicPartition) -> None:
        """Take note that the log start offset moved, and somebody waits for followers to follow."""
        for session in self._sessions.values():
            if where in session.partitions:
                session.due[where] = None
                self._wake(session)

    def start_offset_of(self, node: NodeId, partition: Partition) -> int | None:
        """Return where the log of a follower starts; None: it has not said so in this epoch."""
        session = self._sessions.get(node)
        if session is None:
            return None
        followed = session.partitions.get(partition.topic_partition)
        if followed is None:
            return None
        spec = followed.spec
        is_of_now = spec.topic_id == partition.topic_id  # Else of a former topic of its name.
        is_said = is_of_now and spec.asked.leader_epoch == partition.leader_epoch
        return spec.log_start_offset if is_said else None

    def led(self, partition: Partition) -> None:
        """Take note that this node leads a partition anew: its followers will ask for it."""
        where = partition.topic_partition
        for session in self._sessions.values():
            if where in session.partitions:
                session.due[where] = None
                self._wake(session)
            elif session.node in partition.state.replicas:
                session.unheard.pop(where, None)
                session.unheard[where] = self._clock.monotonic()
                self._let_go(session)

    def _let_go(self, session: FollowerSession) -> None:
        """End the wait of a follower that may not have heard yet that it follows something more."""
        now = self._clock.monotonic()
        if not session.has_unheard(now):
            return
        seconds = session.let_go_at + NEWLY_LED_SECONDS - now
        if seconds <= 0:
            self._let_go_now(session)
        elif session.waiting is not None and session.let_go_timer is None:
            now_due = lambda: self._let_go_now(session)  # noqa: E731 - as above
            session.let_go_timer = self._clock.call_later(seconds, now_due)

    def _let_go_now(self, session: FollowerSession) -> None:
        session.let_go_timer = None
        if session.waiting is not None and not session.is_woken:
            session.let_go_at = self._clock.monotonic()
            self._wake(session)


def _lacks_records(partition: Partition, spec: FollowerSpec) -> bool:
    """Tell whether there are records for a follower, and it has space for them."""
    return spec.max_bytes > 0 and spec.asked.fetch_offset < partition.log.log_end_offset


def _is_comparison_cold(
    partition: Partition, node: NodeId, spec: FollowerSpec, cold: list[ColdRead]
) -> bool:
    """Tell whether the batch below the fetch offset, with which its sender is compared, is."""
    log, offset = partition.log, spec.asked.fetch_offset
    if (
        spec.asked.last_fetched_epoch < 0
        or partition.is_held
        or not log.log_start_offset < offset <= log.log_end_offset
        or is_vouched_for(partition, node, spec.asked)
    ):
        return False
    ahead = cold_read(log.segments.holding(offset - 1), offset - 1, COMPARED_BYTES)
    if ahead is not None:
        cold.append(ahead)
    return ahead is not None


def _is_cold(partition: Partition, spec: FollowerSpec, cold: list[ColdRead]) -> bool:
    """Tell whether the records that it asks for are, if there are any."""
    log, offset = partition.log, spec.asked.fetch_offset
    if (
        not spec.max_bytes
        or partition.is_held
        or not log.log_start_offset <= offset < log.log_end_offset
    ):
        return False
    ahead = cold_read(
        log.segments.holding(offset), offset, min(spec.max_bytes, COLD_READ_BYTES_MAX)
    )
    if ahead is not None:
        cold.append(ahead)
    return ahead is not None
