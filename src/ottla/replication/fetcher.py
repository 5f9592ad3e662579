"""Fetches all partitions that follow one leader: one request at a time, one session, one wait.

Owns what the session has been told, and when a partition that failed is tried again. ``following``
decides and does what one partition needs; the next request leaves when all that the last answer
brought is synced, the syncs of all partitions side by side. Memory: one answer, whose size the
request bounds. Knows no connection: ``ask`` sends a request to the leader, and may fail.
Source: KIP-227; Kafka's AbstractFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.client.wire.errors import error_code
from ottla.env.clock import Clock, Timer
from ottla.env.tasks import begin_task
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import INT32_MAX, INT64_MAX, NodeId, TopicId, TopicPartition
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.replication.follower import Asked
from ottla.replication.following import Following, fetched

logger = logging.getLogger(__name__)

BACKOFF_SECONDS_MIN = 0.05
"""After the first failure of a partition, or of a connection; twice as long after each further."""
NOT_SYNCED_SECONDS = 0.02
"""How soon it is looked again whether a partition can ask: what it wrote as leader is synced."""
READ_SECONDS = 5.0
"""For so long after a consumer has waited here the leader is asked to tell at once that the high
watermark has moved: the next wait is near."""
NAMED_MAX = 500
"""Partitions that one request names: the others follow with the next ones. Each takes some 20
microseconds of the loop's turn."""
HANGS_SECONDS = 1.0
"""So long the others wait for a partition whose disk does not end what an answer asks of it. Then
they go on without it, until it has."""
TAKEN_PER_TURN = 100
"""Parts of an answer that are taken in one turn of the loop. Not fewer than there may be with
records (``follower_sessions.WITH_DATA_MAX``): their syncs go side by side."""
_QUIET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""One of both nodes has not heard yet what the other one has."""

Key = tuple[TopicId, int]
"""A partition, as a session knows it."""


class AskLeader(Protocol):
    """The port to other nodes."""

    async def fetch(self, node: NodeId, request: FetchRequest) -> FetchResponse:
        """Send a request and return its answer. Raises OttlaError: there is none."""


class FetcherSettings(NamedTuple):
    """Kafka's ``replica.fetch`` options."""

    wait_max_ms: int
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    """The longest pause after a failure."""


class Registered(Protocol):
    """Who this node is."""

    @property
    def node_id(self) -> NodeId:
        """Its id."""

    @property
    def broker_epoch(self) -> int:
        """Its registration, as it knows it."""


class _Member:
    """One partition that follows."""

    __slots__ = ("asked", "following", "is_busy", "pause_seconds", "read_at", "timer")

    def __init__(self, following: Following) -> None:
        self.following = following
        self.asked: Asked | None = None
        """What the session holds of it. None: nothing."""
        self.is_busy = False
        """Use: an answer is being taken. Its end makes the partition due."""
        self.pause_seconds = 0.0
        """Use: after its last failure; 0: all is well."""
        self.timer: Timer | None = None
        """Use: until then it asks for nothing."""
        self.read_at = -READ_SECONDS
        """Use: see READ_SECONDS; by the clock."""


