"""What every disk promises, asked of each one: the kernel's, the one in memory, the faulty one."""

import errno
import itertools
import os
import sys

import pytest

from ottla.env.clock import SystemClock
from ottla.env.disk import MAP_UNIT_BYTES
from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk


@pytest.fixture(params=["real", "memory", "durable memory", "faulty memory", "faulty real"])
def disk(request):
    return {
        "real": RealDisk,
        "memory": MemoryDisk,
        "durable memory": lambda: MemoryDisk(durability=True),
        "faulty memory": lambda: FaultyDisk(MemoryDisk()),
        "faulty real": lambda: FaultyDisk(RealDisk()),
    }[request.param]()


@pytest.fixture
def home(disk, tmp_path, request):
    if "real" in request.node.callspec.params["disk"]:
        return str(tmp_path)
    disk.make_directory("/home")
    return "/home"


@pytest.fixture
def file(disk, home):
    file = disk.open(f"{home}/file", create=True)
    yield file
    file.close()


def test_bytes_written_at_a_position_read_back(file):
    file.write_at(0, b"hello world")
    file.write_at(6, bytearray(b"WO"))
    file.write_at(8, memoryview(b"--RLD--")[2:5])
    assert file.read_at(0, 11) == b"hello WORLD"
    assert file.read_at(4, 3) == b"o W"
    assert file.size() == 11


def test_a_read_is_short_only_at_the_end(file):
    file.write_at(0, b"abcdef")
    assert file.read_at(4, 100) == b"ef"
    assert file.read_at(6, 10) == b""
    assert file.read_at(60, 10) == b""
    assert file.read_at(0, 0) == b""
    assert isinstance(file.read_at(0, 3), bytes)


def test_a_read_into_a_buffer_fills_it(file):
    file.write_at(0, b"abcdef")
    buffer = bytearray(b"....")
    assert file.read_into(1, buffer) == 4
    assert buffer == b"bcde"
    assert file.read_into(4, memoryview(buffer)[:3]) == 2
    assert buffer == b"efde"
    assert file.read_into(99, buffer) == 0


def test_a_hole_reads_as_zeros(file):
    file.write_at(5, b"x")
    assert file.read_at(0, 6) == bytes(5) + b"x"


def test_truncate_cuts_and_extends(file):
    file.write_at(0, b"abcdef")
    file.truncate(3)
    assert file.read_at(0, 10) == b"abc"
    file.truncate(5)
    assert file.read_at(0, 10) == b"abc\0\0"
    file.sync()
    assert file.size() == 5


def test_allocate_extends_with_zeros_and_never_cuts(file):
    file.write_at(0, b"abc")
    file.allocate(5)
    assert file.read_at(0, 10) == b"abc\0\0"
    file.allocate(2)
    assert file.size() == 5


def test_bytes_put_into_a_mapping_are_written(disk, file):
    file.allocate(3 * MAP_UNIT_BYTES)
    view = file.map_at(MAP_UNIT_BYTES, 2 * MAP_UNIT_BYTES)
    if isinstance(disk, RealDisk):
        assert view is not None
    if view is None:  # Then it has to be written.
        return
    assert len(view) == 2 * MAP_UNIT_BYTES
    view[5:10] = b"hello"
    file.sync()
    assert file.read_at(MAP_UNIT_BYTES, 12) == b"\0\0\0\0\0hello\0\0"
    file.write_at(MAP_UNIT_BYTES, b"J")
    assert view[0] == ord("J")
    file.close()
    view[0] = 1  # A mapping outlives its file, until nobody has it any more.


def test_a_large_write_and_read_are_whole(file):
    data = bytes(range(256)) * 8192
    file.write_at(3, data)
    assert file.read_at(3, len(data)) == data


def test_a_negative_position_is_refused(file):
    with pytest.raises(OSError, match="Invalid"):
        file.read_at(-1, 1)
    with pytest.raises(OSError, match="Invalid"):
        file.write_at(-1, b"x")


