"""What is known of one partition that one idempotent producer writes: the judge of its history.

Pure. The producer writes records 0, 1, 2, ... in this order, sends each until it is acknowledged,
and says in each which attempt it was. So record n belongs at offset n, whatever fails: an offset
with another record is one that was lost, doubled, moved or invented. Which attempt is there is
chance; that it changes after somebody has seen it is a record that had vanished in between.
"""

from array import array

PADDING_MAX = 200
"""Records have other sizes each, so that their places in files differ, too."""
PROBLEMS_MAX = 50


def value_of(partition: int, number: int, attempt: int) -> bytes:
    """Return what a record says."""
    return b"%d/%d/%d/" % (partition, number, attempt) + b"x" * (number * 37 % PADDING_MAX)


class Ledger:
    """All that was sent, acknowledged and seen."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.sent = 0
        """Use: records below this number were sent at least once. Invariant: it never falls."""
        self.acknowledged = 0
        """Use: records below this number were acknowledged. Invariant: at most ``sent``."""
        self._attempts = array("i")
        """Use: how often each record was sent."""
        self._seen = array("i")
        """Use: the attempt that was seen at each offset, without a gap from 0 on."""
        self.problems: list[str] = []

    @property
    def seen(self) -> int:
        """The end of what consumers have seen."""
        return len(self._seen)

    def send(self, first: int, count: int) -> list[bytes]:
        """Note that records are sent, once more perhaps; return their values."""
        values = []
        for number in range(first, first + count):
            if number == self.sent:
                self.sent += 1
                self._attempts.append(0)
            self._attempts[number] += 1
            values.append(value_of(self.partition, number, self._attempts[number]))
        return values

    def acknowledge(self, first: int, count: int, base_offset: int) -> None:
        """Note an answer: records from ``first`` on are at ``base_offset`` and behind."""
        if base_offset != first:
            self._problem(f"record {first} was acknowledged at offset {base_offset}")
        self.acknowledged = max(self.acknowledged, first + count)

    def see(self, offset: int, value: bytes | None) -> None:
        """Note what a consumer got, who reads from the first offset on."""
        if offset != self.seen:
            self._problem(f"a consumer got offset {offset} after {self.seen - 1}")
            return
        attempt = self._attempt(offset, value)
        self._seen.append(attempt)

    def read_again(self, offset: int, value: bytes | None) -> None:
        """Hold a record that is there in the end against what was seen of it."""
        attempt = self._attempt(offset, value)
        if offset < self.seen and 0 < attempt != self._seen[offset] > 0:
            self._problem(
                f"offset {offset} has attempt {attempt}, {self._seen[offset]} was seen there"
            )

    def end(self, end_offset: int) -> None:
        """Judge where the partition ends when nobody writes any more."""
        if end_offset < self.acknowledged:
            self._problem(f"{self.acknowledged} were acknowledged, {end_offset} are there")
        if end_offset < self.seen:
            self._problem(f"{self.seen} were seen, {end_offset} are there")
        if end_offset > self.sent:
            self._problem(f"{self.sent} were sent, {end_offset} are there")

    def fail(self, what: str) -> None:
        """Note what must not have come."""
        self._problem(what)

    def _attempt(self, offset: int, value: bytes | None) -> int:
        """Return which attempt was found at an offset; 0 and a problem if it belongs elsewhere."""
        parts = (value or b"").split(b"/")
        try:
            number, attempt = int(parts[1]), int(parts[2])
        except (IndexError, ValueError):
            number, attempt = -1, 0
        is_known = number == offset < self.sent and attempt <= self._attempts[offset]
        if is_known and value == value_of(self.partition, number, attempt):
            return attempt
        self._problem(f"offset {offset} has {value!r:.60}, {self.sent} were sent")
        return 0

    def _problem(self, what: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{self.partition}: {what}")
