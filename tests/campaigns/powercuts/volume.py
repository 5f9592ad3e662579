"""An ext4 file system of our own in an image file, whose power can be cut.

Owns the loop device, the mount and the kernel's calls for them. The cut is EXT4_IOC_SHUTDOWN: the
file system takes no more writes and forgets what it had not written; with LOGFLUSH its journal is
written first, so names are there whose bytes are not. Needs root, losetup, mkfs.ext4 and a kernel
that mounts loop devices; ``Impossible`` says what is missing. Knows nothing of logs.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Self

SHUTDOWN = 0x8004587D
LOGFLUSH = 1
"""The journal is written, the data is not."""
NOLOGFLUSH = 2
"""All since the journal's last commit is gone."""
CLONE_NEWNS = 0x20000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
STOPPED = frozenset("TtZXD")
"""States of a thread that runs no more of its program; D: in the kernel, and stopped behind it."""
STOP_SECONDS = 5.0


class Impossible(Exception):
    """This machine does not let us mount file systems."""


def shut_down(mount_point: str, flag: int) -> None:
    """Cut the power of the file system at ``mount_point``."""
    descriptor = os.open(mount_point, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", flag))
    finally:
        os.close(descriptor)


def cut_power(mount_point: str, flag: int, process: int) -> None:
    """Cut the power under a process, which does nothing more; it is left stopped.

    The process must stand first. While a file system shuts down, the kernel lets a waiting
    ``fdatasync`` return 0 though its transaction was thrown away: a broker that still runs then
    would acknowledge what is lost, as none does whose power goes with that of its disk.
    """
    os.kill(process, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS
    while not _stands(process) and time.monotonic() < deadline:
        time.sleep(0.0005)
    shut_down(mount_point, flag)


def _stands(process: int) -> bool:
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    except (FileNotFoundError, ProcessLookupError):
        return False  # A thread ended meanwhile: look again.
    return STOPPED.issuperset(states)


class Volume:
    """A mounted image of ``size_mib``; a context manager that leaves nothing behind."""

    def __init__(self, directory: Path, *, size_mib: int = 96, options: str = "") -> None:
        self._image = directory / "volume.img"
        self.path = directory / "volume"
        self._size_mib = size_mib
        self._options = options
        self._device = ""

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise Impossible("mounting a loop device needs root")
        for command in ("losetup", "mkfs.ext4", "mount", "umount"):
            if shutil.which(command) is None:
                raise Impossible(f"there is no {command} here")
        _see_mounts_alone()
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._size_mib << 20)
        try:
            _run("mkfs.ext4", "-q", "-F", str(self._image))
            self._device = _run("losetup", "-f", "--show", str(self._image)).strip()
            self._mount()
        except Impossible:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if os.path.ismount(self.path):
            self._unmount()
        if self._device:
            subprocess.run(["losetup", "-d", self._device], check=False)
            self._device = ""

    def power_on_again(self) -> None:
        """Unmount and mount: what the kernel still knew is gone, the journal is replayed.

        No process may have files open in it. After a cut only what was durable is left; without
        one, all is written down first, as by an orderly shutdown of the machine.
        """
        self._unmount()
        self._mount()

    def sync(self) -> None:
        """Make all in this file system durable, and nothing in others."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                raise OSError(ctypes.get_errno(), "syncfs")
        finally:
            os.close(descriptor)

    def _mount(self) -> None:
        options = ("-o", self._options) if self._options else ()
        _run("mount", "-t", "ext4", *options, self._device, str(self.path))

    def _unmount(self) -> None:
        for attempt in range(50):
            done = subprocess.run(
                ["umount", str(self.path)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return
            time.sleep(0.02 * (attempt + 1))  # A killed process's files are let go of late.
        raise RuntimeError(f"cannot unmount {self.path}: {done.stderr}")


def _see_mounts_alone() -> None:
    """Let this thread, and all that it starts, have a mount namespace of their own.

    Else a process that makes a copy of everybody's, whatever for, keeps a file system in it that we
    have shut down and unmounted: the next mount would give that one back, without power.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise Impossible(f"mount namespace: {os.strerror(ctypes.get_errno())}")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Impossible(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
