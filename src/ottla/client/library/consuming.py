"""What a consumer does, whoever waits for it: which partitions, from where, and what is committed.

Owns subscription and membership; ``reading`` reads. ``step`` returns records or a change of the
assignment; a change is settled by its caller, so that callbacks run where the caller waits, before
the partitions are given up. On asyncio. Source: KIP-848; Kafka's documentation of group.protocol.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.consumer_member import ConsumerMember
from ottla.client.asyncio.groups import Groups
from ottla.client.asyncio.member import GroupMember
from ottla.client.library.failures import (
    BadArgument,
    ClientClosed,
    ClientError,
    GroupMoved,
    check_names,
    check_offset,
    check_offsets,
    translated,
)
from ottla.client.library.joining import Joining
from ottla.client.library.polls import Polls
from ottla.client.library.reading import Chunk, Reader
from ottla.client.library.settings import ConsumerSettings
from ottla.client.wire.offsets import LATEST
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT64_MAX, TopicPartition

GLANCE_SECONDS = 0.1
"""How often the membership is looked at while there is nothing to read."""


@dataclass(frozen=True, slots=True)
class Change:
    """Partitions that the consumer gets, or gives up, or has lost to others already."""

    kind: str
    """"assigned", "revoked" or "lost"."""
    partitions: tuple[TopicPartition, ...]


class ConsumerCore:
    """One consumer. For use on one loop, but for ``positions``, ``membership`` and ``current``."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.reader = Reader(cluster, settings)
        self.is_closed = False
        self.current: Chunk | None = None
        """Use: the records that the caller is going through."""
        self.given_count = 0
        """Use: how many records the caller got. Written on its thread."""
        self._cluster = cluster
        self._groups = Groups(cluster)
        self._joining = Joining(cluster, self._groups, settings)
        self._clock = SystemClock()
        self._topics: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._member: GroupMember | ConsumerMember | None = None
        self._is_joined = False
        self._is_changed = False
        """Use: whether the member does not know the subscription yet."""
        self._rebalancing: asyncio.Task[Change | None] | None = None
        self._settling: asyncio.Task[None] | None = None
        """Use: a change that the caller has heard of, and gave up to wait for."""
        self._committing: asyncio.Task[None] | None = None
        """Use: an automatic commit under way; a caller that gives up does not end it."""
        self._next_look = 0.0
        self._next_commit = 0.0
        self._committed: dict[TopicPartition, int] = {}
        self._is_stuck = False
        """Use: whether the group was left because the caller stayed away; the caller hears it."""
        self._polls = Polls(
            settings.rebalance_timeout_ms,
            lambda: self.given_count,
            self._leave_as_stuck,
            self._clock,
        )

    # -- what to read ------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], pattern: "str | re.Pattern[str] | None") -> None:
        """Read these topics, and those that ``pattern`` matches, with the group."""
        self.check("subscribe")
        if self.settings.group is None:
            raise BadArgument("subscribe", "the consumer has no group", fix="give it group=...")
        if self.reader.places and self._topics is None:
            raise BadArgument("subscribe", "the consumer has assigned partitions already")
        names = frozenset(check_names("subscribe", topics))
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._topics = names
        self._is_changed = True

    async def assign(self, offsets: Mapping[TopicPartition, int | str | None]) -> None:
        """Read these partitions and no other, without asking the group for them.

        From an offset, "earliest", "latest", or (None) where the group stands.
        """
        self.check("assign")
        if self._topics is not None:
            raise BadArgument("assign", "the consumer has subscribed to topics")
        with translated("assign"):
            starts = await self._joining.starts(offsets)
        self._drop_current()
        self.reader.remove(list(self.reader.places))
        self.reader.add(starts)

    async def seek(self, partition: TopicPartition, to: int | str) -> None:
        """Go on with ``partition`` at an offset, at "earliest" or at "latest"."""
        self._check_assigned("seek", partition)
        if isinstance(to, str):
            with translated("seek"):
                to = (await self._joining.starts({partition: to}))[partition]
        to = check_offset("seek", to)
        self._drop_current()
        self.reader.seek(partition, to)

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on with all partitions at the first records that are as late; else at the end."""
        places = list(self.reader.places)
        self.check("seek")
        if not hasattr(timestamp_ms, "__index__") or not 0 <= timestamp_ms <= INT64_MAX:
            # Below 0 are the protocol's names of places.
            raise BadArgument("seek", f"{timestamp_ms!r} is no whole number of ms since 1970")
        with translated("seek"):
            found = await self._cluster.list_offsets(dict.fromkeys(places, timestamp_ms))
            ends = await self._cluster.list_offsets(dict.fromkeys(places, LATEST))
        self._drop_current()
        for each in places:
            offset = found[each].offset
            self.reader.seek(each, offset if offset >= 0 else ends[each].offset)

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Return nothing of ``partitions``, or go on with them."""
        wanted = list(partitions)
        for each in wanted:
            self._check_assigned("pause", each)
        self._drop_current()
        for each in wanted:
            self.reader.places[each].is_paused = paused
        self.reader.wake()

    def positions(self) -> dict[TopicPartition, int]:
        """Return what comes next, by partition."""
        return {each: place.position for each, place in list(self.reader.places.items())}

    def membership(self) -> tuple[str, int]:
        """Return the id and the generation that commits carry; ("", -1) without a membership.

        Raises GroupMoved after the group was left: a commit without a member might still count.
        """
        if self._is_stuck:
            raise _stuck("commit", self.settings)
        return ("", -1) if self._member is None else self._member.identity

    # -- records and changes -----------------------------------------------------------------------

    async def step(self) -> Chunk | Change:
        """Return the next records, or the next change of the assignment. Waits for them.

        Raises GroupMoved, once, after the caller stayed away for too long.
        """
        with self._polls.waiting():
            return await self._step()

    async def _step(self) -> Chunk | Change:
        while True:
            self.check("read")
            if self._settling is not None:
                await asyncio.shield(self._settling)
                self._settling = None
            if self._is_stuck:
                if self.reader.places:
                    return Change("lost", tuple(sorted(self.reader.places)))
                self._is_stuck = False
                raise _stuck("read", self.settings)
            if self._topics is None and not self.reader.places:
                raise BadArgument("read", "no topic is subscribed, no partition assigned")
            with translated("read"):
                change = None if self._is_settled() else await self._rebalance_shielded()
                if change is not None:
                    return change
                await self._commit_if_due()
            if self.current is not None:  # Its caller was interrupted before it had it.
                return self.current
            self.reader.news.clear()
            chunk = self.reader.take()
            if chunk is not None:
                self.current = chunk
                return chunk
            with suppress(TimeoutError):
                async with asyncio.timeout(GLANCE_SECONDS):
                    await self.reader.news.wait()

    async def settle(self, change: Change) -> None:
        """Do what a change asks for, after the caller has heard of it.

        A caller that gives up does not end it: the next step waits for it again, and the change is
        not told twice.
        """
        if change.kind == "assigned":
            return
        self._settling = asyncio.get_running_loop().create_task(self._settle(change))
        await asyncio.shield(self._settling)
        self._settling = None

    async def _settle(self, change: Change) -> None:
        self._drop_current()
        if change.kind == "revoked" and self.settings.auto_commit:
            done = {
                each: self.reader.places[each].done
                for each in change.partitions
                if each in self.reader.places
            }
            with suppress(ClientError):  # Whoever gets the partitions reads a little twice.
                await self._commit(_fresh(self._committed, done))
        self.reader.remove(change.partitions)
        for each in change.partitions:
            self._committed.pop(each, None)
        if isinstance(self._member, ConsumerMember) and change.kind == "revoked":
            await self._member.hold(self.reader.places)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit ``offsets``; None: how far the caller has read. Raises GroupMoved."""
        self.check("commit")
        if self.settings.group is None:
            raise BadArgument("commit", "the consumer has no group", fix="give it group=...")
        wanted = self.positions() if offsets is None else check_offsets("commit", offsets)
        await self._commit(wanted)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets; partitions without one are absent.

        Waits while a transaction with some of them is open, or its end is under way: whoever goes
        back to the offsets from before would do again what is done.
        """
        self.check("ask for committed offsets")
        wanted = list(self.reader.places) if partitions is None else list(partitions)
        with translated("ask for committed offsets"):
            found = await self._groups.committed(self.settings.group or "", wanted, stable=True)
        return {each: one.offset for each, one in found.items()}

    def abandon(self) -> "list[asyncio.Task[None]]":
        """Let the tasks end, and return them."""
        self.is_closed = True
        for task in (self._rebalancing, self._settling, self._committing):
            if task is not None:
                task.cancel()
        left = self.reader.abandon() + self._polls.stop()
        return left + (self._member.abandon() if self._member is not None else [])

    async def close(self, *, clean: bool = True) -> None:
        """Commit (with auto commit), leave the group, end the tasks. Harmless when closed.

        ``clean``: what the caller got last counts as done.
        """
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if self.settings.auto_commit and self.settings.group is not None:
                places = self.reader.places.items()
                read = {each: one.position if clean else one.done for each, one in places}
                with suppress(ClientError):
                    await self._commit(_fresh(self._committed, read))
            if self._member is not None:
                await self._member.leave()
        finally:
            await asyncio.gather(*self.abandon(), return_exceptions=True)
            self._cluster.close()

    # -- the inside --------------------------------------------------------------------------------

    def check(self, what: str) -> None:
        """Raise ClientClosed when it is."""
        if self.is_closed:
            raise ClientClosed(what, "the consumer is closed")

    def _check_assigned(self, what: str, partition: TopicPartition) -> None:
        self.check(what)
        if partition not in self.reader.places:
            names = ", ".join(map(str, sorted(self.reader.places))) or "none"
            raise BadArgument(what, f"{partition} is not assigned here; these are: {names}")

    def _drop_current(self) -> None:
        """Take back what the caller has not got to yet: it is read again."""
        chunk, self.current = self.current, None
        if chunk is not None and chunk.partition in self.reader.places:
            place = self.reader.places[chunk.partition]
            done = place.done
            self.reader.seek(chunk.partition, place.position)
            place.done = done

    async def glance(self) -> bool:
        """Make further records the current ones, if there are any at once; tell whether."""
        if self.current is None and not self.is_closed and self._is_settled():
            self.current = self.reader.glance()
        return self.current is not None

    def _is_settled(self) -> bool:
        """Whether the assignment stays as it is."""
        if self._settling is not None:
            return False
        if self._topics is None:
            return True
        member = self._member
        if self._is_changed or member is None or not self._is_joined or member.must_join.is_set():
            return False
        return self._pattern is None or self._clock.monotonic() < self._next_look

    async def _rebalance_shielded(self) -> Change | None:
        """Rebalance; a caller that gives up does not end it: the next step waits for it again."""
        if self._rebalancing is None:
            self._rebalancing = asyncio.get_running_loop().create_task(self._rebalance())
        task = self._rebalancing
        try:
            return await asyncio.shield(task)
        finally:
            if task.done():
                self._rebalancing = None

    async def _rebalance(self) -> Change | None:
        now = self._clock.monotonic()
        is_due = self._pattern is not None and now >= self._next_look
        if self._is_changed or is_due or self._member is None:
            self._is_changed = False
            try:
                names = self._topics or frozenset()
                await self._subscribe_member(await self._joining.matching(names, self._pattern))
            except BaseException:
                self._is_changed = True  # The member has not heard of it.
                raise
            self._next_look = now + self.settings.topics_refresh_ms / 1000
        if isinstance(self._member, ConsumerMember):
            return await self._reconcile(self._member)
        assert self._member is not None, "subscribed"
        return await self._rejoin(self._member)

    async def _rejoin(self, member: GroupMember) -> Change | None:
        """Give everything up and join again, when the group has changed (classic protocol)."""
        if self._is_joined and not member.must_join.is_set():
            return None
        if self.reader.places:
            return Change("revoked", tuple(sorted(self.reader.places)))
        self._is_joined = False
        change = await self._begin_at(await member.join())
        self._is_joined = True  # Not before: else partitions without a beginning are never read.
        return change

    async def _reconcile(self, member: ConsumerMember) -> Change | None:
        """Give up what others are to have, take what is free (KIP-848)."""
        if member.error is not None:
            raise member.error
        if member.is_lost:
            if self.reader.places:
                return Change("lost", tuple(sorted(self.reader.places)))
            await member.join()
        if not member.must_join.is_set():
            return None
        target, held = member.target, set(self.reader.places)
        gone = held - target
        if gone:
            return Change("revoked", tuple(sorted(gone)))
        new = target - held
        change = await self._begin_at(sorted(new)) if new else None
        await member.hold(self.reader.places)
        return change

    async def _begin_at(self, partitions: Iterable[TopicPartition]) -> Change:
        wanted = tuple(sorted(partitions))
        self.reader.add(await self._joining.starts(dict.fromkeys(wanted)))
        return Change("assigned", wanted)

    async def _leave_as_stuck(self) -> None:
        """Leave the group: others go on with the partitions, as when the process had ended."""
        member, self._member = self._member, None
        if member is None or self.is_closed:
            return
        self._is_stuck = self._is_changed = True
        self._is_joined = False
        self.current = None  # What the caller has not got of it is others' now.
        if self._rebalancing is not None:
            self._rebalancing.cancel()
            self._rebalancing = None
        await member.leave()

    async def _subscribe_member(self, topics: frozenset[str]) -> None:
        if isinstance(self._member, GroupMember):
            self._member.subscribe(topics)
        elif self._member is not None:
            await self._member.subscribe(topics)
        else:
            self._member = await self._joining.member(topics)
            self._is_joined = isinstance(self._member, ConsumerMember)
            self._polls.start()

    async def _commit_if_due(self) -> None:
        """Commit what is done; a caller that gives up does not end it: the next step waits."""
        if self._committing is None:
            if not self.settings.auto_commit or self.settings.group is None:
                return
            now, interval = self._clock.monotonic(), self.settings.auto_commit_interval_ms / 1000
            if self._next_commit == 0.0:
                self._next_commit = now + interval
            if now < self._next_commit:
                return
            self._next_commit = now + interval
            done = {each: place.done for each, place in self.reader.places.items()}
            work = self._commit(_fresh(self._committed, done))
            self._committing = asyncio.get_running_loop().create_task(work)
        committing = self._committing
        try:
            with suppress(GroupMoved):
                await asyncio.shield(committing)
        finally:
            if committing.done():
                self._committing = None

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        if not offsets:
            return
        group = self.settings.group or ""
        with translated(f"commit offsets of group {group}"):
            for left in range(3, -1, -1):
                member_id, generation = self.membership()
                try:
                    await self._groups.commit(
                        group, offsets, generation=generation, member_id=member_id
                    )
                    break
                except KafkaError as error:
                    if error.code is not ErrorCode.STALE_MEMBER_EPOCH or not left:
                        raise
                    await asyncio.sleep(GLANCE_SECONDS)  # The next heartbeat brings the epoch.
        self._committed.update(offsets)


def _stuck(what: str, settings: ConsumerSettings) -> GroupMoved:
    interval = settings.rebalance_timeout_ms
    why = f"no record was asked for within {interval} ms, so the consumer has left the group"
    fix = "work faster, ask for fewer records, or raise max_poll_interval_ms; go on reading"
    return GroupMoved(what, why, fix=fix)


def _fresh(
    committed: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Leave out what is committed already."""
    return {each: at for each, at in offsets.items() if committed.get(each) != at}
