"""What a partition holds, in two numbers that two clients can compare.

The digest covers keys and values in their order, each with its length, so that a lost, doubled,
altered or swapped record, or a byte moved from a key to a value, gives another one.
"""

import hashlib
from struct import Struct
from typing import NamedTuple

LENGTHS = Struct(">II")


class Content(NamedTuple):
    """The records of one partition, counted and digested."""

    record_count: int
    digest: str


class PartitionDigest:
    """Takes the records of one partition in order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = hashlib.sha256()

    def add(self, key: bytes, value: bytes) -> None:
        """Take the next record."""
        self.count += 1
        self._sum.update(LENGTHS.pack(len(key), len(value)))
        self._sum.update(key)
        self._sum.update(value)

    def content(self) -> Content:
        """Return what was taken so far."""
        return Content(self.count, self._sum.hexdigest()[:16])


Contents = dict[int, Content]
"""By partition."""


def require_equal(expected: Contents, found: Contents, who: str) -> None:
    """Raise SystemExit, naming each partition that differs, unless both hold the same."""
    wrong = [
        f"  partition {partition}: expected {expected.get(partition)},"
        f" {who} read {found.get(partition)}"
        for partition in sorted(expected.keys() | found.keys())
        if expected.get(partition) != found.get(partition)
    ]
    if wrong:
        raise SystemExit("error: the records differ\n" + "\n".join(wrong))
