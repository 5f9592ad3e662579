"""A node gives its directories generations, and knows an old copy by them."""

from types import SimpleNamespace

import pytest

from ottla.cluster.known_directories import store_known
from ottla.cluster.lineage import read_lineage
from ottla.env.clock import ManualClock
from ottla.env.disk import Disk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.ids import NodeId
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put, Unavailable
from ottla.metadata.values import decode_generations
from ottla.node.generations import Generations
from tests.inline_executor import InlineExecutor

KEYS, ME = Keys("c"), NodeId(1)
FILE = ".ottla-generation"


class Store(MemoryStore):
    """``failing``: which commits fail, counted from 1 on."""

    failing = ()
    commits = 0

    async def commit(self, guards, ops):
        self.commits += 1
        if self.commits in self.failing:
            raise Unavailable("not now")
        return await super().commit(guards, ops)


def log_of(where, end, topic_id=b"id", log_dir="/a"):
    return SimpleNamespace(
        topic_partition=where,
        topic_id=topic_id,
        directory=f"{log_dir}/{where}",
        log_start_offset=0,
        log_end_offset=end,
    )


class Machine(SimpleNamespace):
    """A node with the directories /a and /b, and what it keeps."""

    def directories(self):
        return [
            SimpleNamespace(
                path=path,
                is_online=True,
                directory_id=self.ids.get(path, f"id of {path}"),
                is_named_anew=path in self.named_anew,
            )
            for path in ("/a", "/b")
            if path not in self.away
        ]

    def process(self):
        directories = self.directories()
        self.more.setdefault("t-0", self.log)
        logs = SimpleNamespace(online=lambda: directories, logs=self.more)
        environment = SimpleNamespace(disk=self.disk, executor=InlineExecutor(), rng=self.rng)
        return Generations(self.store, KEYS, ME, logs, environment)

    async def cut_short(self, *given_up):
        """Start, and end before generations are given."""
        process = self.process()
        old = await process.look()
        await store_known(self.store, KEYS, ME, self.directories(), given_up)
        return process, sorted(old)

    async def started(self, *given_up):
        process, old = await self.cut_short(*given_up)
        await process.begin()
        return process, old

    def replace(self, path, directory_id, file=None, *, named_anew=False):
        """Mount another disk; return the generation file of the one before."""
        before = self.copy(path)
        self.disk.remove(f"{path}/{FILE}")
        if file is not None:
            self.write(path, file)
        self.ids[path] = directory_id
        self.named_anew = {path} if named_anew else set()
        return before

    def number(self, path):
        return read_lineage(self.disk, f"{path}/{FILE}").stamp.number

    async def known(self):
        found = decode_generations((await self.store.get(KEYS.generations(ME))).value)
        return {one: [stamp.number for stamp in stamps] for one, stamps in found.items()}

    def copy(self, path):
        file = self.disk.open_read_only(f"{path}/{FILE}")
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def put_back(self, path, copy):
        self.disk.remove(f"{path}/{FILE}")
        self.write(path, copy)

    def write(self, path, copy):
        file = self.disk.open(f"{path}/{FILE}", create=True)
        try:
            file.write_at(0, copy)
        finally:
            file.close()


@pytest.fixture
async def machine():
    disk = MemoryDisk()
    for path in ("/a", "/b"):
        disk.make_directory(path)
    store = Store(ManualClock())
    yield Machine(
        disk=disk,
        store=store,
        rng=SeededRng(1),
        log=log_of("t-0", 0),
        away=set(),
        ids={},
        named_anew=set(),
        more={},
    )
    await store.close()


async def test_a_new_directory_is_no_old_copy_and_gets_a_generation(machine):
    _, old = await machine.started()
    assert old == []
    assert (machine.number("/a"), machine.number("/b")) == (1, 1)
    assert await machine.known() == {"id of /a": [1], "id of /b": [1]}


async def test_a_start_finds_the_directory_that_was_put_back(machine):
    await machine.started()
    copy = machine.copy("/b")
    await machine.started()
    machine.put_back("/b", copy)
    process, old = await machine.started()
    assert old == ["/b"]
    assert await process.look() == frozenset(), "it is the newest from now on"


