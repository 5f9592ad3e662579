"""The embedded store's file: what survives, what is refused, and what happens on a bad disk."""

# ruff: noqa: ASYNC220, ASYNC240 - the test may block its own loop.

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.env.clock import ManualClock
from ottla.env.executor import ThreadExecutor, run
from ottla.env.faulty_disk import DiskCall, DiskKilled, FaultyDisk
from ottla.env.real_disk import RealDisk
from ottla.errors import CorruptFile
from ottla.metadata.sqlite_store import SqliteStore, StoreInUse
from ottla.metadata.store import Ambiguous, Compacted, Delete, Guard, GuardFailed, Put, Unavailable


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "metadata.db")


@pytest.fixture
async def executor():
    executor = ThreadExecutor(1, "metadata")
    yield executor
    executor.close()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def opened(path, executor, clock):
    """Open the store; what the test left open is closed."""
    stores = []

    async def opened(disk=None, **options):
        store = await SqliteStore.open(
            path, disk=disk or RealDisk(), clock=clock, executor=executor, **options
        )
        stores.append(store)
        return store

    yield opened
    for store in stores:
        await store.close()


async def test_everything_is_there_after_a_reopening(opened):
    store = await opened()
    await store.commit([], [Put("a", b"1"), Put("b", b"1")])
    await store.commit([], [Put("a", b"2"), Delete("b")])
    before = await store.scan("")
    await store.close()
    store = await opened()
    assert await store.scan("") == before
    assert await store.commit([], [Put("c", b"")]) == 3
    revs = []
    async for change_set in store.watch("", 1):
        revs.append((change_set.rev, [change.key for change in change_set.changes]))
        if change_set.rev == 3:
            break
    assert revs == [(1, ["a", "b"]), (2, ["a", "b"]), (3, ["c"])], "from the file, then from memory"


async def test_compaction_is_remembered(opened):
    store = await opened(history_revisions=3)
    for _ in range(10):
        await store.commit([], [Put("a", b"")])
    await store.close()
    store = await opened(history_revisions=3)
    with pytest.raises(Compacted):
        await anext(store.watch("", 7))
    assert (await anext(store.watch("", 8))).rev == 8


async def test_the_file_does_not_grow_by_every_value_that_there_was(opened, path):
    store = await opened(history_bytes=1024 * 1024)
    for number in range(100):
        if number % 30 == 29:
            await store.close()
            store = await opened(history_bytes=1024 * 1024)
        with pytest.raises(GuardFailed):
            await store.commit([Guard("a", mod_rev=10_000)], [Put("a", b"never")])
        await store.commit([], [Put("a", b"%d" % number * 50 * 1024)])
    await store.close()
    assert os.path.getsize(path) < 6 * 1024 * 1024
    store = await opened(history_bytes=256 * 1024)
    await store.commit([], [Put("b", b"")])
    with pytest.raises(Compacted):
        await anext(store.watch("", 98))
    assert (await anext(store.watch("", 100))).rev == 100


async def test_keys_of_the_last_process_sessions_are_gone(opened):
    store = await opened()
    session = await store.session(9.0, lambda state: None)
    await store.commit([], [Put("live", b"", session.id), Put("stays", b"")])
    await store.close()
    store = await opened()
    entries, revision = await store.scan("")
    assert [entry.key for entry in entries] == ["stays"]
    assert revision == 2
    assert (await store.session(9.0, lambda state: None)).id != session.id
    (change,) = (await anext(store.watch("", 2))).changes
    assert change == ("live", None)


async def test_a_second_owner_is_refused(opened, path):
    await opened()
    with pytest.raises(StoreInUse, match=path):
        await opened()


@pytest.mark.parametrize(
    "content", [b"", b"x", b"not a database at all " * 500, bytes(8192), b"SQLite format 3\0" * 300]
)
async def test_a_file_that_is_not_ours_is_named_and_kept(opened, path, content):
    Path(path).write_bytes(content)
    with pytest.raises(CorruptFile, match=path):
        await opened()
    assert Path(path).read_bytes() == content


async def test_another_programs_database_is_refused_unchanged(opened, path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE kv (key TEXT)")
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises(CorruptFile, match="not a metadata file"):
        await opened()
    assert Path(path).read_bytes() == before


async def test_a_newer_format_is_refused(opened, path):
    await (await opened()).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorruptFile, match="format 99"):
        await opened()


