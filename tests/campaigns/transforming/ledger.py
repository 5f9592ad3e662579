"""What readers of committed results saw, and whether it is what was promised.

``see`` judges each record at once: no mark, the right place, the right result, offsets that rise,
an order within its input partition. ``judge`` judges the whole: every input once in both topics,
every transaction whole. Knows nothing of brokers.
"""

from dataclasses import dataclass, field

from tests.campaigns.transforming import records

PROBLEMS_MAX = 50


@dataclass
class Seen:
    """What was read of one transaction."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(records.RESULTS, 0))
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(records.RESULTS, 0))
    manifest: bytes = b""


class Ledger:
    """All that one reader saw, of ``count`` inputs."""

    def __init__(self, reader: str, count: int) -> None:
        self.reader = reader
        self.count = count
        self.times = {topic: bytearray(count) for topic in (records.OUT, records.AUDIT)}
        """How often each number was seen."""
        self.whole = 0
        """Numbers that were seen in both topics."""
        self.transactions: dict[bytes, Seen] = {}
        self.ends: dict[tuple[str, int], int] = {}
        """Behind the last record seen, by topic and partition."""
        self.last: dict[tuple[str, int, int], int] = {}
        """The last number, by topic, partition and input partition."""
        self.records = 0
        self.problems: list[str] = []

    def complain(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{self.reader}: {problem}")

    def see(self, topic: str, partition: int, offset: int, key: bytes, value: bytes) -> None:
        """Take a record."""
        self.records += 1
        if offset < self.ends.get((topic, partition), 0):
            self.complain(f"{topic}-{partition} went back to offset {offset}")
        self.ends[topic, partition] = offset + 1
        where = f"{topic}-{partition} at {offset} of {key!r}"
        if value == records.MARK:
            self.complain(f"{where} was aborted")
            return
        seen = self.transactions.get(key)
        if seen is None:
            seen = self.transactions[key] = Seen()
        seen.counts[topic] += 1
        if topic == records.MANIFEST:
            seen.manifest = value
            return
        number = records.number_of(value)
        if value != records.transformed(records.make_input(number)):
            self.complain(f"{where} says {value!r}")
        if partition != records.partition_of(topic, number):
            self.complain(f"{where} has number {number}, of another partition")
        seen.sums[topic] += number
        self.note_order(topic, partition, number)
        times = self.times[topic]
        times[number] += 1
        if times[number] > 1:
            self.complain(f"{where} has number {number} for the {times[number]}. time")
        elif all(each[number] for each in self.times.values()):
            self.whole += 1

    def note_order(self, topic: str, partition: int, number: int) -> None:
        line = (topic, partition, number % records.PARTITIONS[records.IN])
        if number <= self.last.get(line, -1):
            self.complain(f"{number} behind {self.last[line]} in {line}")
        self.last[line] = number

    def judge(self) -> None:
        """Judge the end."""
        for topic, times in self.times.items():
            missing = times.count(0)
            if missing:
                self.complain(f"{missing} numbers are not in {topic}, first {times.index(0)}")
        for name, seen in self.transactions.items():
            told = b"%d:%d" % (seen.counts[records.OUT], seen.sums[records.OUT])
            mirrored = b"%d:%d" % (seen.counts[records.AUDIT], seen.sums[records.AUDIT])
            if not seen.manifest == told == mirrored or seen.counts[records.MANIFEST] != 1:
                found = f"out {told!r}, audit {mirrored!r}, manifest {seen.manifest!r}"
                self.complain(f"{name!r} is torn: {found}")