async def test_a_directory_without_its_generation_is_an_old_copy(machine):
    await machine.started()
    machine.disk.remove(f"/a/{FILE}")
    _, old = await machine.started()
    assert old == ["/a"]


async def test_a_start_that_ends_before_it_gives_generations_finds_the_copy_again(machine):
    await machine.started()
    copy = machine.copy("/a")
    await machine.started()
    machine.put_back("/a", copy)
    for _ in range(2):
        assert await machine.process().look() == {"/a"}


async def test_further_generations_come_with_records_only(machine):
    process, _ = await machine.started()
    await process.go_on()
    assert machine.number("/a") == 1
    machine.log.log_end_offset = 5
    copy = machine.copy("/a")
    await process.go_on()
    await process.go_on()
    assert machine.number("/a") == 2
    machine.put_back("/a", copy)
    assert await machine.process().look() == {"/a"}


async def test_as_many_records_of_another_topic_are_other_records(machine):
    machine.more["u-0"] = log_of("u-0", 300)
    process, _ = await machine.started()
    del machine.more["u-0"]
    machine.more["v-0"] = log_of("v-0", 300)
    await process.go_on()
    assert machine.number("/a") == 2
    machine.more["v-0"] = log_of("v-0", 300, b"anew")
    await process.go_on()
    assert machine.number("/a") == 3
    machine.more["v-0"].log_start_offset = 300  # DeleteRecords.
    await process.go_on()
    assert machine.number("/a") == 4


async def test_a_move_to_another_directory_is_a_change(machine):
    process, _ = await machine.started()
    copies = {path: machine.copy(path) for path in ("/a", "/b")}
    machine.log.directory = "/b/t-0"
    await process.go_on()
    for path, copy in copies.items():
        machine.put_back(path, copy)
    assert await machine.process().look() == {"/a", "/b"}


async def test_nothing_is_given_before_the_first(machine):
    process = machine.process()
    machine.log.log_end_offset = 5
    await process.go_on()
    assert machine.store.commits == 0


@pytest.mark.parametrize(("failing", "last"), [(1, 2), (2, 3)])
async def test_without_the_store_no_directory_becomes_an_old_copy(machine, failing, last):
    process, _ = await machine.started()
    machine.store.commits, machine.store.failing = 0, (failing,)
    machine.log.log_end_offset = 5
    await process.go_on()
    assert await machine.process().look() == frozenset()
    await process.go_on()
    assert await machine.known() == {"id of /a": [last], "id of /b": [last]}
    assert await machine.process().look() == frozenset()


class Full:
    """Takes nothing new in /b."""

    def __init__(self, inner: Disk):
        self._inner = inner

    def open(self, path, **options):
        if path.startswith("/b"):
            raise OSError(28, "No space left on device")
        return self._inner.open(path, **options)

    def __getattr__(self, name):
        return getattr(self._inner, name)


async def test_a_full_disk_keeps_its_generation_and_is_no_old_copy(machine):
    await machine.started()
    whole, machine.disk = machine.disk, Full(machine.disk)
    for _ in range(2):
        _, old = await machine.started()
        assert old == []
    machine.disk = whole
    assert (machine.number("/a"), machine.number("/b")) == (3, 1)
    _, old = await machine.started()
    assert old == []
    assert machine.number("/b") == 4


class WithoutRoom(Full):
    """Makes no file in /b; those that are there can be written."""

    def open(self, path, *, create=False, **options):
        if create and path.startswith("/b"):
            raise OSError(28, "No space left on device")
        return self._inner.open(path, create=create, **options)


async def test_a_disk_that_takes_no_new_file_takes_the_generation_in_place(machine):
    """Records were taken by a generation that an old copy has, too."""
    await machine.started()
    copy = machine.copy("/b")
    machine.disk = WithoutRoom(machine.disk)
    await machine.started()
    assert machine.number("/b") == 2
    machine.disk = machine.disk._inner
    machine.put_back("/b", copy)
    assert await machine.process().look() == {"/b"}