async def test_a_flipped_bit_in_a_value_is_never_served(opened, path):
    store = await opened()
    await store.commit([], [Put("key", b"the precious value")])
    await store.close()
    content = Path(path).read_bytes()
    assert content.count(b"the precious value") == 2, "in kv and in log"
    Path(path).write_bytes(content.replace(b"the precious value", b"the precious valuf"))
    store = await opened()
    with pytest.raises(CorruptFile, match="checksum of 'key'"):
        await store.get("key")
    with pytest.raises(CorruptFile, match="checksum of 'key'"):
        await store.scan("")
    with pytest.raises(CorruptFile, match="checksum of 'key'"):
        await anext(store.watch("", 1))


async def test_any_damaged_byte_is_an_error_or_harmless(opened, path):
    store = await opened()
    for number in range(40):
        await store.commit([], [Put(f"key/{number % 10}", str(number).encode() * 50)])
    expected = await store.scan("")
    await store.close()
    whole = Path(path).read_bytes()
    outcomes = {"same": 0, "error": 0}
    pages = [start for start in range(0, len(whole), 4096) if any(whole[start : start + 4096])]
    for step in range(60):  # Pages of zeros are free.
        page, place = divmod(step * len(pages) * 4096 // 60, 4096)
        position = pages[page] + place
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        Path(path).write_bytes(damaged)
        try:
            store = await opened()
            found = await store.scan("")
        except CorruptFile:
            outcomes["error"] += 1
        else:
            assert found[0] == expected[0], f"byte {position}"
            outcomes["same"] += 1
        finally:
            await store.close()
    assert outcomes["error"] > 5


async def test_a_first_start_that_dies_at_any_step_can_be_repeated(opened, path):
    for nth in range(1, 50):
        disk = FaultyDisk(RealDisk())
        disk.kill_at(nth)
        try:
            store = await opened(disk)
        except DiskKilled:
            assert not os.path.exists(path) or nth > 4
            continue
        await store.close()
        break
    else:
        pytest.fail("the first start never got through")
    assert nth > 4, "several steps were interrupted"
    assert await (await opened()).scan("") == ([], 0)


async def test_an_unreadable_directory_is_an_os_error(opened):
    disk = FaultyDisk(RealDisk())
    disk.fail(DiskCall.RENAME, errno=28)
    with pytest.raises(OSError, match="No space"):
        await opened(disk)
    await opened()


class Refusing:
    """SQLite's connection on a disk that refuses one kind of statement."""

    def __init__(self, store, statement, code):
        self._connection = store._file._connection
        self._statement, self._code = statement, code
        store._file._connection = self

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *arguments):
        if sql.startswith(self._statement):
            if sql == "COMMIT":
                self._connection.execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(sql, *arguments)


@pytest.mark.parametrize(
    ("statement", "code", "is_lasting"),
    [
        ("COMMIT", sqlite3.SQLITE_IOERR_FSYNC, True),
        ("COMMIT", sqlite3.SQLITE_FULL, False),
        ("BEGIN", sqlite3.SQLITE_IOERR_READ, True),
        ("BEGIN", sqlite3.SQLITE_READONLY, True),
        ("BEGIN", sqlite3.SQLITE_FULL, False),
        ("BEGIN", sqlite3.SQLITE_NOMEM, False),
        ("BEGIN", sqlite3.SQLITE_CANTOPEN, False),
        ("BEGIN", sqlite3.SQLITE_IOERR_NOMEM, False),
    ],
)
async def test_the_owner_hears_once_of_an_error_that_does_not_pass(
    opened, statement, code, is_lasting
):
    store = await opened()
    told = []
    store.on_broken = told.append
    healthy = store._file._connection
    Refusing(store, statement, code)
    for _ in range(3):
        with pytest.raises((Unavailable, Ambiguous)):
            await store.commit([], [Put("a", b"1")])
    assert len(told) == is_lasting
    store._file._connection = healthy
    if is_lasting:
        with pytest.raises(Unavailable, match="out of use"):
            await store.commit([], [Put("a", b"1")])
    else:
        assert await store.commit([], [Put("a", b"1")]) == 1


async def test_the_owner_hears_of_damage(opened):
    store = await opened()
    told = []
    store.on_broken = told.append
    await store.commit([], [Put("a", b"1")])
    await on_thread(store, "UPDATE kv SET checksum = checksum + 1")
    with pytest.raises(CorruptFile):
        await store.get("a")
    assert "checksum" in told[0]


async def test_nothing_works_after_a_commit_of_unknown_outcome(opened):
    store = await opened()
    await store.commit([], [Put("a", b"1")])
    Refusing(store, "COMMIT", sqlite3.SQLITE_IOERR)
    with pytest.raises(Ambiguous, match="disk I/O"):
        await store.commit([], [Put("a", b"2")])
    with pytest.raises(Unavailable, match="out of use"):
        await store.commit([], [Put("a", b"3")])


