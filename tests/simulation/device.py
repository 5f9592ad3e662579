"""What the device has, held against what was promised: at once, and without a copy of anything.

A look at a copy of the disk (``afterlife``) comes once a second, and sees a fault only where chance
takes just the bytes that were not synced. Whether something *may* be taken can be read off the
world's disk itself, which knows what a power cut leaves at the least. So at every promise, at every
refused write and at some changes of names it is asked what the rules of docs/durability.md say:

    a promise        the partition's directory, its segments and their bytes are on the device as
                     far as anything is served (rules 1, 3, 5 and 6), no snapshot is above the end
                     (11), the aborts of full segments are there (12), the log starts where
                     DeleteRecords was told (14), and files end where the log does (1)
    a refused write  files end where the log does (1)
    a deletion       the directory's former name is off the device, or the topic has its mark (21)
    an index made    its bytes are on the device before it has its name (10)
    anew
    a segment goes   the checkpoint on the device says that the log starts behind it (14)
    a directory      no checkpoint on the device tells of a former partition of that name (21);
    gets its name    and none is at work in it by its name when it loses it (19)

The world does not notice: nothing of it is touched.
"""

from ottla.env.faulty_disk import DiskCall
from ottla.ids import TopicPartition, topic_id_text
from ottla.log.directories.offset_checkpoints import OFFSET_CHECKPOINTS
from ottla.log.files.layout import (
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_partition_directory,
    parse_segment_file,
    parse_snapshot_file,
    partition_directory,
)

BASE_OFFSET_BYTES = 8
"""With which a batch begins, and so does whatever a log writes at once."""
NEW_INDEXES = (OFFSET_INDEX_SUFFIX + TEMPORARY_SUFFIX, TIME_INDEX_SUFFIX + TEMPORARY_SUFFIX)
OF_OPEN_FILES = (DiskCall.READ, DiskCall.WRITE, DiskCall.SYNC, DiskCall.TRUNCATE)
"""Calls that need no name."""


