"""The disk port of one life: a FaultyDisk over the memory disk that outlives it.

Counts every call and every open file; fails calls by chance while the disk is in trouble; ends the
life at a chosen call. What the calls of a dead life would do does not happen.
"""

import errno
import gc
import os
from contextlib import contextmanager
from types import FrameType, MethodType

from ottla.env.faulty_disk import (
    CHANGES,
    DiskCall,
    DiskKilled,
    FaultyDisk,
    FaultyFile,
    PlannedFault,
)
from ottla.env.sync_queue import SyncJob
from ottla.log.files.layout import LOG_SUFFIX

CALL_SECONDS = 2e-4
"""What a call takes that the loop itself makes: whoever makes many has to give way in time."""
TORN_CHANCE = 0.5
"""Of a write that is refused, that some of it is in the file all the same."""
TORN_BYTES = (1, 64, 300, 1000)
OF_NAMES = {DiskCall.RENAME, DiskCall.REMOVE, DiskCall.SYNC_DIRECTORY, DiskCall.TRUNCATE}
OF_NAMES |= {DiskCall.MAKE_DIRECTORY}
"""Before and after which another set of files is there."""
OF_INTEREST = OF_NAMES | {DiskCall.SYNC}
"""Before a sync the most is there that a power cut may take."""

READ_ONLY_REFUSES = (
    DiskCall.WRITE,
    DiskCall.TRUNCATE,
    DiskCall.MAKE_DIRECTORY,
    DiskCall.RENAME,
    DiskCall.REMOVE,
    DiskCall.LOCK,
)


class Fate:
    """The rng port of a power cut that is the same everywhere: nothing is lost, or everything."""

    def __init__(self, *, keeps):
        self._keeps = keeps

    def random_below(self, limit):
        return limit - 1 if self._keeps else 0

    def random_bytes(self, count):
        raise NotImplementedError


class Chance:
    """The rng port on one of the world's streams."""

    def __init__(self, stream):
        self._stream = stream

    def random_bytes(self, count):
        return self._stream.randbytes(count)

    def random_below(self, limit):
        return self._stream.randrange(limit)


def fate_of(stream):
    """Return what decides, in a power cut, of bytes and of names: see ``MemoryDisk.crash``."""
    return [
        Chance(stream) if stream.random() < 0.5 else Fate(keeps=stream.random() < 0.5)
        for _ in ("bytes", "names")
    ]


class Descriptors:
    """The open files of one process, sockets among them."""

    def __init__(self, limit):
        self.limit = limit
        self.count = 0
        self.paths = {}
        """Of the files among them, by the id of their object."""

    def has_room(self, reserve=0):
        return self.count + reserve < self.limit

    def count_kept(self):
        """Return how many are open, without the files that only a sync that has ended names.

        It may be at work still in a frame of the loop that stands below this one, and let go later.
        """
        found = [one for one in gc.get_objects() if id(one) in self.paths]
        named = 0
        while found:
            file = found.pop()
            named += all(
                isinstance(one, (SyncJob, MethodType, FrameType)) for one in gc.get_referrers(file)
            )
        return self.count - named


class Trouble:
    """What the device does wrong now: chances by call, and how slow it is."""

    def __init__(self):
        self.errors = {}
        """By call: (chance, errno, the log directory it is about or ''). """
        self.fails_once = ""
        """The log directory whose next sync meets an I/O error; '': none."""
        self.pace = 1.0
        self.store_pace = 1.0
        self.store_fails = False
        """The next commit of the metadata store meets an I/O error."""
        self.torn_writes = 0
        """How many writes of a log's bytes have been cut short."""
        self.has_lost_pages = False
        """A sync has failed: what reads back may not be on the device."""
        self.happened = lambda: None
        """Called when something has gone wrong that a fault may have waited for."""

    def heal(self):
        self.errors.clear()
        self.fails_once = ""
        self.pace = self.store_pace = 1.0
        self.store_fails = False