async def test_a_full_disk_refuses_and_recovers(opened):
    store = await opened()
    await store.commit([], [Put("a", b"1")])
    (pages,) = await on_thread(store, "PRAGMA page_count")
    await on_thread(store, f"PRAGMA max_page_count = {pages}")
    big = [Put(f"big/{number}", bytes(400_000)) for number in range(3)]  # More than is kept free.
    with pytest.raises(Unavailable, match="full"):
        await store.commit([], big)
    assert await store.scan("big") == ([], 1)
    await on_thread(store, "PRAGMA max_page_count = 1000000")
    assert await store.commit([], big) == 2


async def test_a_dead_sessions_keys_are_deleted_when_there_is_room_again(opened, clock):
    store = await opened()
    session = await store.session(9.0, lambda state: None)
    await store.commit([], [Put("live", b"", session.id)])
    session.abandon()
    real, refusing = store._file.delete_session, 2

    def delete_session(session_id):
        nonlocal refusing
        refusing -= 1
        if refusing >= 0:
            raise Unavailable("database or disk is full")
        return real(session_id)

    store._file.delete_session = delete_session
    for _ in range(4):
        clock.advance(9)
        assert await store.get("nothing") is None  # Behind the deletion in the same thread.
    assert await store.get("live") is None


async def on_thread(store, sql):
    return await store._ask(lambda: store._file._connection.execute(sql).fetchone())


WRITER = """
import asyncio, sys
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor, run
from ottla.env.real_disk import RealDisk
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Put

async def main(path):
    store = await SqliteStore.open(
        path, disk=RealDisk(), clock=SystemClock(), executor=ThreadExecutor(1, "metadata")
    )
    _, revision = await store.scan("")
    number = revision
    while True:
        number += 1
        value = str(number).encode()
        assert await store.commit([], [Put(f"k/{number % 7}", value), Put("last", value)]) == number
        print(number, flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_kill_9_amid_commits_loses_no_acknowledged_commit(opened, path):
    acknowledged = 0
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as writer:
            for _ in range(50):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            acknowledged = int((writer.stdout.read().split() or [acknowledged])[-1])
        store = await opened()
        entries, revision = await store.scan("")
        found = {entry.key: int(entry.value) for entry in entries}
        assert revision - acknowledged in {0, 1}, "one may be durable and not acknowledged"
        assert found["last"] == revision
        for number in range(revision - 6, revision + 1):
            assert found[f"k/{number % 7}"] == number, "a commit is whole"
        await store.close()


async def test_what_a_killed_process_logged_is_in_the_file_before_anything_is_added(
    opened, path, tmp_path, executor, clock
):
    """Its last sync may have failed: what follows in the same log would be lost with it."""
    store = await opened()
    await store.commit([], [Put("a", b"1")])
    killed, alone = tmp_path / "killed", tmp_path / "alone"
    killed.mkdir()
    alone.mkdir()
    for name in (path, f"{path}-wal"):
        shutil.copy(name, killed)
    again = await SqliteStore.open(
        str(killed / "metadata.db"), disk=RealDisk(), clock=clock, executor=executor
    )
    shutil.copy(killed / "metadata.db", alone)
    await again.close()
    without_log = await SqliteStore.open(
        str(alone / "metadata.db"), disk=RealDisk(), clock=clock, executor=executor
    )
    try:
        entry = await without_log.get("a")
        assert entry is not None
        assert entry.value == b"1"
    finally:
        await without_log.close()


def test_memory_mode_does_not_import_sqlite():
    code = (
        "import sys, ottla.metadata.sqlite_store, ottla.metadata.memory_store;"
        "sys.exit('sqlite3' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_the_file_is_whole_after_asyncio_run_ends(path):
    async def write():
        executor = ThreadExecutor(1, "metadata")
        store = await SqliteStore.open(
            path, disk=RealDisk(), clock=ManualClock(), executor=executor
        )
        await store.commit([], [Put("a", b"1")])
        await store.close()
        executor.close()

    asyncio.run(write())
    assert sorted(os.listdir(os.path.dirname(path))) == [
        "metadata.db",
        "metadata.db.lock",
        "metadata.db.reserve",
    ]


@pytest.mark.parametrize("turns", [1, 2])
async def test_an_opening_or_a_closing_that_is_cancelled_leaves_the_file_to_others(
    path, executor, clock, turns
):
    def open_it():
        return SqliteStore.open(path, disk=RealDisk(), clock=clock, executor=executor)

    await (await open_it()).close()
    for _ in range(5):
        opening = asyncio.create_task(open_it())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await run(executor, lambda: None)
        store = await open_it()
        closing = asyncio.create_task(store.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await run(executor, lambda: None)
    await (await open_it()).close()