def test_a_closed_file_is_refused_and_closing_twice_is_harmless(disk, home):
    file = disk.open(f"{home}/file", create=True)
    file.close()
    file.close()
    for use in (
        lambda: file.read_at(0, 1),
        lambda: file.write_at(0, b"x"),
        file.size,
        file.sync,
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_two_openings_see_one_content(disk, home, file):
    other = disk.open_read_only(f"{home}/file")
    file.write_at(0, b"now")
    assert other.read_at(0, 9) == b"now"
    with pytest.raises(OSError, match="Bad file descriptor"):
        other.write_at(0, b"x")
    other.close()


def test_open_needs_create_and_exclusive_needs_absence(disk, home):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{home}/new")
    with pytest.raises(FileNotFoundError):
        disk.open_read_only(f"{home}/new")
    disk.open(f"{home}/new", create=True, exclusive=True).close()
    disk.open(f"{home}/new").close()
    with pytest.raises(FileExistsError):
        disk.open(f"{home}/new", create=True, exclusive=True)


def test_a_parent_is_never_created_by_accident(disk, home):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{home}/no/file", create=True)
    with pytest.raises(FileNotFoundError):
        disk.make_directory(f"{home}/no/directory")
    assert disk.list_directory(home) == []


def test_directories_and_files_are_told_apart(disk, home, file):
    disk.make_directory(f"{home}/directory")
    assert disk.exists(f"{home}/directory")
    assert disk.exists(f"{home}/file")
    assert not disk.exists(f"{home}/nothing")
    assert disk.is_directory(f"{home}/directory")
    assert not disk.is_directory(f"{home}/file")
    assert not disk.is_directory(f"{home}/nothing")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{home}/directory")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{home}/file")
    for open_it in (disk.open, disk.open_read_only):
        with pytest.raises(IsADirectoryError):
            open_it(f"{home}/directory")
    with pytest.raises(NotADirectoryError):
        disk.open(f"{home}/file/below", create=True)
    with pytest.raises(NotADirectoryError):
        disk.list_directory(f"{home}/file")


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    disk, pipe = RealDisk(), str(tmp_path / "pipe")
    os.mkfifo(pipe)
    for opened in (disk.open, disk.open_read_only):
        with pytest.raises(IsADirectoryError):
            opened(pipe)
        with pytest.raises(OSError, match="directory"):
            opened(str(tmp_path))
    with pytest.raises(OSError, match="regular"):
        disk.open_read_only("/dev/null")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES])
def test_a_kernel_that_cannot_tell_does_not_say_no(tmp_path, monkeypatch, number):
    disk = RealDisk()

    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr(os, "lstat", refuse)
        for ask in (disk.exists, disk.is_directory, disk.is_link):
            with pytest.raises(OSError, match=os.strerror(number)):
                ask(str(tmp_path))
    file = disk.open(str(tmp_path / "file"), create=True)
    file.close()
    for ask in (disk.exists, disk.is_directory, disk.is_link):
        assert not ask(str(tmp_path / "file" / "below a file"))


def test_names_are_listed_sorted(disk, home):
    for name in ("b", "a", "10", "9"):
        disk.open(f"{home}/{name}", create=True).close()
    disk.make_directory(f"{home}/c")
    assert disk.list_directory(home) == ["10", "9", "a", "b", "c"]
    with pytest.raises(FileNotFoundError):
        disk.list_directory(f"{home}/nothing")


def test_the_time_of_the_last_write(disk, home, file):
    file.write_at(0, b"hello")
    first = disk.modified_ms(f"{home}/file")
    assert abs(first - SystemClock().wall_ms()) < 60_000
    disk.rename(f"{home}/file", f"{home}/other")
    assert disk.modified_ms(f"{home}/other") == first
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(f"{home}/file")


def test_the_size_of_a_path(disk, home, file):
    file.write_at(0, b"12345")
    assert disk.size_of(f"{home}/file") == 5
    with pytest.raises(FileNotFoundError):
        disk.size_of(f"{home}/nothing")


def test_rename_replaces_a_file_and_keeps_it_open(disk, home, file):
    file.write_at(0, b"new")
    old = disk.open(f"{home}/old", create=True)
    old.write_at(0, b"old content")
    disk.rename(f"{home}/file", f"{home}/old")
    assert disk.list_directory(home) == ["old"]
    assert disk.size_of(f"{home}/old") == 3
    assert old.read_at(0, 3) == b"old"
    file.write_at(3, b"er")
    assert disk.size_of(f"{home}/old") == 5
    assert file.path == f"{home}/file"
    old.close()


def test_rename_moves_directories_with_their_content(disk, home):
    disk.make_directory(f"{home}/a")
    disk.make_directory(f"{home}/b")
    disk.open(f"{home}/a/file", create=True).close()
    disk.rename(f"{home}/a", f"{home}/b/c")
    assert disk.list_directory(home) == ["b"]
    assert disk.list_directory(f"{home}/b/c") == ["file"]


def test_rename_refuses_what_it_would_destroy(disk, home, file):
    disk.make_directory(f"{home}/full")
    disk.open(f"{home}/full/file", create=True).close()
    disk.make_directory(f"{home}/other")
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{home}/nothing", f"{home}/x")
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{home}/file", f"{home}/full")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{home}/other", f"{home}/file")
    with pytest.raises(OSError, match="not empty"):
        disk.rename(f"{home}/other", f"{home}/full")
    assert disk.list_directory(home) == ["file", "full", "other"]


def test_remove_takes_the_name_and_leaves_the_open_file(disk, home, file):
    file.write_at(0, b"still here")
    disk.remove(f"{home}/file")
    assert not disk.exists(f"{home}/file")
    assert file.read_at(0, 5) == b"still"
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{home}/file")


def test_a_directory_is_removed_only_when_empty(disk, home):
    disk.make_directory(f"{home}/a")
    disk.open(f"{home}/a/file", create=True).close()
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory(f"{home}/a")
    disk.remove(f"{home}/a/file")
    disk.remove_directory(f"{home}/a")
    assert disk.list_directory(home) == []
    with pytest.raises(FileNotFoundError):
        disk.remove_directory(f"{home}/a")


