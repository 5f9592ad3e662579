"""A sync of many files hears of every error that a sync of each would have heard of.

On file systems of our own that are really broken: needs root, loop devices and mkfs; else skipped.
"""

import errno
import fcntl
import gc
import os
import re
import shutil
import struct
import subprocess
from array import array

import pytest

from ottla.env.real_disk import RealDisk
from ottla.env.sync_loop import sync_together
from ottla.env.sync_queue import SyncJob, to_write

SHUTDOWN = 0x8004587D
BLOCK_BYTES = 4096
FIBMAP = 1


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Loop:
    """An image with a file system in it, mounted."""

    def __init__(self, directory, kind):
        self.kind = kind
        self.image = directory / "image"
        self.path = directory / "mounted"
        self.path.mkdir(exist_ok=True)
        self.device = None
        with self.image.open("wb") as image:
            image.truncate((320 if kind == "xfs" else 64) << 20)
        options = ("-f",) if kind == "xfs" else ("-F", "-b", str(BLOCK_BYTES))
        run(f"mkfs.{kind}", "-q", *options, str(self.image))
        self.opened = []

    def mount(self, options="defaults"):
        self.device = run("losetup", "-f", "--show", str(self.image)).strip()
        run("mount", "-o", options, self.device, str(self.path))

    def unmount(self):
        for each in self.opened:
            each.close()
        self.opened.clear()
        gc.collect()  # An error's traceback holds on to what was open.
        if os.path.ismount(self.path):
            subprocess.run(["umount", "--lazy", str(self.path)], check=False)
        if self.device is not None:
            subprocess.run(["losetup", "-d", self.device], check=False)
            self.device = None


@pytest.fixture(params=["ext4", "xfs"])
def loop(request, tmp_path):
    if os.geteuid() != 0 or shutil.which(f"mkfs.{request.param}") is None:
        pytest.skip("needs root and mkfs")
    small = tmp_path / "small"
    small.mkdir()
    megabytes = 100 if request.param == "xfs" else 6
    run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(small))
    loop = None
    try:
        loop = Loop(small, request.param)
        yield loop
    finally:
        if loop is not None:
            loop.unmount()
        subprocess.run(["umount", "--lazy", str(small)], check=False)


def opened(loop, count=3):
    disk = RealDisk()
    volume = disk.open_volume(str(loop.path))
    if volume is None:
        pytest.skip("this kernel does not tell all errors")
    files = [disk.open(f"{loop.path}/{number}", create=True) for number in range(count)]
    loop.opened += [volume, *files]
    return volume, files


def test_a_device_that_refuses_one_files_bytes(loop):
    loop.mount()
    volume, files = opened(loop)
    for file in files:
        file.write_at(0, b"x" * 100)
    volume.sync(files)
    files[1].write_at(0, os.urandom(12 << 20 if loop.kind == "ext4" else 150 << 20))
    with pytest.raises(OSError, match=r"error|space"):
        volume.sync(files)


def test_a_file_system_that_is_shut_down(loop):
    loop.mount()
    volume, files = opened(loop)
    files[0].write_at(0, b"x" * 5000)
    fcntl.ioctl(volume.sync_descriptor().number, SHUTDOWN, struct.pack("I", 2))
    with pytest.raises(OSError, match="error"):
        volume.sync(files)


@pytest.mark.parametrize("loop", ["ext4"], indirect=True)
def test_a_file_system_that_turned_itself_read_only(loop):
    loop.mount("errors=remount-ro")
    volume, files = opened(loop)
    files[0].write_at(0, b"x" * 5000)
    trigger = f"/sys/fs/ext4/{os.path.basename(loop.device)}/trigger_fs_error"
    if not os.path.exists(trigger):
        pytest.skip("this kernel cannot be asked for an error")
    with open(trigger, "w") as written:
        written.write("for a test")
    with pytest.raises(OSError, match="Read-only"):
        volume.sync(files)


