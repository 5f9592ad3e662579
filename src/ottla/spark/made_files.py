"""Small files that a local session needs on disk: launchers and a configuration, made when missing.

Each file lies in a directory named after its content, so that versions, environments and users
never meet, and nothing has to be cleaned up. Each process with a session also has a directory of
sockets: Python processes that are killed leave theirs behind, and the next session that starts
removes the directories of dead processes. Standard library only.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.env.disk import Lock

DIRECTORY = "ottla-spark"
SOCKET_DIRECTORY_BYTES_MAX = 60
"""The path of a Unix domain socket has 104 bytes or a few more; Spark appends 42."""


def program(name: str, text: str) -> Path:
    """Return the path of a program with this text. ``name`` may have directories before it."""
    return _made(name, text, 0o755)


def text_file(name: str, text: str) -> Path:
    """Return the path of a file with this text."""
    return _made(name, text, 0o644)


def socket_directory() -> Path | None:
    """Return this process's directory for Unix domain sockets; None: there is no place for one.

    Other users cannot reach it: a user who reaches the sockets of Spark's Python processes can make
    them run anything.
    """
    all_of_them = _home(os.environ) / "sockets"
    all_of_them.mkdir(mode=0o700, exist_ok=True)
    if all_of_them.stat().st_mode & 0o077:
        return None
    there = _SOCKETS.get(os.getpid())
    if there is not None and there.directory.is_dir() and there.directory.parent == all_of_them:
        return there.directory
    _sweep(all_of_them)
    made = _make_locked(all_of_them)
    if len(os.fsencode(made.directory)) > SOCKET_DIRECTORY_BYTES_MAX:
        made.lock.release()
        shutil.rmtree(made.directory, ignore_errors=True)
        return None
    _SOCKETS[os.getpid()] = made
    return made.directory


class _Sockets(NamedTuple):
    """A directory of sockets, and the lock that says that its process lives."""

    directory: Path
    lock: "Lock"


_SOCKETS: dict[int, _Sockets] = {}
"""By process."""


def _make_locked(parent: Path) -> _Sockets:
    while True:
        directory = Path(tempfile.mkdtemp(prefix="", dir=parent))
        lock = _lock(directory)
        if lock is not None:  # else another session's sweep was quicker
            return _Sockets(directory, lock)


def _lock(directory: Path) -> "Lock | None":
    """Return the directory's lock, taken; None: another one has it, or the directory is gone."""
    from ottla.env.real_disk import RealDisk

    try:
        lock = RealDisk().lock(str(directory / "lock"))
    except OSError:
        return None
    if (directory / "lock").exists():
        return lock
    lock.release()
    return None


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended."""
    for each in parent.iterdir():
        lock = _lock(each)
        if lock is not None:
            shutil.rmtree(each, ignore_errors=True)
            lock.release()


def _made(name: str, text: str, mode: int) -> Path:
    directory = _home(os.environ) / hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()[:16]
    path = directory / name
    try:
        if path.read_text(encoding="utf-8") == text and os.access(path, os.R_OK):
            return path
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two sessions may start at once: each writes a file of its own, and the last name wins.
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(fresh).chmod(mode)
    Path(fresh).replace(path)
    return path


def _home(environment: Mapping[str, str]) -> Path:
    """Return a directory that this user alone can write to and that outlives the session."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    directory = Path(cache) / DIRECTORY
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        directory = Path(tempfile.gettempdir()) / f"{DIRECTORY}-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
    if not os.access(directory, os.W_OK) or directory.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix=f"{DIRECTORY}-"))
    return directory
