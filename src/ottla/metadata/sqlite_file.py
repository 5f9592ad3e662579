"""The SQLite file behind the embedded metadata store: its tables, and each operation as one call.

Everything here blocks and runs in one thread. Owns the tables; knows nothing of when sessions end,
of watchers or of the loop. Each row has a checksum, because SQLite has none: a flipped bit raises
CorruptFile and never gives a wrong value. Source: cluster design 4.1; reliability rules 2-4.

    kv    key, value, create_rev, mod_rev, session, checksum                       the entries now
    log   rev, ordinal, key, value (NULL: deleted), create_rev, session, checksum  the history
    state revision (newest), compacted (newest revision not in log), next_session
"""

import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.metadata.history import CHANGE_BYTES, HISTORY_BYTES, Retention, size_of
from ottla.metadata.sqlite_room import FREE_PAGES, Room, add_free_pages
from ottla.metadata.store import (
    NO_SESSION,
    Ambiguous,
    Change,
    ChangeSet,
    Delete,
    Entry,
    Guard,
    GuardFailed,
    Op,
    Put,
    Unavailable,
    failed_guard,
)

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

APPLICATION_ID = 0x4F74746C
"""The letters "Ottl" in the file's header, which mark the file as one of ours."""

FORMAT_VERSION = 1
_OWNER_ONLY = 0o600
_PAGE_CHANGE_SETS = 500
_LAST_CHARACTER = "\x7f"
_CHANGES_PER_LOOK = 512
"""After so many changes the free pages are counted: no look finds them all used up."""
_FULL = (
    "%s: its disk is full, and the metadata has used its own room: topics, leaders and members of "
    "ISRs stay as they are, and no node can start, until there is space"
)
_UNTIL = ": nothing in the metadata can change until there is space on its disk"
_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""Errors of the machine. Any other error means that the file is damaged, since all statements are
our own."""

_LASTING = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY})
"""Errors of a device that has failed: the file is not used any more. The other errors may pass: a
full disk, a moment without memory or descriptors."""
_SHORT_OF_MEMORY = sqlite3.SQLITE_IOERR_NOMEM

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
CREATE TABLE kv (
    key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, create_rev INTEGER NOT NULL,
    mod_rev INTEGER NOT NULL, session INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX kv_by_session ON kv (session) WHERE session <> 0;
CREATE TABLE log (
    rev INTEGER NOT NULL, ordinal INTEGER NOT NULL, key TEXT NOT NULL, value BLOB,
    create_rev INTEGER NOT NULL, session INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (rev, ordinal)
) WITHOUT ROWID;
CREATE TABLE state (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO state VALUES ('revision', 0), ('compacted', 0), ('next_session', 1);
"""  # noqa: S608 - two constants go in, nothing else.

_Row = tuple[str, bytes, int, int, int, int]


