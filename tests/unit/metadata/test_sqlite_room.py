"""The embedded store on a full disk: it has room of its own, and says when that is used up."""

import asyncio
import os
import sqlite3

import pytest

from ottla.env.clock import ManualClock
from ottla.env.executor import ThreadExecutor
from ottla.env.real_disk import RealDisk
from ottla.metadata.sqlite_room import FREE_PAGES, LOG_BYTES, RESERVE_BYTES
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Put, Unavailable
from tests.small_volume import small_volume

VALUE = b"x" * 200


class FullDisk(RealDisk):
    """A disk that says how much is free."""

    free = 0

    def free_bytes(self, path):
        return self.free


@pytest.fixture
async def opened():
    """Open a store; what the test left open is closed."""
    stores = []
    executor = ThreadExecutor(1, "metadata")

    async def opened(path, disk=None):
        store = await SqliteStore.open(
            str(path), disk=disk or RealDisk(), clock=ManualClock(), executor=executor
        )
        stores.append(store)
        return store

    yield opened
    for store in stores:
        await store.close()
    executor.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metadata.db"


@pytest.fixture
def reserve(tmp_path):
    return tmp_path / "metadata.db.reserve"


@pytest.fixture
def volume(tmp_path):
    """A directory on a volume of 24 MiB."""
    with small_volume(tmp_path / "volume", "24m") as place:
        yield place


class Full:
    """SQLite's connection on a disk that has no space while ``is_full`` says so."""

    def __init__(self, store, is_full):
        self._connection = store._file._connection
        self._is_full = is_full
        self.statements = []
        store._file._connection = self

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *arguments):
        if sql == "COMMIT" and self._is_full():
            self._connection.execute("ROLLBACK")
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        self.statements.append(sql)
        return self._connection.execute(sql, *arguments)


async def pragma(store, name):
    (value,) = await store._ask(
        lambda: store._file._connection.execute(f"PRAGMA {name}").fetchone()
    )
    return value


async def test_room_is_there_from_the_first_start_and_is_no_hole(opened, path, reserve):
    store = await opened(path)
    assert await pragma(store, "freelist_count") >= FREE_PAGES
    sizes = {path: FREE_PAGES * 4096, f"{path}-wal": LOG_BYTES, reserve: RESERVE_BYTES}
    for name, size_bytes in sizes.items():
        found = os.stat(name)
        assert found.st_size >= size_bytes
        assert found.st_blocks * 512 >= size_bytes, f"{name} has holes"


async def test_a_file_of_an_older_version_gets_room(opened, path, reserve):
    await (await opened(path)).close()
    reserve.unlink()
    older = sqlite3.connect(path)
    older.execute("VACUUM")
    assert older.execute("PRAGMA freelist_count").fetchone() == (0,)
    older.close()
    store = await opened(path)
    assert await pragma(store, "freelist_count") >= FREE_PAGES
    assert reserve.stat().st_size == RESERVE_BYTES
    assert await store.commit([], [Put("a", b"1")]) == 1


async def test_pages_that_were_used_are_taken_again(opened, path, monkeypatch):
    monkeypatch.setattr("ottla.metadata.sqlite_file._CHANGES_PER_LOOK", 10)
    store = await opened(path)
    for number in range(60):
        await store.commit([], [Put(f"a/{number}", VALUE * 100)])
    assert await pragma(store, "freelist_count") > 0
    assert await pragma(store, "page_count") > 2 * FREE_PAGES


async def test_without_space_the_log_gives_way_first_and_then_the_reserve(opened, path, reserve):
    store = await opened(path)
    held = Full(store, lambda: "PRAGMA wal_checkpoint(PASSIVE)" not in held.statements)
    assert await store.commit([], [Put("a", b"1")]) == 1
    assert reserve.exists()
    Full(store, reserve.exists)
    assert await store.commit([], [Put("a", b"2")]) == 2
    entry = await store.get("a")
    assert entry is not None
    assert entry.value == b"2"


async def test_the_reserve_is_made_again_only_when_there_is_space(opened, path, reserve):
    disk = FullDisk()
    store = await opened(path, disk)
    assert not reserve.exists(), "who is short now gets the space"
    await store.commit([], [Put("a", b"1")])
    assert not reserve.exists()
    disk.free = 1 << 30
    await store.commit([], [Put("a", b"2")])
    assert reserve.stat().st_size == RESERVE_BYTES


async def test_what_does_not_fit_at_all_is_refused_and_said_once(opened, path, reserve, caplog):
    store = await opened(path)
    told = []
    store.on_broken = told.append
    is_full = True
    Full(store, lambda: is_full)
    for _ in range(3):
        with pytest.raises(Unavailable, match="full"):
            await store.commit([], [Put("a", b"1")])
    is_full = False
    assert await store.commit([], [Put("a", b"1")]) == 1
    assert not told, "it is not broken"
    said = [each.getMessage().removeprefix(f"{path}: ") for each in caplog.records]
    assert [each[:42] for each in said] == [
        "its disk is full: the metadata uses its re",
        "its disk is full, and the metadata has use",
        "there is space for the metadata again",
    ]
    assert reserve.exists(), "made again"


def fill(file):
    """Fill the disk to the last byte."""
    for size_bytes in (1 << 16, 4096, 1):
        try:
            while file.write(b"x" * size_bytes):
                pass
        except OSError:
            pass


async def commit(store, count):
    for number in range(count):
        await store.commit([], [Put(f"a/{number % 20}", VALUE)])


async def test_a_thousand_changes_fit_while_somebody_fills_the_disk_to_the_last_byte(
    opened, volume
):
    store = await opened(volume / "metadata.db")
    with (volume / "filler").open("wb", buffering=0) as filler:
        for _ in range(50):
            fill(filler)  # again and again: what is given up is gone
            await commit(store, 20)
    entries, revision = await store.scan("")
    assert (len(entries), revision) == (20, 1000)


async def test_a_start_on_a_full_disk_has_the_reserve(opened, volume):
    path, full, reserve = (
        volume / name for name in ("metadata.db", "filler", "metadata.db.reserve")
    )
    store = await opened(path)
    await commit(store, 10)
    await store.close()
    with full.open("wb", buffering=0) as filler:
        fill(filler)
        store = await opened(path)
        assert not reserve.exists()
        fill(filler)
        await commit(store, 300)
        (log,) = {(await asyncio.to_thread(os.stat, f"{path}-wal")).st_size}
        assert log <= LOG_BYTES, "there is no space for more, and less is enough"
    full.unlink()
    await commit(store, 1)
    assert reserve.exists()
    assert (await store.scan(""))[1] == 311


async def test_a_first_start_on_a_full_disk_says_so(opened, volume):
    with (volume / "filler").open("wb", buffering=0) as filler:
        fill(filler)
        with pytest.raises(Unavailable, match=r"full: nothing .* until there is space"):
            await opened(volume / "metadata.db")
