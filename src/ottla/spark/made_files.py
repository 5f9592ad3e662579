"""Small files that a local session needs on disk: launchers and a configuration, made when missing.

Each lies in a directory named after its content, so that versions, environments and users never
meet, and nothing has to be cleaned up. And the directory of its sockets. Standard library only.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

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
    """Return a directory for Unix domain sockets that nobody else can reach; None: no such place.

    Whoever reaches the sockets of Spark's Python processes may have them run anything.
    """
    directory = _home(os.environ) / "sockets"
    if len(os.fsencode(directory)) > SOCKET_DIRECTORY_BYTES_MAX:
        return None
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory if directory.stat().st_mode & 0o077 == 0 else None


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
