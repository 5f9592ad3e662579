"""The metadata store of several hosts: etcd.

Every operation is one request to one member; scans are of several pages of one revision. A commit
is etcd's transaction: the guards are its conditions, and if one fails it returns their keys. A
request that was sent and has no answer may have been carried out: then a commit is Ambiguous, and
anything else is asked again.

An etcd that was restored from a backup is behind what it has said before. This store tells its
holder once, and does nothing more: what the node knows is not what the cluster knows.
Source: cluster design 3.1; etcd's API reference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from math import ceil

from ottla.env.clock import Clock
from ottla.env.tasks import begin_task
from ottla.metadata.etcd import wire
from ottla.metadata.etcd.members import Members, Refused, Unanswered
from ottla.metadata.etcd.revisions import entry_of, etcds, etcds_of_key, ours
from ottla.metadata.etcd.session import EtcdSession
from ottla.metadata.etcd.watching import Watching
from ottla.metadata.store import (
    NO_SESSION,
    Ambiguous,
    ChangeSet,
    Entry,
    Guard,
    GuardFailed,
    OnSessionState,
    Op,
    Put,
    SessionGone,
    SessionState,
    Unavailable,
    check_commit,
    failed_guard,
)

PAGE_KEYS = 500
"""Of a scan, at once; fewer where values are large."""


class EtcdStore:
    """A store that is in etcd. Everything happens on one loop."""

    def __init__(self, members: Members, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._sessions: dict[int, EtcdSession] = {}
        self._watches: dict[Watching, None] = {}
        self._is_closed = False
        self._revision = 0
        """Use: the highest one, etcd's, that an answer has told. Invariant: never falls."""
        self._broken: Unavailable | None = None
        self.on_broken: Callable[[Unavailable], None] = lambda _: None
        """Use: called once, on the loop, when etcd is behind what it has said before."""

    async def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        ranged = await self._range(wire.get(key.encode()))
        return entry_of(ranged.found[0]) if ranged.found else None

    async def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix``, sorted by key, and the revision they are of."""
        while True:
            with suppress(_IsCompacted):
                return await self._scan(prefix.encode())

    async def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> int:
        """Apply ``ops`` if all ``guards`` hold; return the revision, durable on etcd's majority.

        The commit happens even if its caller is cancelled meanwhile.
        """
        check_commit(guards, ops)
        self._check_usable()
        work = self._commit(tuple(guards), tuple(ops))
        return await asyncio.shield(begin_task(work, name="commit to etcd", ended=_committed))

    async def _commit(self, guards: tuple[Guard, ...], ops: tuple[Op, ...]) -> int:
        asked = tuple(dict.fromkeys(guard.key for guard in guards))
        lowest = self._revision
        try:
            answer = await self._members.call("Txn", _transaction(guards, ops, asked))
        except Unanswered as error:
            raise Ambiguous(str(error)) from error
        except Refused as error:
            self._check_usable()
            if error.is_not_found:
                raise SessionGone(_session_of(ops)) from error
            raise Unavailable(f"etcd refuses a commit: {error}") from error
        done = wire.read_transaction(answer)
        self._heard(done.revision, lowest)
        if not done.succeeded:
            raise _guard_failed(guards, asked, done)
        for watching in self._watches:
            watching.told(ours(done.revision))
        return ours(done.revision)

    def watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        """Yield every change set under ``prefix`` from ``from_rev`` on."""
        return self._watch(prefix, from_rev)

    async def session(self, ttl_seconds: float, on_state: OnSessionState) -> EtcdSession:
        """Open a session; its time to live is rounded up to whole seconds.

        etcd gives more if it is less than one and a half of its election timeouts.
        """
        if ttl_seconds <= 0:
            raise ValueError(f"a session needs a time to live above 0, not {ttl_seconds}")
        self._check_usable()
        asked_at = self._clock.monotonic()
        try:
            answer = await self._members.call("LeaseGrant", wire.grant(ceil(ttl_seconds)))
        except Refused as error:
            raise Unavailable(f"etcd refuses a session: {error}") from error
        lease = wire.read_lease(answer)
        if not lease.id or lease.ttl_seconds <= 0:
            raise Unavailable("etcd granted no session")
        self._check_usable()
        session = EtcdSession(
            self._members,
            self._clock,
            lease.id,
            lease.ttl_seconds,
            asked_at=asked_at,
            on_state=on_state,
            forget=self._forget,
        )
        self._sessions[session.id] = session
        on_state(SessionState.CONNECTED)
        return session

    async def close(self) -> None:
        """Close the connections. Watches end with Unavailable. Harmless when closed."""
        if self._is_closed:
            return
        self._is_closed = True
        for session in list(self._sessions.values()):
            session.ended()
        for watching in self._watches:
            watching.close()
        await self._members.close()

    def _forget(self, session: EtcdSession) -> None:
        self._sessions.pop(session.id, None)

    # Reading.

    async def _scan(self, prefix: bytes) -> tuple[list[Entry], int]:
        entries: list[Entry] = []
        start, revision, limit = prefix, 0, PAGE_KEYS
        while True:
            asked = wire.page(prefix, start, limit=limit, revision=revision)
            try:
                ranged = await self._range(asked)
            except _IsTooLarge:
                if limit == 1:
                    raise
                limit = 1 + limit // 4 if limit > 4 else 1
                continue
            entries += map(entry_of, ranged.found)
            revision = revision or ranged.revision
            if not ranged.has_more or not ranged.found:
                return entries, ours(revision)
            start = ranged.found[-1].key + b"\0"
            await asyncio.sleep(0)

    async def _range(self, asked: bytes) -> wire.Ranged:
        self._check_usable()
        lowest = self._revision
        try:
            answer = await self._members.call_again("Range", asked)
        except Refused as error:
            self._check_usable()
            if error.is_out_of_range:
                raise _IsCompacted(str(error)) from error
            if error.is_too_large:
                raise _IsTooLarge(str(error)) from error
            raise Unavailable(f"etcd refuses to be read: {error}") from error
        self._check_usable()
        ranged = wire.read_range(answer)
        self._heard(ranged.revision, lowest)
        return ranged

    async def _watch(self, prefix: str, from_rev: int) -> AsyncIterator[ChangeSet]:
        if from_rev < 1:
            raise ValueError(f"revisions start at 1, not {from_rev}")
        self._check_usable()
        watching = Watching(
            self._members,
            prefix,
            from_rev,
            told=ours(max(self._revision, 1)),
            check=self._check_not_behind,
        )
        self._watches[watching] = None
        try:
            while True:
                for change_set in await watching.next():
                    yield change_set
                await asyncio.sleep(0)
        finally:
            self._watches.pop(watching, None)
            await watching.end()

    # Health.

    def _check_usable(self) -> None:
        if self._is_closed:
            raise Unavailable("the metadata store is closed")
        if self._broken is not None:
            raise Unavailable(str(self._broken))

    async def _check_not_behind(self, seen: int) -> None:
        """Raise Unavailable when etcd, which may be another one by now, is behind what was seen.

        A watch would wait for ever, and sessions may be in a backup, too.
        """
        self._revision = max(self._revision, etcds(seen))
        await self._range(wire.get(b"/"))

    def _heard(self, revision: int, lowest: int) -> None:
        """Note the revision of an answer to what was asked when ``lowest`` had been heard.

        Raises Unavailable when etcd is behind that: such answers are of all that was ever done.
        """
        if revision >= lowest:
            self._revision = max(self._revision, revision)
            return
        why = (
            f"etcd is at revision {revision}, and was at {lowest} before: "
            "it was restored from a backup, or it is another one"
        )
        error = Unavailable(why)
        if self._broken is None:
            self._broken = error
            for watching in self._watches:
                watching.close(why)
            self.on_broken(error)
        raise error


class _IsCompacted(Unavailable):
    """A revision that was asked for is gone."""


class _IsTooLarge(Unavailable):
    """An answer is too large."""


def _committed(task: asyncio.Task[int]) -> None:
    """Look at the outcome: its caller may be gone."""
    if not task.cancelled():
        task.exception()


def _transaction(guards: Sequence[Guard], ops: Sequence[Op], asked: Sequence[str]) -> bytes:
    conditions: list[bytes] = []
    for guard in guards:
        key = guard.key.encode()
        if guard.mod_rev is not None:
            conditions.append(wire.mod_is(key, etcds_of_key(guard.mod_rev)))
        if guard.create_rev is not None:
            conditions.append(wire.create_is(key, etcds_of_key(guard.create_rev)))
    then = [
        wire.op_put(op.key.encode(), op.value, op.session)
        if isinstance(op, Put)
        else wire.op_delete(op.key.encode())
        for op in ops
    ]
    # A transaction that does nothing at all would be answered from what one member knows.
    return wire.transaction(
        conditions,
        then or [wire.op_range(wire.get(b"/"))],
        [wire.op_range(wire.get(key.encode())) for key in asked],
    )


def _session_of(ops: Sequence[Op]) -> int:
    return next((op.session for op in ops if isinstance(op, Put) and op.session), NO_SESSION)


def _guard_failed(
    guards: Sequence[Guard], asked: Sequence[str], done: wire.Transacted
) -> GuardFailed:
    """Return the first guard that failed, by the keys as they were then."""
    found = {
        key: entry_of(ranged.found[0]) if ranged.found else None
        for key, ranged in zip(asked, done.ranges, strict=True)
    }
    for guard in guards:
        if failed_guard(guard, found[guard.key]):
            return GuardFailed(guard, found[guard.key])
    raise AssertionError("etcd found that a guard fails, and none does")
