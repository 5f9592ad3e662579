"""A directory of secrets: only its owner may read it, and what is in it is not overwritten.

Owns how secrets reach a disk: each file is there in full or not at all, with mode 0600. Used at a
start, before there is a loop; not for the data of a broker.
"""

import os
import stat
import tempfile
from typing import NamedTuple

FILE_BYTES_MAX = 1024 * 1024
"""The largest file that is read."""


class NotPrivate(OSError):
    """Somebody else may read or change a secret; the text says which, and what to type."""


class PrivateDirectory(NamedTuple):
    """An absolute path. All methods block and raise OSError."""

    path: str

    def make(self) -> bool:
        """Make the directory if it is missing; True: it was. Raises NotPrivate."""
        try:
            os.makedirs(self.path, mode=0o700)
        except FileExistsError:
            found = os.stat(self.path)
            if not stat.S_ISDIR(found.st_mode):
                raise
            if found.st_mode & 0o022:
                why = f"others may write to {self.path}; chmod 700 {self.path}"
                raise NotPrivate(why) from None
            return False
        return True

    def of(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return os.path.join(self.path, name)

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return os.path.exists(self.of(name))

    def read(self, name: str, *, is_secret: bool = True) -> str:
        """Return a file's text; UTF-8. Raises NotPrivate, ValueError for what is too large."""
        with open(self.of(name), "rb") as file:
            if is_secret and os.fstat(file.fileno()).st_mode & 0o077:
                path = self.of(name)
                raise NotPrivate(f"others may read {path}; chmod 600 {path}")
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"{self.of(name)} is larger than {FILE_BYTES_MAX} bytes")
        return content.decode()

    def keep(self, name: str, text: str) -> None:
        """Write a file, unless there is one: that one stays."""
        temporary = self._write(text, is_lasting=True)
        try:
            os.link(temporary, self.of(name))
        except FileExistsError:
            pass  # Another start was quicker.
        finally:
            os.unlink(temporary)

    def replace(self, name: str, text: str) -> None:
        """Write a file, in the place of what is there. One with the same contents stays."""
        try:
            with open(self.of(name), encoding="utf-8") as file:
                if file.read(FILE_BYTES_MAX) == text:
                    return
        except (FileNotFoundError, UnicodeDecodeError):
            pass
        os.replace(self._write(text, is_lasting=False), self.of(name))

    def _write(self, text: str, *, is_lasting: bool) -> str:
        descriptor, path = tempfile.mkstemp(prefix=".making-", dir=self.path)  # 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                if is_lasting:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError:  # The disk is full. Half a secret does not stay.
            os.unlink(path)
            raise
        return path