def test_directories_can_be_synced(disk, home):
    disk.sync_directory(home)
    with pytest.raises(FileNotFoundError):
        disk.sync_directory(f"{home}/nothing")


def test_a_held_directory_is_synced_without_a_descriptor(disk, home, monkeypatch, request):
    disk.make_directory(f"{home}/a")
    held = disk.hold_directory(f"{home}/a")
    disk.open(f"{home}/a/file", create=True).close()
    with monkeypatch.context() as patch:
        if "real" in request.node.callspec.params["disk"]:
            patch.setattr(os, "open", no_descriptor)
        if isinstance(disk, FaultyDisk):
            disk.fail(DiskCall.SYNC_DIRECTORY, errno=errno.EMFILE, lasting=True)
        disk.sync_directory(f"{home}/a")
    held.release()
    held.release()
    if isinstance(disk, FaultyDisk):
        with pytest.raises(OSError, match="Too many open files"):
            disk.sync_directory(f"{home}/a")
        disk.heal()
    disk.sync_directory(f"{home}/a")
    with pytest.raises(FileNotFoundError):
        disk.hold_directory(f"{home}/nothing")


def no_descriptor(path, *_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_a_held_directory_whose_path_is_anothers_is_not_called_durable(tmp_path):
    disk, path = RealDisk(), str(tmp_path / "a")
    disk.make_directory(path)
    held = disk.hold_directory(path)
    disk.rename(path, f"{path}.old")
    with pytest.raises(OSError, match="not at its path"):
        disk.sync_directory(path)
    disk.make_directory(path)
    with pytest.raises(OSError, match="not at its path") as caught:
        disk.sync_directory(path)
    assert caught.value.errno == errno.ESTALE
    held.release()
    disk.sync_directory(path)


def test_who_holds_a_lock_can_be_asked(disk, home):
    path = f"{home}/.lock"
    assert disk.locked_by(path) is None
    assert not disk.exists(path)
    lock = disk.lock(path)
    assert disk.locked_by(path) in (0, os.getpid())
    lock.release()
    assert disk.locked_by(path) is None
    disk.lock(path).release()


def test_a_lock_is_held_once_even_in_one_process(disk, home):
    lock = disk.lock(f"{home}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{home}/.lock")
    lock.release()
    lock.release()
    again = disk.lock(f"{home}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{home}/.lock")
    again.release()


def test_free_space_is_told(disk, home):
    assert 0 < disk.free_bytes(home) <= disk.total_bytes(home)
    for look in (disk.free_bytes, disk.total_bytes):
        with pytest.raises(FileNotFoundError):
            look(f"{home}/nothing")


def test_a_descriptor_is_the_kernels_or_none(disk, file, request):
    if "real" in request.node.callspec.params["disk"]:
        assert isinstance(file.fileno(), int)
        if sys.platform == "linux" and "faulty" not in request.node.callspec.params["disk"]:
            assert file.sync_descriptor().number == file.fileno()
    else:
        assert file.fileno() is None
        assert file.sync_descriptor() is None
    disk.advise_sequential([file])
    file.write_at(0, b"x" * 5000)
    assert file.is_cached(0, 5000)


def test_many_small_appends_add_up(file):
    position = 0
    for number in itertools.islice(itertools.cycle(range(1, 9)), 500):
        file.write_at(position, bytes([number]) * number)
        position += number
    assert file.size() == position
    assert file.read_at(0, 6) == b"\1\2\2\3\3\3"


def test_files_are_synced_together(disk, home, file):
    volume = disk.open_volume(home)
    if volume is None:
        pytest.skip("not on this file system, or not by this kernel")
    assert volume.is_trusted
    other = disk.open(f"{home}/other", create=True)
    for each in (file, other):
        each.write_at(0, b"data")
        assert each.volume() is volume
    volume.sync([file, other])
    volume.sync([])
    other.close()
    assert other.volume() is None
    volume.sync([file, other])  # Who was closed meanwhile is left out.
    volume.close()


def test_directories_of_one_file_system_have_one_volume(disk, home):
    found = []
    for name in ("a", "b"):
        disk.make_directory(f"{home}/{name}")
        found.append(disk.open_volume(f"{home}/{name}"))
    if None in found:
        pytest.skip("not on this file system, or not by this kernel")
    assert found[0] is found[1]
    file = disk.open(f"{home}/a/file", create=True)
    assert file.volume() is found[0]
    found[0].close()
    assert file.volume() is found[0], "the other directory is still in use"
    found[1].close()
    assert file.volume() is None
    file.close()


def test_a_volume_that_lied_once_is_not_asked_again(disk, home, file):
    volume = disk.open_volume(home)
    if volume is None:
        pytest.skip("not on this file system, or not by this kernel")
    assert file.volume() is volume
    volume.distrust()
    assert not volume.is_trusted
    assert file.volume() is None
    volume.close()


def test_without_an_open_volume_each_file_is_on_its_own(file):
    assert file.volume() is None
