"""The staging location itself: files written by tasks, read and removed by the driver.

It stands between ``sink_task`` and ``outgoing`` and uses pyarrow's file systems; ``staged_files``
owns the content and the names of files. Every error of a file system becomes a StagingError that
names the location. No file is synced, for none outlives its micro-batch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import fs

from ottla.ids import TopicPartition
from ottla.spark.writing.staged_files import (
    IS_ATTEMPT,
    IS_OWNER,
    MAGIC,
    SUFFIX,
    Entry,
    Index,
    IndexBuilder,
    StagedFile,
    check_batch,
    check_size,
)
from ottla.spark.writing.staging_place import (
    LOCATION,
    Place,
    StagingError,
    holds,
    local_path,
    without_secrets,
)

BUFFER_BYTES = 1 << 20
SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls file systems that pyarrow has under another name."""
NEEDED = f"the option {LOCATION} names a directory or URI that the driver and all executors share"


class Location:
    """A staging location. Paths are below it. Every method raises StagingError."""

    def __init__(self, location: str, system: fs.FileSystem | None = None) -> None:
        """Find the file system; ``system`` is given by tests."""
        self.name = location
        path = local_path(location)
        if system is not None or path is not None:
            self._system, self._base = system or fs.LocalFileSystem(), path or location
            return
        scheme, colon, rest = location.partition(":")
        with self._says("cannot be used"):
            uri = SCHEMES.get(scheme.lower(), scheme) + colon + rest
            self._system, self._base = fs.FileSystem.from_uri(uri)

    def create(self, path: str) -> pa.NativeFile:
        """Return a new file to write to, in a directory that need not be there."""
        with self._says(f"{path} cannot be written"):
            self._system.create_dir(self._full(path.rpartition("/")[0]), recursive=True)
            return self._system.open_output_stream(
                self._full(path), compression=None, buffer_size=BUFFER_BYTES
            )

    def write(self, file: pa.NativeFile, data: "bytes | memoryview") -> None:
        """Write all of ``data``."""
        with self._says("a file cannot be written"):
            file.write(data)

    def finish(self, file: pa.NativeFile) -> None:
        """Close a file that was written; it is there then."""
        with self._says("a file cannot be written"):
            file.close()

    def remove_file(self, path: str) -> None:
        """Remove a file."""
        with self._says(f"{path} cannot be removed"):
            self._system.delete_file(self._full(path))

    def index(self, file: StagedFile) -> Index:
        """Return what is in a file, which is the one that was written as far as its ends tell."""
        with (
            self._says(self._missing(file)),
            self._system.open_input_file(self._full(file.path)) as found,
        ):
            check_size(file, found.size())
            magic = found.read(len(MAGIC))
            found.seek(file.index_position)
            return Index(file, magic, found.read())

    def batches(self, file: StagedFile) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield the batches of a file, each as it was written."""
        index = self.index(file)
        with self._says(self._missing(file)):
            stream = self._system.open_input_stream(
                self._full(file.path), compression=None, buffer_size=BUFFER_BYTES
            )
            stream.read(len(MAGIC))
        try:
            for entry in index:
                yield entry.partition, self._read(file, stream, entry)
        finally:
            stream.close()

    def directories(self) -> list[str]:
        """Return the directories that are named as attempts are, as ``<owner>/<attempt>``.

        Nothing else is looked into: the location may hold much that is not ours.
        """
        with self._says("cannot be listed"):
            return sorted(
                f"{owner}/{attempt}"
                for owner in self._names(self._base)
                if IS_OWNER(owner)
                for attempt in self._names(self._full(owner))
                if IS_ATTEMPT(attempt)
            )

    def _names(self, path: str) -> list[str]:
        """Return the names of the directories in one; none when it is gone."""
        found = self._system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [each.base_name for each in found if each.type is fs.FileType.Directory]

    def remove(self, directory: str) -> None:
        """Remove an attempt with all its files. Harmless when it is gone."""
        with self._says(f"{directory} cannot be removed"), suppress(FileNotFoundError):
            self._system.delete_dir(self._full(directory))

    def _read(self, file: StagedFile, stream: pa.NativeFile, entry: Entry) -> bytearray:
        batch = bytearray(entry.size_bytes)
        view, done = memoryview(batch), 0
        with self._says(f"{file.path} cannot be read"):
            while done < len(view):
                count = stream.readinto(view[done:])
                if not count:
                    break
                done += count
        check_batch(file, entry, batch)
        return batch

    def _full(self, path: str) -> str:
        return f"{self._base.rstrip('/')}/{path}"

    def _missing(self, file: StagedFile) -> str:
        return f"{file.path}, which a task on {file.host} has written, cannot be read by the driver"

    @contextmanager
    def _says(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            message = f"staging in {without_secrets(self.name)}: {what} ({error}). {NEEDED}"
            raise StagingError(message) from error


class StagingWriter:
    """Writes the file of one task. ``finish`` or ``abandon`` ends it."""

    def __init__(self, place: Place | None, directory: str, name: str) -> None:
        """Open the file at once. ``name`` is another for each attempt of each task."""
        host = os.uname().nodename
        if place is None or not holds(place.proof):
            where = "there is no place for that"
            if place is not None:
                where = f"{without_secrets(place.location)} of the driver is not there on {host}"
            message = (
                "the rows of this task take more room than its message to the driver has, so they "
                f"are to be staged in a file, and {where}. {NEEDED}; or raise exactlyOnceMaxBytes, "
                "if the driver has memory for that"
            )
            raise StagingError(message)
        self._location = Location(place.location)
        self._path = f"{directory}/{name}{SUFFIX}"
        self._host = host
        self._index = IndexBuilder()
        self._is_finished = False  # a file that could not be closed is closed, and there
        self._file = self._location.create(self._path)
        self._location.write(self._file, MAGIC)

    def write(self, partition: TopicPartition, batch: memoryview) -> None:
        """Write a batch."""
        self._index.add(partition, batch)
        self._location.write(self._file, batch)

    def finish(self) -> StagedFile:
        """Close the file, and return what the driver has to know."""
        index_position = self._index.position
        index, crc = self._index.finish()
        self._location.write(self._file, index)
        self._location.finish(self._file)
        self._is_finished = True
        size_bytes = index_position + len(index)
        name = self._location.name
        return StagedFile(name, self._path, size_bytes, index_position, crc, self._host)

    def abandon(self) -> None:
        """Remove the file, if that can be done: the task has failed. Harmless when finished."""
        if not self._is_finished:
            with suppress(StagingError):
                self._location.finish(self._file)
            with suppress(StagingError):
                self._location.remove_file(self._path)
