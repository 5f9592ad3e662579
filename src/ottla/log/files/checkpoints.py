r"""The small text files beside the segments: read exactly or not at all, replaced atomically.

Owns the formats of Kafka's checkpoint files and how a small file is replaced so that a power cut
leaves the old or the new one (reliability rule 4). Formats that are Kafka's have no checksum: the
count line and an exact parse decide. Absent, torn or foreign means None, and the caller takes its
slower way. Grammars (every line ends with "\n"; the last one may lack it):

    offset checkpoint  = "0" count { topic " " partition " " offset }
    epoch checkpoint   = "0" count { epoch " " start_offset }
    partition.metadata = "version: 0" "topic_id: " 22 characters
    meta.properties    = { "#" comment } { key "=" value }
"""

from collections.abc import Iterable, Mapping
from posixpath import dirname
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.errors import CorruptFile
from ottla.ids import TopicId, TopicPartition, parse_topic_id, topic_id_text
from ottla.log.files.faults import sync, sync_directory
from ottla.log.files.layout import TEMPORARY_SUFFIX

_VERSION = "0"
_SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024
"""No file of this room grows near it: a larger one is not ours to read into memory."""


def replace_file(disk: Disk, path: str, text: str, *, is_synced: bool = True) -> None:
    """Make ``text`` the content of ``path``: durable and whole when this returns. Blocks.

    After a power cut at any moment the file holds its old content or all of the new one. Without
    ``is_synced`` its name is durable only when the caller has synced the directory.
    """
    temporary = path + TEMPORARY_SUFFIX
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True, exclusive=True)
    try:
        file.write_at(0, text.encode())
        sync(file)
    finally:
        file.close()
    disk.rename(temporary, path)
    if is_synced:
        sync_directory(disk, dirname(path))


def read_file(disk: Disk, path: str) -> str | None:
    """Return the text in ``path``; None when it is missing, empty, too large or not UTF-8."""
    try:
        file = disk.open_read_only(path)
    except FileNotFoundError:
        return None
    try:
        size_bytes = file.size()
        if size_bytes > _SMALL_FILE_BYTES_MAX:
            return None
        return file.read_at(0, size_bytes).decode() or None
    except UnicodeDecodeError:
        return None
    finally:
        file.close()


def _counted_lines(text: str | None) -> list[str] | None:
    """Return the lines under a version and a right count, or None."""
    if text is None:
        return None
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        return None
    return lines[2:]


def _natural(text: str) -> int:
    """Return the number that ``text`` is the plain decimal of, or raise ValueError."""
    number = int(text)
    if number < 0 or str(number) != text:
        raise ValueError(text)
    return number


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint ``path`` by ``offsets``. Blocks."""
    lines = [f"{topic} {number} {offset}\n" for (topic, number), offset in offsets.items()]
    replace_file(disk, path, f"{_VERSION}\n{len(lines)}\n{''.join(lines)}")


def read_offset_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    """Return the offsets in the checkpoint ``path``; None when absent or not exactly one."""
    lines = _counted_lines(read_file(disk, path))
    if lines is None:
        return None
    offsets: dict[TopicPartition, int] = {}
    for line in lines:
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, _natural(partition))] = _natural(offset)
        except ValueError:
            return None
    return offsets if len(offsets) == len(lines) else None


class EpochStart(NamedTuple):
    """The first offset that a leader of ``epoch`` wrote."""

    epoch: int
    start_offset: int


def write_epoch_checkpoint(disk: Disk, path: str, entries: Iterable[EpochStart]) -> None:
    """Replace the leader epoch checkpoint ``path``. Blocks."""
    lines = [f"{epoch} {start_offset}\n" for epoch, start_offset in entries]
    replace_file(disk, path, f"{_VERSION}\n{len(lines)}\n{''.join(lines)}")


def read_epoch_checkpoint(disk: Disk, path: str) -> list[EpochStart] | None:
    """Return the entries of ``path``, ascending; None when absent or not exactly a checkpoint."""
    lines = _counted_lines(read_file(disk, path))
    if lines is None:
        return None
    entries: list[EpochStart] = []
    for line in lines:
        try:
            epoch, start_offset = map(_natural, line.split(" "))
        except ValueError:
            return None
        if entries and (epoch <= entries[-1].epoch or start_offset < entries[-1].start_offset):
            return None
        entries.append(EpochStart(epoch, start_offset))
    return entries


def write_partition_metadata(
    disk: Disk, path: str, topic_id: TopicId, *, is_synced: bool = True
) -> None:
    """Say durably that the partition directory belongs to the topic ``topic_id``. Blocks.

    ``is_synced``: see ``replace_file``.
    """
    text = f"version: 0\ntopic_id: {topic_id_text(topic_id)}\n"
    replace_file(disk, path, text, is_synced=is_synced)


def read_partition_metadata(disk: Disk, path: str) -> TopicId | None:
    """Return the topic id in ``path``, or None when absent or unreadable."""
    text = read_file(disk, path)
    lines = [] if text is None else text.removesuffix("\n").split("\n")
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        return None
    try:
        return parse_topic_id(lines[1].removeprefix("topic_id: "))
    except ValueError:
        return None


class MetaProperties(NamedTuple):
    """Whose log directory it is. ``directory_id`` tells directories of one node apart."""

    cluster_id: str
    node_id: int
    directory_id: str


def write_meta_properties(disk: Disk, path: str, meta: MetaProperties) -> None:
    """Write the identity of a log directory. Blocks."""
    pairs = {
        "version": "1",
        "cluster.id": meta.cluster_id,
        "node.id": str(meta.node_id),
        "directory.id": meta.directory_id,
    }
    replace_file(disk, path, "".join(f"{key}={value}\n" for key, value in pairs.items()))


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Return the identity of a log directory, or None when the file is missing or empty.

    Raises CorruptFile when it says something else: a foreign directory must not be taken over.
    """
    text = read_file(disk, path)
    if text is None:
        if disk.exists(path) and disk.size_of(path) > 0:
            raise CorruptFile(path, "not a text file; expected Kafka's meta.properties, version 1")
        return None
    pairs: dict[str, str] = {}
    for line in text.split("\n"):
        if line.strip() and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            pairs[key.strip()] = value.strip().replace("\\", "")
    try:
        if pairs["version"] != "1":
            raise CorruptFile(path, f"version {pairs['version']}, expected 1")
        node_id = _natural(pairs["node.id"])
        return MetaProperties(pairs["cluster.id"], node_id, pairs.get("directory.id", ""))
    except (KeyError, ValueError) as error:
        raise CorruptFile(path, f"missing or unreadable: {error}") from error