@pytest.mark.parametrize("loop", ["ext4"], indirect=True)
def test_a_file_system_that_finds_no_place_for_a_files_bytes(loop):
    """``syncfs`` says nothing of that, and an fdatasync after it neither: the bytes are just gone.

    (A block bitmap that fails its checksum, so that delayed allocation fails.)
    """
    loop.mount()
    for number in range(3):
        (loop.path / str(number)).touch()
    loop.unmount()
    blocks = re.findall(r"Block bitmap at (\d+)", run("dumpe2fs", str(loop.image)))
    with loop.image.open("r+b") as image:
        for block in blocks:
            image.seek(int(block) * BLOCK_BYTES + 8)
            image.write(os.urandom(64))
    loop.mount()
    volume, files = opened(loop)
    volume.sync(files)
    for file in files:
        file.write_at(0, b"x" * 5000)
    with pytest.raises(OSError, match=r"Bad message|Structure needs cleaning") as raised:
        volume.sync(files)
    assert raised.value.errno in {errno.EBADMSG, errno.EUCLEAN}


def fill(path):
    """Take all the room there is."""
    with path.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 12))


def sync_as_the_queue(volume, files):
    """Sync as syncs that ride together do: only what needs it is written one by one."""
    jobs = [SyncJob(file, None) for file in files]
    for job in jobs:
        job.descriptor = job.file.sync_descriptor()
    alone = to_write(jobs)
    descriptors = alone or [jobs[0].descriptor]
    numbers = [volume.sync_descriptor().number, *(each.number for each in descriptors)]
    return len(alone), sync_together(array("i", numbers))


@pytest.mark.parametrize("loop", ["ext4"], indirect=True)
def test_no_place_for_bytes_is_told_though_few_files_are_written_one_by_one(loop):
    loop.mount()
    volume, files = opened(loop, 9)
    for file in files:
        file.write_at(0, b"x" * 5000)
    assert sync_as_the_queue(volume, files) == (9, 0)
    for file in files:
        file.write_at(5000, b"y" * 100)
    assert sync_as_the_queue(volume, files) == (0, 0), "their blocks are there"
    loop.unmount()
    blocks = re.findall(r"Block bitmap at (\d+)", run("dumpe2fs", str(loop.image)))
    with loop.image.open("r+b") as image:
        for block in blocks:
            image.seek(int(block) * BLOCK_BYTES + 8)
            image.write(os.urandom(64))
    loop.mount()
    volume, files = opened(loop, 9)
    for file in files:
        file.write_at(5100, b"z" * 100)
    assert sync_as_the_queue(volume, files) == (9, 0), "nothing is known of a file just opened"
    for file in files:
        file.write_at(5200, b"z" * 100)
    files[7].write_at(5300, b"z" * 4000)
    written, code = sync_as_the_queue(volume, files)
    assert (written, code in {errno.EBADMSG, errno.EUCLEAN}) == (1, True)


@pytest.mark.parametrize("loop", ["ext4"], indirect=True)
def test_a_device_that_refuses_a_block_of_a_file_that_is_not_written_by_itself(loop):
    loop.mount()
    volume, files = opened(loop, 4)
    for file in files:
        file.write_at(0, b"x" * 5000)
    assert sync_as_the_queue(volume, files) == (4, 0)
    second_block = struct.pack("i", 1)
    (block,) = struct.unpack("i", fcntl.ioctl(files[2].fileno(), FIBMAP, second_block))
    run("fallocate", "-p", "-o", f"{block * BLOCK_BYTES}", "-l", f"{BLOCK_BYTES}", str(loop.image))
    with pytest.raises(OSError, match="space"):
        fill(loop.image.parent / "filler")
    for file in files:
        file.write_at(5000, b"y" * 100)
    written, code = sync_as_the_queue(volume, files)
    assert (written, code in {errno.EIO, errno.ENOSPC}) == (0, True)
