"""The files in which tasks hand their record batches to the driver: layout, names, sizes. Pure.

A task's commit message passes through the heap of the driver's JVM, so it has to be small. Larger
batches go to a file in the staging location, and the message names it (``StagedFile``). ``staging``
writes and reads the files. No file outlives a micro-batch: it is of use from the task's end to the
commit, and is not synced, since a batch that was cut short begins anew.

    location   <owner> / <attempt> / <file>
    owner      whose transactions these are, as far as it fits a name, and a hash of it
    attempt    <number of the micro-batch>-<when, ms, hex>-<random>, of one try of one micro-batch
    file       magic batch* index
    magic      "ottla staged 1" and two line ends
    batch      a record batch of format v2, complete but for who writes it and its sum
    index      uint32 length, JSON list of topic names, entry*     big-endian
    entry      uint32 topic (place in the list), partition, size of the batch, its CRC32C

The batches lie one behind the other in the index's order, so sizes are positions. The message has
the file's size and where the index begins, with its CRC32C: they tell the file from any
other. Decision: docs/adr, large batches are staged in files.
"""

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from ottla.ids import TopicPartition
from ottla.records.batch import HEADER_SIZE_BYTES
from ottla.records.crc import crc32c
from ottla.spark.writing.staging_place import Attempt, StagingError, without_secrets

MAGIC = b"ottla staged 1\n\n"
LENGTH = Struct(">I")
ENTRY = Struct(">IIII")
SUFFIX = ".batches"
NO_BATCH = "job"
"""Stands for the number of a job that is no micro-batch."""
NAME_CHARS_MAX = 60
ABANDONED_MS = 7 * 24 * 3_600_000
"""So old, an attempt is of a query that nobody has started again."""
JOBS = "jobs"
IS_OWNER = re.compile(rf"{JOBS}|.*-[0-9a-f]{{12}}").fullmatch
IS_ATTEMPT = re.compile(rf"({NO_BATCH}|[0-9]+)-([0-9a-f]{{11}})-([0-9a-f]{{12}})").fullmatch
"""As exact as names are made: a location may have other data, such as a directory 2026-11-27."""

MESSAGE_BYTES_MIN = 1 << 10
"""What any task may put into its message: Spark's own part of it is as large."""
LEVEL = 8
"""The first 8 tasks share half of what is allowed, the next 64 half of the rest, and so on."""


class StagedFile(NamedTuple):
    """A file as the task's message names it."""

    location: str
    path: str
    """Below the location."""
    size_bytes: int
    index_position: int
    index_crc: int
    host: str
    """Where the task ran, for people."""

    @property
    def directory(self) -> str:
        """The attempt's, below the location."""
        return self.path.rpartition("/")[0]


class Entry(NamedTuple):
    """A batch in a file."""

    partition: TopicPartition
    position: int
    size_bytes: int
    crc: int