class SimulatedDisk(FaultyDisk):
    """One life's view of a node's disk."""

    def __init__(
        self, inner, *, jobs, life, rng, trace, trouble, descriptors, dies, looks, refused
    ):
        """``dies()`` is called when the chosen call has come: the life ends there.

        ``looks(call, path)`` is told of syncs and of calls that change names, before they are made,
        and ``refused(path)`` of a write to a log that leaves a part of itself.
        """
        super().__init__(inner)
        self._jobs = jobs
        self._life = life
        self._rng = rng
        self._trace = trace
        self._trouble = trouble
        self._descriptors = descriptors
        self._dies = dies
        self._looks = looks
        self._refused = refused
        self._locks = []
        self._is_unseen = False
        self.looks_at_open_file = False
        """Of the call that comes next."""

    @contextmanager
    def unseen(self):
        """Let judges call within: nothing is counted, traced or refused, and no time passes."""
        self._is_unseen = True
        try:
            yield
        finally:
            self._is_unseen = False

    def enter(self, call, path):
        needs_name, self.looks_at_open_file = not self.looks_at_open_file, False
        if self._is_unseen:
            return None
        job = self._jobs.running
        if job is not None:
            # A look at a file that is open needs no name, as no read of it does.
            job.call = (call, path) if needs_name else None
            self._jobs.pause()
            job.call = None
        elif self._jobs.loop.judge is not None:
            self._jobs.loop.judge.called(self._jobs.loop.life)
            self._jobs.loop.now += CALL_SECONDS
        if self._life.is_dead:
            raise DiskKilled(f"{call.value} {path}")
        if call in CHANGES:
            self._trace.note("disk", call._value_, path)
            if call in OF_INTEREST:
                self._looks(call, path)
        was_alive = not self.killed
        try:
            fault = super().enter(call, path)
        except DiskKilled:
            if was_alive:
                self._dies()
            raise
        trouble = self._trouble
        if trouble.fails_once and call is DiskCall.SYNC and path.startswith(trouble.fails_once):
            trouble.fails_once = ""
            trouble.has_lost_pages = True
            trouble.happened()
            self._trace.note("fault", call.value, "EIO", path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        chance, number, below = trouble.errors.get(call, (0, 0, ""))
        if chance and path.startswith(below) and self._rng.random() < chance:
            self._trace.note("fault", call.value, errno.errorcode[number], path)
            if call in (DiskCall.SYNC, DiskCall.SYNC_VOLUME):
                self._trouble.has_lost_pages = True
            if call is DiskCall.WRITE and self._rng.random() < TORN_CHANCE:
                torn_at = self._rng.choice(TORN_BYTES)
                if path.endswith(LOG_SUFFIX):
                    self._trouble.torn_writes += 1
                    self._trouble.happened()
                    self._refused(path)
                return PlannedFault(call, 0, number, lasting=False, written_bytes=torn_at)
            raise OSError(number, os.strerror(number), path)
        return fault

    def _has_descriptor(self, path):
        if not self._descriptors.has_room():
            self._trace.note("fault", "open", "EMFILE", path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def open(self, path, *, create=False, exclusive=False):
        self.enter(DiskCall.OPEN, path)
        self._has_descriptor(path)
        inner = self._inner.open(path, create=create, exclusive=exclusive)
        return SimulatedFile(self, inner, self._descriptors)

    def open_read_only(self, path):
        self.enter(DiskCall.OPEN, path)
        self._has_descriptor(path)
        return SimulatedFile(self, self._inner.open_read_only(path), self._descriptors)

    def _can_open_directory(self, path):
        """As who opens a file: the machine may have no descriptor, or the process."""
        self._has_descriptor(path)
        chance, number, below = self._trouble.errors.get(DiskCall.OPEN, (0, 0, ""))
        if number == errno.ENFILE and path.startswith(below) and self._rng.random() < chance:
            self._trace.note("fault", "open directory", "ENFILE", path)
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE), path)

    def sync_directory(self, path):
        if path not in self._held:
            self._can_open_directory(path)
        super().sync_directory(path)

    def list_directory(self, path):
        self._can_open_directory(path)
        return super().list_directory(path)

    def lock(self, path):
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def died(self):
        """The process has ended: its locks are free."""
        self.kill()
        for lock in self._locks:
            lock.release()


class SimulatedFile(FaultyFile):
    """A file that counts as a descriptor until it is closed."""

    def __init__(self, disk, inner, descriptors):
        super().__init__(disk, inner)
        self._descriptors = descriptors
        self._is_open = True
        descriptors.count += 1
        descriptors.paths[id(self)] = inner.path

    def size(self):
        self._disk.looks_at_open_file = True
        return super().size()

    def close(self):
        if self._is_open:
            self._is_open = False
            self._descriptors.count -= 1
            del self._descriptors.paths[id(self)]
        super().close()

    def __del__(self):
        # As the real one: a descriptor that nobody has any more is closed.
        if self._is_open:
            self._descriptors.count -= 1
            del self._descriptors.paths[id(self)]