class Device:
    """Looks at the disk of a world's node as the device has it."""

    def __init__(self, world):
        self.world = world
        self.looks = 0
        self._parsed = {}
        """By path of a checkpoint: its bytes when it was looked at last, and what they say."""

    # -- promises ------------------------------------------------------------------------------

    def appended(self, topic_id, number):
        """Be told that a batch was acknowledged."""
        for log, bound in self._log_of(topic_id, number):
            self._tell(log, "an acknowledged batch", self._missing(log, bound))
            self._tell(log, "an acknowledged batch", self._snapshots_above(log))

    def created(self, topic):
        """Be told that a topic's creation was confirmed."""
        for number in range(topic.partition_count):
            for log, bound in self._log_of(topic.topic_id, number):
                # Others may have begun to write to it.
                self._tell(log, "a new topic", self._missing(log, bound))
                names = [each.path.rpartition("/")[2] for each in log.segments]
                self._tell(log, "a new topic", self._unnamed(log, [*names, PARTITION_METADATA]))

    def records_deleted(self, topic_id, number, offset):
        """Be told that DeleteRecords below ``offset`` was confirmed."""
        for log, bound in self._log_of(topic_id, number):
            self._tell(log, "deleted records", self._missing(log, bound))
            start_offset = self._start_offset(log)
            if start_offset < offset:
                said = [f"the log start is {start_offset}, asked was {offset}"]
                self._tell(log, "deleted records", said)

    def deleted(self, topic):
        """Be told that a topic's deletion was confirmed."""
        entries = self.world.node._store._entries
        if any(key.endswith(f"delete/{topic_id_text(topic.topic_id.bytes)}") for key in entries):
            return  # A start does it again.
        for number in range(topic.partition_count):
            where = TopicPartition(topic.name, number)
            for log_dir in self.world.log_dirs:
                names = self._directory(log_dir)
                left = names.durable_names.get(partition_directory(where))
                if left is not None and names.names.get(partition_directory(where)) is not left:
                    self._say(f"{where} is deleted, and on the device it has its name in {log_dir}")

    def refused(self, path):
        """Be told of a write to a log's file that left a part of itself when it was refused."""
        life = self.world.clients_life
        self.world.loop.call_for(life, 0.0, self._look_at, path.rpartition("/")[0])

    def _look_at(self, directory):
        for partition in self._partitions().values():
            log = partition.log
            if log.directory == directory and self._is_judged(log):
                self._tell(log, "a refused write", self._wrong_lengths(log))

    def start_offset(self, topic_id, number):
        """Return where a start would let the log begin; None: nobody can tell now."""
        for log, _ in self._log_of(topic_id, number):
            return self._start_offset(log)
        return None

    # -- changes of names ----------------------------------------------------------------------

    def called(self, call, path):
        """Be told of a call that is about to be made."""
        directory, _, name = path.rpartition("/")
        if self.world.rot is not None or directory.count("/") > 2:
            return
        if call is DiskCall.MAKE_DIRECTORY:
            self._judge_new_name(directory, name)
        elif call is DiskCall.RENAME and name.endswith(LOG_SUFFIX):
            self._judge_end_of_segment(directory, name)
        elif call is DiskCall.RENAME and name.endswith(NEW_INDEXES):
            self._judge_new_index(path)
        elif call is DiskCall.RENAME and parse_partition_directory(name) is not None:
            self._judge_lost_name(path)

    def _judge_new_name(self, log_dir, name):
        where = parse_partition_directory(name)
        for checkpoint in OFFSET_CHECKPOINTS if where is not None else ():
            if where in self.says(log_dir, checkpoint):
                self._say(f"{log_dir}/{name} is made, and {checkpoint} tells of a former one")

    def _judge_new_index(self, path):
        inode = self._directory(path)
        if inode is not None and inode.pending:
            self._say(f"{path} gets its name, and is not synced")

    def _judge_lost_name(self, path):
        jobs, life = self.world.jobs, self.world.node.life
        for job in jobs.alive:
            if job is jobs.running or job.life is not life or job.call is None:
                continue
            call, at = job.call
            if call not in OF_OPEN_FILES and (at == path or at.startswith(f"{path}/")):
                self._say(f"{path} loses its name while a job is at {call.value} {at}")

    def _judge_end_of_segment(self, directory, name):
        base_offset = parse_segment_file(name)[0]
        for partition in self._partitions().values():
            log = partition.log
            if log.directory != directory or not self._is_judged(log):
                continue
            told = self.says(log.log_dir, LOG_START_CHECKPOINT).get(log.topic_partition, 0)
            if base_offset < log.log_start_offset and told <= base_offset:
                self._tell(
                    log, f"the end of {name}", [f"the log start is {told} in its checkpoint"]
                )

    # -- what is there -------------------------------------------------------------------------

    def _partitions(self):
        node = self.world.node
        if not node.is_up or self.world.rot is not None:
            return {}
        return node.broker.node.work.replica_manager.hosting.partitions

    def _is_judged(self, log):
        """Tell whether the log is in service, and no segment or directory is being replaced."""
        return log.is_in_service and not log.is_swapping

    def _log_of(self, topic_id, number):
        """Yield the log, if it is here, and the end of what it serves."""
        topic = self.world.history.topics.get(topic_id)
        where = topic and TopicPartition(topic.name, number)
        partition = self._partitions().get(where)
        if partition is None or partition.log.topic_id != topic_id.bytes:
            return
        log = partition.log
        if self._is_judged(log):
            self.looks += 1
            yield log, max(log.flushed_offset, partition.high_watermark)

    def _directory(self, path):
        return self.world.node.disk._tree.find(path)

    def _missing(self, log, bound):
        """Yield what a power cut could take of the records below ``bound``.

        Not of segments below the log start that is durable: these may lose their names one by one.
        """
        parent, name = self._directory(log.log_dir), log.directory.rpartition("/")[2]
        directory = parent.names.get(name)
        if directory is None or parent.durable_names.get(name) is not directory:
            yield f"the name of {log.directory} is not durable"
            return
        ends = log.segments.with_ends(log.log_end_offset)
        start = self.says(log.log_dir, LOG_START_CHECKPOINT).get(log.topic_partition, 0)
        segments = [one for one in ends if one[0].base_offset < bound and one[1] > start]
        yield from self._unnamed(log, [one.path.rpartition("/")[2] for one, _ in segments])
        yield from self._wrong_lengths(log)
        yield from self._aborts(log, [one for one, _ in segments[:-1]])
        for segment, end_offset in segments:
            inode = self._directory(segment.path)
            if inode is None:
                continue
            is_whole = end_offset <= bound
            end = segment.size_bytes if is_whole else self._first_pending(inode, bound)
            unsynced = [at for at, data in inode.pending if data is not None and at < end]
            if unsynced:
                yield f"{segment.path} is not synced from byte {min(unsynced)} to {end}"
            elif is_whole and inode.durable[:end] != inode.content[:end]:
                yield f"{segment.path} is not what was synced, of {end} bytes"

    def _aborts(self, log, segments):
        """Yield what could be lost of the transaction indexes of full segments."""
        indexes = [one.transaction_index for one in segments if one.transaction_index is not None]
        yield from self._unnamed(log, [one.path.rpartition("/")[2] for one in indexes])
        for index in indexes:
            inode = self._directory(index.path)
            if inode is not None and inode.pending:
                yield f"{index.path} is not synced, and a snapshot may be that covers it"

    def _first_pending(self, inode, bound):
        """Return where the first unsynced batch stands that may be lost; the end without one."""
        found = [
            position
            for position, data in inode.pending
            if data is not None and int.from_bytes(data[:BASE_OFFSET_BYTES]) >= bound
        ]
        return min(found, default=len(inode.content))

    def _wrong_lengths(self, log):
        for segment in log.segments:
            inode = self._directory(segment.path)
            if inode is not None and len(inode.content) != segment.size_bytes:
                held = len(inode.content)
                yield f"{segment.path} has {held} bytes, the log {segment.size_bytes} of them"

    def _unnamed(self, log, names):
        directory = self._directory(log.directory)
        for name in names:
            there = directory.names.get(name)
            if there is None or directory.durable_names.get(name) is not there:
                yield f"the name of {log.directory}/{name} is not durable"

    def _snapshots_above(self, log):
        for name in self._directory(log.directory).durable_names:
            offset = parse_snapshot_file(name)
            if offset is not None and offset > log.log_end_offset:
                yield f"there is {name}, and the log ends at {log.log_end_offset}"

    def _start_offset(self, log):
        """Return where a start would let the log begin, at the least."""
        told = self.says(log.log_dir, LOG_START_CHECKPOINT).get(log.topic_partition, 0)
        found = map(parse_segment_file, self._directory(log.directory).durable_names)
        bases = [one[0] for one in found if one is not None and one[1] == LOG_SUFFIX]
        return max(told, min(bases, default=0))

    def says(self, log_dir, name):
        """Return what an offset checkpoint on the device says, by partition."""
        inode = self._directory(log_dir).durable_names.get(name)
        content = b"" if inode is None else bytes(inode.durable)
        before = self._parsed.get((log_dir, name))
        if before is None or before[0] != content:
            lines = [line.rsplit(" ", 2) for line in content.decode().split("\n")[2:] if line]
            said = {TopicPartition(topic, int(at)): int(offset) for topic, at, offset in lines}
            before = self._parsed[log_dir, name] = content, said
        return before[1]

    def _tell(self, log, what, problems):
        for problem in problems:
            self._say(f"{log.topic_partition} after {what}: {problem}")

    def _say(self, problem):
        self.world.problem(f"on the device: {problem}")