async def test_what_a_disk_did_not_take_is_given_without_further_records(machine):
    process, _ = await machine.started()
    copy = machine.copy("/b")
    machine.disk = process._env.disk = Full(machine.disk)
    machine.log.log_end_offset = 5
    await process.go_on()
    assert machine.number("/b") == 1
    machine.disk = process._env.disk = machine.disk._inner
    await process.go_on()
    await process.go_on()
    assert machine.number("/b") == 3
    machine.put_back("/b", copy)
    assert await machine.process().look() == {"/b"}


async def test_a_directory_that_was_away_is_no_old_copy(machine):
    await machine.started()
    machine.away = {"/b"}
    await machine.started()
    machine.away = set()
    _, old = await machine.started()
    assert old == []


async def test_metadata_that_was_put_back_is_told(machine, caplog):
    await machine.started()
    entry = await machine.store.get(KEYS.generations(ME))
    await machine.started()
    await machine.store.commit([], [Put(entry.key, entry.value)])
    _, old = await machine.started()
    assert old == []
    assert "/a is newer than the metadata" in caplog.text


async def test_a_directory_that_was_given_up_is_an_old_copy_when_it_comes_back(machine):
    await machine.started()
    former = machine.replace("/b", "new")
    await machine.started("id of /b")
    await machine.started()
    newer = machine.replace("/b", "id of /b", former)
    _, old = await machine.started()
    assert old == ["/b"]
    _, old = await machine.started()
    assert old == [], "it is the newest now"
    machine.replace("/b", "new", newer)
    _, old = await machine.started()
    assert old == ["/b"], "the other one was away while an old copy served"


async def test_what_is_given_up_is_superseded_though_the_start_was_cut_short(machine):
    await machine.started()
    former = machine.replace("/b", "new")
    await machine.cut_short("id of /b")
    await machine.started()  # It is not named any more.
    machine.replace("/b", "id of /b", former)
    for _ in range(2):
        _, old = await machine.cut_short()
        assert old == ["/b"]


async def test_what_was_given_up_and_not_served_without_is_no_old_copy(machine):
    await machine.started()
    former = machine.replace("/b", "new")
    await machine.cut_short("id of /b")
    machine.ids["/b"] = "id of /b"
    machine.write("/b", former)
    _, old = await machine.started()
    assert old == []


async def test_a_directory_that_is_away_while_others_serve_is_awaited(machine):
    await machine.started()
    former = machine.replace("/b", "mount point")
    await machine.started()
    machine.replace("/b", "id of /b", former)
    _, old = await machine.started()
    assert old == []


@pytest.mark.parametrize("has_file", [True, False])
async def test_an_old_copy_without_its_id_is_told_by_its_path(machine, has_file):
    await machine.started()
    copy = machine.copy("/b")
    await machine.started()
    machine.disk.make_directory("/b/t-0")
    machine.replace("/b", "anew", copy if has_file else None, named_anew=True)
    _, old = await machine.cut_short()
    assert old == ["/b"]
    machine.named_anew = set()
    _, old = await machine.started()
    assert old == ["/b"]
    _, old = await machine.started()
    assert old == []


async def test_a_directory_that_lost_only_its_id_is_no_old_copy(machine):
    await machine.started()
    machine.disk.make_directory("/b/t-0")
    machine.replace("/b", "anew", machine.copy("/b"), named_anew=True)
    _, old = await machine.started()
    assert old == []


async def test_what_was_given_up_before_there_were_generations_is_an_old_copy(machine):
    await store_known(machine.store, KEYS, ME, machine.directories(), ())
    machine.ids["/b"] = "new"
    await machine.started("id of /b")
    machine.disk.make_directory("/b/t-0")
    machine.replace("/b", "id of /b")
    _, old = await machine.started()
    assert old == ["/b"]


async def test_partitions_that_were_copied_into_a_new_directory_are_no_old_copy(machine):
    machine.away = {"/b"}
    await machine.started()
    machine.away, machine.named_anew = set(), {"/b"}
    machine.disk.make_directory("/b/t-0")
    _, old = await machine.started()
    assert old == []
