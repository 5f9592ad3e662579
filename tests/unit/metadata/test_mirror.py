"""The mirror follows the store, catches up after compaction, and wakes those who wait."""

import asyncio

import pytest

from ottla.env.clock import ManualClock
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.mirror import Mirror, update
from ottla.metadata.store import Ambiguous, Delete, Guard, Put, Unavailable


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    store = MemoryStore(clock, history_revisions=5)
    yield store
    await store.close()


@pytest.fixture
async def mirror(store, clock):
    change_sets = []
    mirror = Mirror(store, "p/", clock, change_sets.append)
    mirror.change_sets = change_sets
    yield mirror
    await mirror.close()


async def test_it_starts_with_everything_and_follows(store, mirror):
    await store.commit([], [Put("p/a", b"1"), Put("q", b"")])
    await mirror.start()
    assert {key: entry.value for key, entry in mirror.entries.items()} == {"p/a": b"1"}
    revision = await store.commit([], [Put("p/b", b"2"), Delete("p/a")])
    async with asyncio.timeout(5):
        await mirror.reached(revision)
    assert list(mirror.entries) == ["p/b"]
    assert mirror.get("p/a") is None
    assert [change_set.rev for change_set in mirror.change_sets] == [1, 2]


async def test_reached_counts_commits_elsewhere_too(store, mirror):
    await mirror.start()
    revision = await store.commit([], [Put("elsewhere", b"")])
    async with asyncio.timeout(5):
        await mirror.reached(revision)
    assert mirror.revision == revision


async def test_after_compaction_one_change_set_tells_the_difference(store, mirror):
    await store.commit([], [Put(f"p/{name}", b"old") for name in "abc"])
    await mirror.start()
    await asyncio.sleep(0)
    for number in range(10):
        # Without an await that yields, the mirror cannot keep up.
        await store.commit([], [Put("p/b", str(number).encode())])
    await store.commit([], [Delete("p/a"), Put("p/d", b"new")])
    async with asyncio.timeout(5):
        await mirror.reached(12)
    values = {key: entry.value for key, entry in mirror.entries.items()}
    assert values == {"p/b": b"9", "p/c": b"old", "p/d": b"new"}
    last = mirror.change_sets[-1]
    assert last.rev == 12
    assert {(key, entry and entry.value) for key, entry in last.changes} == {
        ("p/a", None),
        ("p/b", b"9"),
        ("p/d", b"new"),
    }


async def test_it_waits_while_the_store_is_unavailable(store, mirror, clock):
    real_watch = store.watch
    failures = []

    async def unavailable(*_):
        failures.append(1)
        raise Unavailable("gone for a moment")
        yield

    store.watch = unavailable
    await mirror.start()
    while not failures:  # noqa: ASYNC110
        await asyncio.sleep(0)
    store.watch = real_watch
    revision = await store.commit([], [Put("p/b", b"2")])
    reached = asyncio.ensure_future(mirror.reached(revision))
    await asyncio.sleep(0)
    assert not reached.done()
    clock.advance(1)
    async with asyncio.timeout(5):
        await reached


async def test_a_failing_listener_is_heard_of(store, clock):
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    def listener(change_set):
        if change_set.rev == 1:
            raise ZeroDivisionError

    mirror = Mirror(store, "", clock, listener)
    await mirror.start()
    reached = asyncio.ensure_future(mirror.reached(2))
    await asyncio.sleep(0)
    await store.commit([], [Put("a", b"")])
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5):
            await reached
    assert len(errors) == 1
    with pytest.raises(ZeroDivisionError):
        await mirror.reached(2)


async def test_those_who_wait_hear_of_the_close(store, mirror):
    await mirror.start()
    reached = asyncio.ensure_future(mirror.reached(1))
    await asyncio.sleep(0)
    await mirror.close()
    with pytest.raises(Unavailable):
        await reached


async def test_update_creates_changes_deletes_and_leaves_alone(store, mirror):
    assert (await mirror.update("n", lambda value: b"1")).create_rev == 1
    entry = await mirror.update("n", lambda value: value + b"2")
    assert entry == await store.get("n")
    assert entry.value == b"12"
    assert await mirror.update("n", lambda value: value) == entry
    assert await mirror.update("n", lambda value: None) is None
    assert await store.get("n") is None
    assert await mirror.update("n", lambda value: None) is None


async def test_update_tries_again_when_somebody_was_faster(store):
    await store.commit([], [Put("n", b"0")])
    real_get, rivals = store.get, 3

    async def get(key):
        nonlocal rivals
        entry = await real_get(key)
        if rivals:
            rivals -= 1
            await store.commit([Guard(key, entry.mod_rev)], [Put(key, entry.value + b"r")])
        return entry

    store.get = get
    assert (await update(store, "n", lambda value: value + b"!")).value == b"0rrr!"


async def test_update_keeps_the_session_and_reports_doubt(store):
    session = await store.session(9.0, lambda state: None)
    await store.commit([], [Put("n", b"0", session.id)])
    await update(store, "n", lambda value: b"1")
    assert (await store.get("n")).session == session.id

    async def commit(guards, ops):
        raise Ambiguous("sent, no answer")

    store.commit = commit
    with pytest.raises(Ambiguous):
        await update(store, "n", lambda value: b"2")