class Fetcher:
    """The fetches from one leader. ``stop`` it when nothing follows there any more."""

    def __init__(
        self,
        leader: NodeId,
        me: Registered,
        leaders: AskLeader,
        settings: FetcherSettings,
        clock: Clock,
        *,
        is_waited_for: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Begin; on the running loop. ``is_waited_for`` tells whether consumers wait here."""
        self._is_waited_for = is_waited_for
        self._leader = leader
        self._me = me
        self._leaders = leaders
        self._settings = settings
        self._clock = clock
        self._members: dict[Key, _Member] = {}
        self._due: dict[Key, None] = {}
        """Those that the next requests name. Invariant: members without a timer."""
        self._forgotten: dict[Key, None] = {}
        """Those that the session has to forget."""
        self._full: dict[Key, None] = {}
        """Those of which no records are asked for. Use: looked at with each request."""
        self._session_id = 0
        self._session_epoch = 0
        self._registration = -1
        """Use: the one that the session belongs to."""
        self._pause_seconds = 0.0
        """Use: after the last failure of a request; 0: all is well."""
        self._is_stopped = False
        self._is_asking = False
        """Use: whether it waits for an answer; ``stop`` ends that wait, too."""
        self._rest: asyncio.Future[None] | None = None
        """Use: a wait for a time, or for something to do, that ``stop`` ends."""
        self._idle: asyncio.Future[None] | None = None
        """Use: the last wait for a time, or for something to do."""
        self._is_idle = False
        """Use: whether a new partition ends the wait, too."""
        self._takes_since: float | None = None
        """Use: when it began to take an answer, by the clock. None: it takes none."""
        self._left: dict[asyncio.Task[None], None] = {}
        """Use: former runs, each of which ends with the answer that it takes."""
        self._look_timer = clock.call_later(HANGS_SECONDS, self._look)
        self._number = 0
        """Use: of the run that asks."""
        self._task = self._begin_run()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, following: Following) -> None:
        """Follow a partition, or look at it again: its leader epoch has changed."""
        key = _key(following)
        member = self._members.get(key)
        if member is None or member.following is not following:
            self.remove(following)
            member = self._members[key] = _Member(following)
        member.pause_seconds = 0.0
        self._make_due(key, member)

    def remove(self, following: Following) -> None:
        """Follow a partition no more. Harmless when it is not followed."""
        key = _key(following)
        member = self._members.pop(key, None)
        if member is not None:
            self._stop_timer(member)
            self._due.pop(key, None)
            self._forget(key, member)

    async def stop(self) -> None:
        """End; what is being done with an answer comes to its end first."""
        self._is_stopped = True
        self._look_timer.cancel()
        for member in self._members.values():
            self._stop_timer(member)
        if self._rest is not None:
            self._rest.cancel()
        elif self._is_asking:
            self._task.cancel()
        await asyncio.gather(self._task, *self._left, return_exceptions=True)

    # The loop.

    def _begin_run(self) -> asyncio.Task[None]:
        self._number += 1
        name = f"fetch from node {self._leader}"
        return begin_task(self._run(self._number), name=name, ended=self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._left.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a fetcher ended", exc_info=error)

    def _look(self) -> None:
        """Go on with the others if one partition takes too long; they are asked for anew."""
        now = self._clock.monotonic()
        self._look_timer = self._clock.call_later(HANGS_SECONDS, self._look)
        if self._takes_since is not None and now - self._takes_since >= HANGS_SECONDS:
            self._takes_since = None
            self._left[self._task] = None
            self._begin_session()
            self._task = self._begin_run()

    async def _run(self, number: int) -> None:
        while not self._is_stopped:
            request = self._request()
            if request is None:
                self._is_idle = True
                await self._wait(None)
                self._is_idle = False
                continue
            response = await self._ask(request)
            if response is None or self._is_stopped:
                continue
            if response.error_code:
                await self._refused(error_code(response.error_code))
                continue
            self._pause_seconds = 0.0
            self._takes_since = self._clock.monotonic()
            await self._take(response, number)
            if self._number != number:
                return  # Another run asks by now.
            self._takes_since = None
            self._go_on(response.session_id)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until ``seconds`` have passed (None: until somebody wakes it), or for the stop."""
        rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = self._idle = rest
        timer = None
        if seconds is not None:
            timer = self._clock.call_later(seconds, self._wake)
        try:
            await rest
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        finally:
            if timer is not None:
                timer.cancel()
            self._rest = None

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _ask(self, request: FetchRequest) -> FetchResponse | None:
        """Return the answer; None: there is none, and the session begins anew."""
        self._is_asking = True
        try:
            return await self._leaders.fetch(self._leader, request)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
            return None
        except OttlaError as error:
            logger.info("no fetch from node %d: %s", self._leader, error)
        finally:
            self._is_asking = False
        await self._failed()
        return None

    async def _refused(self, code: ErrorCode) -> None:
        """Begin a new session; at once, if it was the session that is not known any more."""
        had_session = self._session_epoch > 0
        if had_session:
            self._begin_session()
            return
        logger.warning("node %d refuses to be followed: %s", self._leader, code.name)
        await self._failed()

    async def _failed(self) -> None:
        self._begin_session()
        longest = self._settings.backoff_ms / 1000
        self._pause_seconds = min(max(2 * self._pause_seconds, BACKOFF_SECONDS_MIN), longest)
        if not self._is_stopped:
            await self._wait(self._pause_seconds)

    def _begin_session(self) -> None:
        """Name all partitions in the next requests: the leader knows none any more."""
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        for key, member in self._members.items():
            member.asked = None
            if member.timer is None:
                self._due[key] = None

    def _go_on(self, session_id: int) -> None:
        """Go on with the session of an answer that was taken; 0: the leader keeps none."""
        self._session_id = session_id
        if session_id:
            epoch = self._session_epoch
            self._session_epoch = 1 if epoch == INT32_MAX else epoch + 1
        else:
            self._begin_session()

    # Requests.

    def _request(self) -> FetchRequest | None:
        """Return what to ask now; None: nothing is followed, or nothing of it can ask yet."""
        broker_epoch = self._me.broker_epoch
        if broker_epoch != self._registration:
            self._registration = broker_epoch
            self._begin_session()
        for key in [key for key in self._full if not self._is_full(key)]:
            del self._full[key]
            if key in self._members and self._members[key].timer is None:
                self._due[key] = None
        topics: dict[TopicId, FetchTopic] = {}
        for key in list(self._due)[:NAMED_MAX]:
            del self._due[key]
            part = self._named(key, self._members[key])
            if part is not None:
                topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0], partitions=[]))
                topic.partitions.append(part)
        if not topics and not any(member.asked for member in self._members.values()):
            return None
        forgotten: dict[TopicId, ForgottenTopic] = {}
        for topic_id, index in self._forgotten if self._session_epoch else ():
            gone = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[]))
            gone.partitions.append(index)
        self._forgotten.clear()
        settings = self._settings
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._me.node_id, replica_epoch=broker_epoch),
            max_wait_ms=0 if self._due else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _is_full(self, key: Key) -> bool:
        member = self._members.get(key)
        return member is not None and member.following.is_full

    def _named(self, key: Key, member: _Member) -> FetchPartition | None:
        if member.is_busy:
            self._forget(key, member)
            return None
        following = member.following
        asked = following.next_request()
        if asked is None:
            self._not_yet(key, member)
            return None
        member.asked = asked
        self._forgotten.pop(key, None)
        max_bytes = self._settings.partition_max_bytes
        if following.is_full:
            self._full[key], max_bytes = None, 0
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.fetch_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=following.partition.log.log_start_offset,
            partition_max_bytes=max_bytes,
            high_watermark=self._told_at_once_above(member),
        )

    def _told_at_once_above(self, member: _Member) -> int:
        """Return the high watermark of a partition that consumers read here; else one above all."""
        partition, now = member.following.partition, self._clock.monotonic()
        if self._is_waited_for(partition.topic_partition):
            member.read_at = now
        return partition.high_watermark if now - member.read_at < READ_SECONDS else INT64_MAX

    def _not_yet(self, key: Key, member: _Member) -> None:
        """Look again soon at a partition that is not all synced, or held, or out of service."""
        self._forget(key, member)
        partition = member.following.partition
        seconds = NOT_SYNCED_SECONDS
        if not partition.log.is_in_service:
            seconds = self._settings.backoff_ms / 1000
        elif not partition.is_held:
            partition.flush()
        self._let_rest(key, member, seconds)

    def _forget(self, key: Key, member: _Member) -> None:
        if member.asked is not None:
            member.asked = None
            self._forgotten[key] = None

    def _make_due(self, key: Key, member: _Member) -> None:
        self._stop_timer(member)
        self._due[key] = None
        if self._is_idle:
            self._wake()

    def _let_rest(self, key: Key, member: _Member, seconds: float) -> None:
        self._stop_timer(member)

        def over() -> None:
            member.timer = None
            if self._members.get(key) is member:
                self._make_due(key, member)

        member.timer = self._clock.call_later(seconds, over)

    def _stop_timer(self, member: _Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    # Answers.

    async def _take(self, response: FetchResponse, number: int) -> None:
        """Take all parts that have to wait side by side, so that their syncs are one wait.

        What is left when another run than ``number`` asks is dropped: it was asked for anew.
        """
        waiting: list[tuple[Key, PartitionData]] = []
        count = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                if data.records or data.diverging_epoch or data.error_code:
                    waiting.append((key, data))
                    continue
                await self._take_part(key, data)
                count += 1
                if not count % TAKEN_PER_TURN:
                    await asyncio.sleep(0)
                    if self._number != number:
                        return
        for first in range(0, len(waiting), TAKEN_PER_TURN):
            if self._number != number:
                return
            some = waiting[first : first + TAKEN_PER_TURN]
            if len(some) == 1:
                await self._take_part(*some[0])
            else:
                await asyncio.gather(*(self._take_part(key, data) for key, data in some))

    async def _take_part(self, key: Key, data: PartitionData) -> None:
        member = self._members.get(key)
        asked = None if member is None else member.asked
        if member is None or asked is None:
            return
        where = member.following.partition.topic_partition
        member.is_busy = True
        try:
            await member.following.take(asked, fetched(data, asked))
        except KafkaError as error:
            is_followed = self._members.get(key) is member
            if is_followed and error.code not in _QUIET:
                logger.warning("%s does not follow node %d: %s", where, self._leader, error)
            if is_followed and not self._is_stopped:
                self._forget(key, member)
                longest = self._settings.backoff_ms / 1000
                seconds = max(2 * member.pause_seconds, BACKOFF_SECONDS_MIN)
                member.pause_seconds = min(seconds, longest)
                self._due.pop(key, None)
                self._let_rest(key, member, member.pause_seconds)
            return
        except Exception as fault:
            # It takes this partition, and not the others that follow the same leader.
            logger.exception("%s cannot go on following node %d", where, self._leader)
            member.following.partition.log.end_by_fault(fault)
            self._forget(key, member)
            return
        finally:
            member.is_busy = False
        member.pause_seconds = 0.0
        if self._members.get(key) is member and member.timer is None:
            self._make_due(key, member)


def _key(following: Following) -> Key:
    partition = following.partition
    return partition.topic_id, partition.topic_partition.partition