class SqliteFile:
    """An open metadata file. Every method blocks; all calls come from the thread that opened it."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        history_revisions: int,
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        """Open ``path``, or create it if it is absent.

        Raises CorruptFile for a damaged file and for one of another program. Never deletes or
        overwrites what it cannot read.
        """
        self._path = path
        self._retention = Retention(history_revisions, history_bytes)
        """Invariant: counts the change sets in the table ``log``."""
        self._logged_bytes: int | None = None
        """Use: the size of the change set that the current transaction logs; None: it logs none."""
        self.broken: str | None = None
        """Why the file cannot be used until it is opened again; None: it can be used."""
        self._is_out_of_use = False
        """Use: True: no call goes to the device any more."""
        self._is_folded = False
        """Use: True when what the last process wrote is durable, see ``_fold``."""
        self._room = Room(disk, path)
        self._changes_until_look = _CHANGES_PER_LOOK
        self._is_full = False
        """Use: whether the last change was refused for want of space; said once."""
        if not disk.exists(path):
            with self._named_errors():
                _create(disk, path)
        # It holds what passwords can be guessed with. SQLite gives its other files the same rights.
        with suppress(PermissionError):  # Somebody else's file, which we may write all the same.
            os.chmod(path, _OWNER_ONLY)
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            with self._named_errors():
                self._check_and_configure()
        except BaseException:
            self._connection.close()
            raise

    def revision(self) -> int:
        """Return the newest revision."""
        return self._state("revision")

    def next_session(self) -> int:
        """Return the lowest session id that no earlier process has used."""
        return self._state("next_session")

    def reserve_sessions(self, first_free: int) -> None:
        """Store that session ids below ``first_free`` are used."""
        self._write(lambda: self._set_state("next_session", first_free))

    def get(self, key: str) -> Entry | None:
        """Return the entry of ``key``, or None."""
        with self._named_errors():
            return self._get(key)

    def scan(self, prefix: str) -> tuple[list[Entry], int]:
        """Return the entries under ``prefix``, sorted by key, and the revision."""
        with self._named_errors():
            rows = self._connection.execute(
                "SELECT key, value, create_rev, mod_rev, session, checksum FROM kv"
                " WHERE key >= ? AND key < ? ORDER BY key",
                (prefix, prefix + _LAST_CHARACTER),
            ).fetchall()  # An unfinished cursor would keep the file locked after an error below.
            # One thread and one connection: no commit can come in between.
            return [self._entry(row) for row in rows], self.revision()

    def commit(self, guards: Sequence[Guard], ops: Sequence[Op]) -> ChangeSet | None:
        """Apply ``ops`` durably if ``guards`` hold; return the changes, None if there are none.

        Raises GuardFailed, Unavailable (nothing happened), Ambiguous (the disk failed during the
        commit; nothing works until the file is opened again).
        """

        def change() -> ChangeSet | None:
            for guard in guards:
                found = self._get(guard.key)
                if failed_guard(guard, found):
                    raise GuardFailed(guard, found)
            return self._apply(ops)

        return self._write(change)

    def delete_session(self, session: int | None) -> ChangeSet | None:
        """Delete the keys of ``session`` (None: of all sessions) in one commit of any size."""

        def change() -> ChangeSet | None:
            rows = self._connection.execute(
                "SELECT key FROM kv WHERE session <> 0 AND (?1 IS NULL OR session = ?1)"
                " ORDER BY key",
                (session,),
            ).fetchall()
            return self._apply([Delete(key) for (key,) in rows])

        return self._write(change)

    def history(self, from_rev: int) -> list[ChangeSet]:
        """Return a page of change sets from ``from_rev`` on; none when they are compacted."""
        with self._named_errors():
            rows = self._connection.execute(
                "SELECT rev, key, value, create_rev, session, checksum FROM log"
                " WHERE rev >= ? AND rev < ? ORDER BY rev, ordinal",
                (from_rev, from_rev + _PAGE_CHANGE_SETS),
            ).fetchall()
            changes: dict[int, list[Change]] = {}
            for rev, key, value, create_rev, session, checksum in rows:
                self._check_row(key, value, (create_rev, rev, session), checksum)
                entry = None if value is None else Entry(key, value, create_rev, rev, session)
                changes.setdefault(rev, []).append(Change(key, entry))
        return [ChangeSet(rev, tuple(of_rev)) for rev, of_rev in changes.items()]

    def close(self) -> None:
        """Move the write-ahead log into the file and close it."""
        self._connection.close()

    def _check_and_configure(self) -> None:
        execute = self._connection.execute
        # Exclusive: no other program may change keys without the watchers. Before anything is read:
        # no file of shared memory is made, for which a full disk may have no space.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (application_id,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        if application_id != APPLICATION_ID:
            raise CorruptFile(self._path, "not a metadata file of Ottla's")
        if version != FORMAT_VERSION:
            raise CorruptFile(
                self._path, f"metadata format {version}; this Ottla reads {FORMAT_VERSION}"
            )
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise CorruptFile(self._path, verdict)
        self.revision()
        found = execute(
            "SELECT COUNT(*), SUM(LENGTH(key) + IFNULL(LENGTH(value), 0)) FROM log"
            " GROUP BY rev ORDER BY rev"
        ).fetchall()
        for count, size_bytes in found:
            self._retention.load(count * CHANGE_BYTES + size_bytes)

    def _state(self, name: str) -> int:
        row = self._connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise CorruptFile(self._path, f"its state lacks {name}")
        return int(row[0])

    def _get(self, key: str) -> Entry | None:
        row = self._connection.execute(
            "SELECT key, value, create_rev, mod_rev, session, checksum FROM kv WHERE key = ?",
            (key,),
        ).fetchone()
        return None if row is None else self._entry(row)

    def _entry(self, row: _Row) -> Entry:
        key, value, create_rev, mod_rev, session, checksum = row
        self._check_row(key, value, (create_rev, mod_rev, session), checksum)
        return Entry(key, value, create_rev, mod_rev, session)

    def _check_row(
        self, key: str, value: bytes | None, numbers: tuple[int, int, int], checksum: int
    ) -> None:
        if _checksum(key, value, numbers) != checksum:
            raise CorruptFile(self._path, f"the checksum of {key!r} does not match its content")

    def _apply(self, ops: Sequence[Op]) -> ChangeSet | None:
        rev = self.revision() + 1
        changes: list[Change] = []
        for op in ops:
            old = self._get(op.key)
            if isinstance(op, Put):
                create_rev = rev if old is None else old.create_rev
                entry = Entry(op.key, bytes(op.value), create_rev, rev, op.session)
                self._connection.execute(
                    "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?, ?, ?)",
                    (*entry, _checksum(entry.key, entry.value, entry[2:])),
                )
                changes.append(Change(op.key, entry))
            elif old is not None:
                self._connection.execute("DELETE FROM kv WHERE key = ?", (op.key,))
                changes.append(Change(op.key, None))
        if not changes:
            return None
        self._connection.executemany(
            "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)",
            (_log_row(rev, ordinal, change) for ordinal, change in enumerate(changes)),
        )
        self._set_state("revision", rev)
        change_set = ChangeSet(rev, tuple(changes))
        self._compact(size_of(change_set))
        return change_set

    def _compact(self, size_bytes: int) -> None:
        """Drop the oldest change sets to make room for the newest, which is in the log already."""
        self._logged_bytes = size_bytes
        dropped = self._retention.dropped_by(size_bytes)
        if dropped:
            compacted = self._state("compacted") + dropped
            self._connection.execute("DELETE FROM log WHERE rev <= ?", (compacted,))
            self._set_state("compacted", compacted)

    def _set_state(self, name: str, value: int) -> None:
        self._connection.execute("UPDATE state SET value = ? WHERE name = ?", (value, name))

    def _write(self, change: Callable[[], Result]) -> Result:
        """Call ``change`` in a transaction; return its result when that is durable.

        Without space it is called once more for each way to find some.
        """
        with self._named_errors():
            result = self._with_all_room(lambda: self._durably(change))
        if self._is_full and self._room.has_space():
            self._is_full = False
            logger.warning("%s: there is space for the metadata again", self._path)
        self._changes_until_look -= 1
        if self._changes_until_look <= 0 or not self._room.has_reserve:
            self.keep_room()
        return result

    def _with_all_room(self, write: Callable[[], Result]) -> Result:
        refused: sqlite3.Error | None = None
        for find_room in (None, self._empty_log, self._use_reserve):
            try:
                if find_room is None or find_room():
                    return write()
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_FULL:
                    raise
                refused = error
        assert refused is not None, "all ways have failed"
        if not self._is_full:
            self._is_full = True
            logger.error(_FULL, self._path)
        raise refused

    def _empty_log(self) -> bool:
        """Move what is in the log into the file: what comes next takes its place."""
        found = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(found[1] == found[2])

    def _use_reserve(self) -> bool:
        if not self._room.give_up():
            return False
        logger.error("%s: its disk is full: the metadata uses its reserve, make space", self._path)
        self._room.take_log()
        try:
            self._empty_log()
        except sqlite3.Error as error:  # The log may have room now although the file has none.
            if _code(error) != sqlite3.SQLITE_FULL:
                raise
        return True

    def _durably(self, change: Callable[[], Result]) -> Result:
        if not self._is_folded:
            self._fold()
        self._connection.execute("BEGIN IMMEDIATE")
        self._logged_bytes = None
        try:
            result = change()
        except BaseException:
            self._roll_back()
            raise
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _code(error) == sqlite3.SQLITE_FULL:
                raise
            # The device may or may not have the data, and a second fsync would prove nothing:
            # a failed fsync is never repeated (reliability rule 2).
            self._break(f"{error} while committing")
            raise Ambiguous(f"{self._path}: {error} while committing") from error
        if self._logged_bytes is not None:
            self._retention.add(self._logged_bytes)
        return result

    def _fold(self) -> None:
        """Move what the last process left in the write-ahead log into the file, durably.

        What it left can be read, but its sync may have failed. At a power cut it would be lost,
        together with all commits after it. Moving writes its pages again (reliability rule 2).
        """
        (is_busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._is_folded = not is_busy
        self._room.take_log()

    def keep_room(self) -> None:
        """Take what a full disk could refuse later, if there is space now. Raises nothing."""
        self._changes_until_look = _CHANGES_PER_LOOK
        with suppress(Unavailable, Ambiguous), self._named_errors():
            (free_pages,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            missing = FREE_PAGES - free_pages
            if missing > FREE_PAGES // 2 and self._room.may_take():
                self._durably(lambda: add_free_pages(self._connection, missing))
        self._room.take_reserve()

    def _break(self, why: str) -> None:
        self.broken, self._is_out_of_use = why, True

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        if self._is_out_of_use:
            raise Unavailable(f"{self._path} is out of use: {self.broken}")
        try:
            yield
        except sqlite3.Error as error:
            if _code(error) not in _ENVIRONMENT:
                self.broken = f"it is damaged: {error}"
                raise CorruptFile(self._path, str(error)) from error
            if _code(error) in _LASTING and _whole_code(error) != _SHORT_OF_MEMORY:
                self._break(str(error))
            until = _UNTIL if _code(error) == sqlite3.SQLITE_FULL else ""
            raise Unavailable(f"{self._path}: {error}{until}") from error
        except CorruptFile as error:
            self.broken = f"it is damaged: {error}"
            raise


def _create(disk: Disk, path: str) -> None:
    """Create an empty metadata file, whole or not at all (reliability rule 3)."""
    unfinished = f"{path}.tmp"
    for leftover in (unfinished, f"{unfinished}-journal"):
        if disk.exists(leftover):
            disk.remove(leftover)
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # All is synced below, at once.
        connection.executescript(_SCHEMA)
        add_free_pages(connection, FREE_PAGES)
    finally:
        connection.close()
    file = disk.open(unfinished)
    file.sync()
    file.close()
    disk.rename(unfinished, path)
    disk.sync_directory(path.rpartition("/")[0] or ".")


def _checksum(key: str, value: bytes | None, numbers: tuple[int, int, int]) -> int:
    seed = zlib.crc32(f"{key}\n{numbers}\n{value is None}\n".encode())
    return zlib.crc32(value or b"", seed)


def _log_row(
    rev: int, ordinal: int, change: Change
) -> tuple[int, int, str, bytes | None, int, int, int]:
    entry = change.entry
    if entry is None:
        value, create_rev, session = None, 0, NO_SESSION
    else:
        value, create_rev, session = entry.value, entry.create_rev, entry.session
    checksum = _checksum(change.key, value, (create_rev, rev, session))
    return rev, ordinal, change.key, value, create_rev, session, checksum


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; the high bits only refine it."""
    return _whole_code(error) & 0xFF


def _whole_code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0))