def message_bytes_max(total_bytes: int, task: int) -> int:
    """Return what the task with this number (from 0) may put into its message.

    All tasks together, however many, stay below ``total_bytes``, but for ``MESSAGE_BYTES_MIN`` of
    each: a task does not know how many others there are, and need not.
    """
    first, share, count = 0, total_bytes // 2, LEVEL
    while task >= first + count and share // count >= MESSAGE_BYTES_MIN:
        first, share, count = first + count, share // 2, count * LEVEL
    return max(share // count, MESSAGE_BYTES_MIN)


def attempt_directory(attempt: Attempt, owner: str | None, number: int | None) -> str:
    """Return where an attempt's files are. None: a job that is no micro-batch, or of nobody."""
    first = NO_BATCH if number is None or owner is None else str(number)
    return f"{owner_directory(owner)}/{first}-{attempt.made_ms:011x}-{attempt.random}"


def owner_directory(owner: str | None) -> str:
    """Return the name of the directory of a transactional id; None: jobs that come once."""
    if owner is None:
        return JOBS
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", owner)[:NAME_CHARS_MAX]
    return f"{readable}-{blake2b(owner.encode(), digest_size=6).hexdigest()}"


def orphans(
    directories: Iterable[str], owner: str | None, done: int | None, now_ms: int
) -> list[str]:
    """Return which of ``<owner>/<attempt>`` nobody will ask for any more.

    Those of ``owner`` up to the micro-batch ``done``, which is committed (None: none is), whichever
    driver made them; and of anybody what is older than a week. Others' names are left alone.
    """
    found = []
    for each in directories:
        whose, _, attempt = each.partition("/")
        parts = IS_ATTEMPT(attempt)
        if parts is None or not IS_OWNER(whose):
            continue
        number, made_ms = parts[1], int(parts[2], 16)
        is_done = done is not None and number != NO_BATCH and int(number) <= done
        if (is_done and whose == owner_directory(owner)) or now_ms - made_ms > ABANDONED_MS:
            found.append(each)
    return sorted(found)


class IndexBuilder:
    """Notes the batches of a file as they are written."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        self._entries = bytearray()
        self.position = len(MAGIC)
        """Where the next batch begins; at the end, the index."""

    def add(self, partition: TopicPartition, batch: memoryview) -> None:
        """Note a batch."""
        topic = self._topics.setdefault(partition.topic, len(self._topics))
        self._entries += ENTRY.pack(topic, partition.partition, len(batch), crc32c(batch))
        self.position += len(batch)

    def finish(self) -> tuple[bytes, int]:
        """Return the index and its checksum."""
        topics = json.dumps(list(self._topics)).encode()
        index = LENGTH.pack(len(topics)) + topics + self._entries
        return index, crc32c(index)


def check_size(file: StagedFile, size_bytes: int) -> None:
    """Raise StagingError unless a file that was found is as long as the one that was written."""
    if size_bytes != file.size_bytes:
        raise StagingError(f"{_describe(file)} has {size_bytes} bytes, not {file.size_bytes}")


def batch_count_max(file: StagedFile) -> int:
    """Return how many batches a file has, or a few more: topics have names in the index, too."""
    return (file.size_bytes - file.index_position) // ENTRY.size


class Index:
    """The batches of a file, in their order."""

    def __init__(self, file: StagedFile, magic: bytes, index: bytes) -> None:
        """Take what stands in the file. Raises StagingError unless the task has written it."""
        if magic != MAGIC or crc32c(index) != file.index_crc:
            raise StagingError(f"{_describe(file)} is another one than the task has written")
        start = LENGTH.size + LENGTH.unpack_from(index)[0]
        self._topics: list[str] = json.loads(index[LENGTH.size : start])
        self._entries = memoryview(index)[start:]
        self._file = file

    def __iter__(self) -> Iterator[Entry]:
        position = len(MAGIC)
        for topic, partition, size_bytes, crc in ENTRY.iter_unpack(self._entries):
            assert size_bytes >= HEADER_SIZE_BYTES, "a batch has a header"
            yield Entry(TopicPartition(self._topics[topic], partition), position, size_bytes, crc)
            position += size_bytes
        assert position == self._file.index_position, "the index is of this file"

    def partitions(self) -> set[TopicPartition]:
        """Return whose batches these are."""
        found = {(topic, partition) for topic, partition, _, _ in ENTRY.iter_unpack(self._entries)}
        return {TopicPartition(self._topics[topic], partition) for topic, partition in found}


def check_batch(file: StagedFile, entry: Entry, batch: bytearray) -> None:
    """Raise StagingError unless these are the bytes that were written."""
    if crc32c(batch) != entry.crc:
        raise StagingError(
            f"{_describe(file)}: the batch for {entry.partition} at byte {entry.position} is not "
            "what was written"
        )


def _describe(file: StagedFile) -> str:
    return f"the staged file {file.path} in {without_secrets(file.location)}"
