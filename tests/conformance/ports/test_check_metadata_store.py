"""What every metadata store promises: in memory, in SQLite, both from afar, and in etcd.

From afar: over a real pair of sockets, and over a network in memory. etcd keeps all of its history
until it is told to forget, and runs by its own clock: what follows from that is in
``tests/conformance/etcd``.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from ottla.env.channel import channel, open_channel
from ottla.env.clock import ManualClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_net import MemoryNet
from ottla.env.real_disk import RealDisk
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.remote.server import StoreServer
from ottla.metadata.remote.store import RemoteStore
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import (
    COMMIT_BYTES_MAX,
    CONDITIONS_MAX,
    KEY_BYTES_MAX,
    OPS_MAX,
    VALUE_BYTES_MAX,
    Change,
    ChangeSet,
    Compacted,
    Delete,
    Entry,
    Guard,
    GuardFailed,
    Put,
    SessionGone,
    SessionState,
    Unavailable,
)
from tests.etcd_server import Etcd, needs_etcd, open_store, until

HISTORY_REVISIONS = 20
HISTORY_BYTES = 1024 * 1024


@pytest.fixture
def clock():
    return ManualClock()


LOCAL = ["memory", "sqlite", "memory over memory", "sqlite over a socket pair"]


@pytest.fixture(params=[*LOCAL, pytest.param("etcd", marks=needs_etcd)])
async def store(request, clock, tmp_path):
    own, _, way = request.param.partition(" over ")
    if own == "etcd":
        if request.node.get_closest_marker("local_store"):
            pytest.skip("etcd keeps its history until it is told to forget it")
        async with in_etcd(clock, tmp_path) as store:
            yield store
        return
    opened = in_memory(clock) if own == "memory" else in_sqlite(clock, tmp_path)
    async with opened as store:
        if not way:
            yield store
            return
        server, remote = StoreServer(store, clock), RemoteStore(clock)
        await (by_memory if way == "memory" else by_sockets)(server, remote)
        yield remote
        await remote.close()


@asynccontextmanager
async def in_memory(clock):
    store = MemoryStore(clock, history_revisions=HISTORY_REVISIONS, history_bytes=HISTORY_BYTES)
    yield store
    await store.close()


@asynccontextmanager
async def in_sqlite(clock, tmp_path):
    executor = ThreadExecutor(1, "metadata")
    store = await SqliteStore.open(
        str(tmp_path / "metadata.db"),
        disk=RealDisk(),
        clock=clock,
        executor=executor,
        history_revisions=HISTORY_REVISIONS,
        history_bytes=HISTORY_BYTES,
    )
    yield store
    await store.close()
    executor.close()


@asynccontextmanager
async def in_etcd(clock, tmp_path):
    etcd = Etcd(tmp_path / "etcd").start()
    try:
        store = open_store(etcd, clock)
        yield store
        await store.close()
    finally:
        etcd.kill()


async def by_memory(server, remote):
    net = MemoryNet()
    listening = await net.listen(lambda: server.link, host="localhost", port=0, backlog=1)
    await net.connect(lambda: remote.link, host="localhost", port=listening.address[1])
    await asyncio.sleep(0)
    assert server.link.is_open
    await listening.close()


async def by_sockets(server, remote):
    ours, theirs = channel()
    await open_channel(lambda: server.link, ours)
    await open_channel(lambda: remote.link, theirs)


async def take(watch, count):
    """Return the next ``count`` change sets that have changes."""
    change_sets = []
    async with asyncio.timeout(5):
        async for change_set in watch:
            if change_set.changes:
                change_sets.append(change_set)
            if len(change_sets) == count:
                break
    await watch.aclose()
    return change_sets


async def test_an_empty_store_is_at_revision_zero(store):
    assert await store.scan("") == ([], 0)
    assert await store.get("a") is None


async def test_a_put_is_read_back_with_its_revisions(store):
    assert await store.commit([], [Put("a", b"1")]) == 1
    assert await store.get("a") == Entry("a", b"1", create_rev=1, mod_rev=1)
    assert await store.commit([], [Put("a", b"2"), Put("b", b"")]) == 2
    assert await store.get("a") == Entry("a", b"2", create_rev=1, mod_rev=2)
    assert await store.get("b") == Entry("b", b"", create_rev=2, mod_rev=2)


async def test_a_key_made_again_has_a_new_create_revision(store):
    await store.commit([], [Put("a", b"1")])
    await store.commit([], [Delete("a")])
    assert await store.get("a") is None
    await store.commit([], [Put("a", b"2")])
    assert await store.get("a") == Entry("a", b"2", create_rev=3, mod_rev=3)


async def test_a_commit_that_changes_nothing_has_no_revision(store):
    await store.commit([], [Put("a", b"1")])
    assert await store.commit([], []) == 1
    assert await store.commit([Guard("a", mod_rev=1)], [Delete("nothing")]) == 1
    with pytest.raises(GuardFailed):
        await store.commit([Guard("a", mod_rev=9)], [])
    assert await store.commit([], [Put("a", b"1")]) == 2, "the same value again is a change"


async def test_scans_are_sorted_and_of_one_prefix(store):
    await store.commit([], [Put(key, b"") for key in ("b/2", "a/1", "b/10", "c", "b", "b/1", "b0")])
    entries, revision = await store.scan("b/")
    assert [entry.key for entry in entries] == ["b/1", "b/10", "b/2"]
    assert revision == 1
    assert len((await store.scan(""))[0]) == 7
    assert (await store.scan("d"))[0] == []


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        (Guard("a", mod_rev=2), True),
        (Guard("a", mod_rev=1), False),
        (Guard("a", mod_rev=0), False),
        (Guard("a", create_rev=1), True),
        (Guard("a", create_rev=2), False),
        (Guard("a", create_rev=0), False),
        (Guard("a", mod_rev=2, create_rev=1), True),
        (Guard("a", mod_rev=2, create_rev=2), False),
        (Guard("nothing", mod_rev=0), True),
        (Guard("nothing", create_rev=0), True),
        (Guard("nothing", mod_rev=1), False),
        (Guard("gone", mod_rev=0), True),
        (Guard("gone", mod_rev=1), False),
        (Guard("nothing"), True),
    ],
)
async def test_guards(store, guard, holds):
    await store.commit([], [Put("a", b"1"), Put("gone", b"")])
    await store.commit([], [Put("a", b"2"), Delete("gone")])
    if holds:
        assert await store.commit([guard], [Put("done", b"")]) == 3
        return
    with pytest.raises(GuardFailed) as failure:
        await store.commit([guard], [Put("done", b"")])
    assert failure.value.guard == guard
    assert failure.value.found == await store.get(guard.key)
    assert guard.key in str(failure.value)


async def test_a_failed_guard_leaves_everything_as_it_was(store):
    await store.commit([], [Put("a", b"1"), Put("b", b"1")])
    with pytest.raises(GuardFailed):
        await store.commit(
            [Guard("a", mod_rev=1), Guard("b", mod_rev=7)],
            [Put("a", b"2"), Delete("b"), Put("c", b"2")],
        )
    entries, revision = await store.scan("")
    assert [(entry.key, entry.value) for entry in entries] == [("a", b"1"), ("b", b"1")]
    assert revision == 1


async def test_guards_see_the_state_before_the_operations(store):
    assert await store.commit([Guard("a", mod_rev=0)], [Put("a", b"1")]) == 1
    with pytest.raises(GuardFailed):
        await store.commit([Guard("a", mod_rev=0)], [Put("a", b"2")])


async def test_limits(store):
    ops = [Put(f"k/{n:03}", b"") for n in range(OPS_MAX + 1)]
    guards = [Guard(f"g/{n:03}", mod_rev=0) for n in range(CONDITIONS_MAX + 1)]
    with pytest.raises(ValueError, match="120"):
        await store.commit(guards, [])
    with pytest.raises(ValueError, match="120"):
        await store.commit([Guard(each.key, 0, 0) for each in guards[:61]], [])
    assert await store.commit(guards[:CONDITIONS_MAX], []) == 0
    with pytest.raises(ValueError, match="100"):
        await store.commit([], ops)
    assert await store.commit([], ops[:OPS_MAX]) == 1
    with pytest.raises(ValueError, match="one operation per key"):
        await store.commit([], [Put("a", b""), Delete("a")])
    for key in ("", "é", "tab\t", "x" * (KEY_BYTES_MAX + 1)):
        with pytest.raises(ValueError, match="key"):
            await store.commit([], [Put(key, b"")])
    with pytest.raises(ValueError, match="bytes"):
        await store.commit([], [Put("a", bytes(VALUE_BYTES_MAX + 1))])
    assert await store.commit([], [Put("a", bytes(VALUE_BYTES_MAX))]) == 2
    left = COMMIT_BYTES_MAX - VALUE_BYTES_MAX - 3
    guard = Guard("a", mod_rev=2)
    with pytest.raises(ValueError, match="a commit takes at most"):
        await store.commit([guard], [Put("a", bytes(VALUE_BYTES_MAX)), Put("b", bytes(left + 1))])
    ops = [Put("a", bytes(VALUE_BYTES_MAX)), Put("b", bytes(left))]
    assert await store.commit([guard], ops) == 3


async def test_of_many_racers_one_wins_each_round(store):
    await store.commit([], [Put("counter", b"0")])

    async def racer():
        lost = 0
        for _ in range(5):
            while True:
                entry = await store.get("counter")
                await asyncio.sleep(0)
                try:
                    await store.commit(
                        [Guard("counter", entry.mod_rev)],
                        [Put("counter", str(int(entry.value) + 1).encode())],
                    )
                except GuardFailed:
                    lost += 1
                else:
                    break
        return lost

    lost = await asyncio.gather(*(racer() for _ in range(8)))
    assert (await store.get("counter")).value == b"40"
    assert sum(lost) > 0, "nobody raced"


async def test_a_watch_sees_every_commit_whole_and_in_order(store):
    watching = asyncio.create_task(take(store.watch("p/", 1), 3))
    await asyncio.sleep(0)
    await store.commit([], [Put("p/a", b"1"), Put("q", b"x"), Put("p/b", b"2")])
    await store.commit([], [Put("q", b"y")])
    await store.commit([], [Delete("p/b"), Put("p/a", b"3")])
    await store.commit([], [Put("p/c", b"4")])
    assert await watching == [
        ChangeSet(
            1, (Change("p/a", Entry("p/a", b"1", 1, 1)), Change("p/b", Entry("p/b", b"2", 1, 1)))
        ),
        ChangeSet(3, (Change("p/b", None), Change("p/a", Entry("p/a", b"3", 1, 3)))),
        ChangeSet(4, (Change("p/c", Entry("p/c", b"4", 4, 4)),)),
    ]


async def test_a_watch_resumes_from_any_revision_kept(store):
    for number in range(HISTORY_REVISIONS):
        await store.commit([], [Put("a", str(number).encode())])
    for from_rev in (1, 7, HISTORY_REVISIONS):
        count = HISTORY_REVISIONS - from_rev + 1
        change_sets = await take(store.watch("", from_rev), count)
        assert [change_set.rev for change_set in change_sets] == list(
            range(from_rev, HISTORY_REVISIONS + 1)
        )
        assert change_sets[0].changes[0].entry.value == str(from_rev - 1).encode()


async def test_a_watch_from_the_future_waits_for_it(store):
    watching = asyncio.create_task(take(store.watch("", 3), 1))
    for number in range(3):
        await asyncio.sleep(0)
        await store.commit([], [Put("a", str(number).encode())])
    assert [change_set.rev for change_set in await watching] == [3]


async def test_a_watch_tells_how_far_it_is_when_others_commit(store):
    watch = store.watch("mine/", 1)
    async with asyncio.timeout(5):
        await store.commit([], [Put("other", b"")])
        await store.commit([], [Put("other", b"")])
        assert await anext(watch) == ChangeSet(2, ())
    await watch.aclose()


@pytest.mark.local_store
async def test_history_beyond_the_limit_is_compacted(store):
    for _ in range(HISTORY_REVISIONS + 5):
        await store.commit([], [Put("a", b"")])
    for from_rev in (1, 5):
        with pytest.raises(Compacted, match=f"revision {from_rev} "):
            await take(store.watch("", from_rev), 1)
    assert (await take(store.watch("", 6), 1))[0].rev == 6


@pytest.mark.local_store
async def test_history_of_too_many_bytes_is_compacted(store):
    for number in range(15):
        await store.commit([], [Put(f"key {number}", b"x" * 100 * 1024)])
    for from_rev in (1, 5):
        with pytest.raises(Compacted, match=f"revision {from_rev} "):
            await take(store.watch("", from_rev), 1)
    assert [change_set.rev for change_set in await take(store.watch("", 6), 10)] == list(
        range(6, 16)
    )
    await store.commit([], [Put("one", b"x" * VALUE_BYTES_MAX)])
    assert (await take(store.watch("", 16), 1))[0].changes[0].key == "one", "the newest stays"
    with pytest.raises(Compacted):
        await take(store.watch("", 15), 1)


@pytest.mark.local_store
async def test_a_watcher_that_falls_behind_is_told(store):
    await store.commit([], [Put("a", b"")])
    watch = store.watch("", 1)
    assert (await anext(watch)).rev == 1
    for _ in range(HISTORY_REVISIONS + 1):
        await store.commit([], [Put("a", b"")])
    with pytest.raises(Compacted):
        await anext(watch)


async def test_watches_start_at_revision_one(store):
    with pytest.raises(ValueError, match="start at 1"):
        await anext(store.watch("", 0))


async def test_a_session_ends_with_its_holder_and_takes_its_keys(store, clock):
    states = []
    session = await store.session(9.0, states.append)
    assert session.id != 0
    assert states == [SessionState.CONNECTED]
    await store.commit([], [Put("live/1", b"x", session.id), Put("stays", b"y")])
    assert (await store.get("live/1")).session == session.id
    clock.advance(60)
    assert await store.get("live/1") is not None, "it renews itself"
    session.abandon()
    watching = asyncio.create_task(take(store.watch("live/", 2), 1))
    await asyncio.sleep(0)
    clock.advance(9)
    assert await watching == [ChangeSet(2, (Change("live/1", None),))]
    assert await store.get("live/1") is None
    assert await store.get("stays") is not None
    assert states == [SessionState.CONNECTED, SessionState.LOST]


@pytest.mark.parametrize("stall_seconds", [5.9, 6.0, 6.1, 8.9, 9.0, 11.0, 60.0, 86_400.0])
async def test_a_process_that_stood_still_keeps_its_sessions(store, clock, stall_seconds):
    states = []
    session = await store.session(9.0, states.append)
    await store.commit([], [Put("live", b"", session.id)])
    for step in range(200):  # A stall at every phase of renewals and deadlines to one another.
        clock.advance(step * 0.1)
        clock.stall(stall_seconds)
        assert states == [SessionState.CONNECTED]
    await asyncio.sleep(0)
    assert await store.get("live") is not None
    session.abandon()
    clock.stall(9.0)
    assert states[-1] is SessionState.LOST, "its holder died: that is no stall"


async def is_gone(store, key):
    return await store.get(key) is None


async def test_a_session_does_not_end_before_its_time(store, clock):
    session = await store.session(9.0, lambda state: None)
    await store.commit([], [Put("live", b"", session.id)])
    session.abandon()
    clock.advance(8.9)
    assert await store.get("live") is not None
    clock.advance(0.2)
    await until(lambda: is_gone(store, "live"))


async def test_closing_a_session_deletes_its_keys_in_one_commit(store):
    states = []
    session = await store.session(9.0, states.append)
    names = [f"live/{number:03}" for number in range(OPS_MAX)]
    await store.commit([], [Put(name, b"", session.id) for name in names])
    await store.commit([], [Put("live/more", b"", session.id)])
    await session.close()
    assert await store.scan("") == ([], 3)
    (change_set,) = await take(store.watch("", 3), 1)
    assert [change.key for change in change_set.changes] == [*names, "live/more"]
    assert states == [SessionState.CONNECTED, SessionState.LOST]
    await session.close()
    assert (await store.scan(""))[1] == 3


async def test_a_put_without_a_session_frees_the_key_from_it(store):
    session = await store.session(9.0, lambda state: None)
    other = await store.session(9.0, lambda state: None)
    await store.commit([], [Put(key, b"", session.id) for key in ("a", "b", "c", "d")])
    await store.commit([], [Put("a", b""), Put("b", b"", other.id), Delete("c")])
    await session.close()
    entries, _ = await store.scan("")
    assert [(entry.key, entry.session) for entry in entries] == [("a", 0), ("b", other.id)]


async def test_a_put_with_a_session_that_is_gone_is_refused(store):
    session = await store.session(9.0, lambda state: None)
    await session.close()
    for session_id in (session.id, 987654321):
        with pytest.raises(SessionGone):
            await store.commit([], [Put("fine", b""), Put("a", b"", session_id)])
    assert await store.scan("") == ([], 0)


async def test_sessions_are_told_apart(store):
    first = await store.session(9.0, lambda state: None)
    second = await store.session(9.0, lambda state: None)
    await first.close()
    third = await store.session(9.0, lambda state: None)
    assert len({first.id, second.id, third.id}) == 3


async def test_a_closed_store_refuses_and_ends_its_watches(store):
    states = []
    await store.session(9.0, states.append)
    await store.commit([], [Put("a", b"")])
    watch = store.watch("", 1)
    assert (await anext(watch)).rev == 1
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    with pytest.raises(Unavailable):
        await waiting
    for use in (
        store.get("a"),
        store.scan(""),
        store.commit([], []),
        store.session(1.0, states.append),
    ):
        with pytest.raises(Unavailable):
            await use
    assert states == [SessionState.CONNECTED, SessionState.LOST]


async def test_a_cancelled_caller_leaves_no_gap_in_the_watch(store):
    committing = asyncio.ensure_future(store.commit([], [Put("a", b"1")]))
    await asyncio.sleep(0)
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    await store.commit([], [Put("a", b"2")])
    change_sets = await take(store.watch("", 1), 2)
    assert [change_set.rev for change_set in change_sets] == [1, 2]
