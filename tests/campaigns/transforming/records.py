"""What the records of the exactly-once campaign say, so that each can be judged by itself.

    in         8 partitions   value  number ":" padding         number n in partition n % 8
    out        4 partitions   value  number ":" crc32 of its input, hexadecimal    in n % 4
    audit      4 partitions   the same                                       in n // 4 % 4
    manifest   1 partition    value  count ":" sum of the numbers

Each input becomes a record in ``out`` and one in ``audit``, in one transaction. Their key is the
transaction's name, which no other has; so is the key of its one manifest. A transaction is whole
if both topics hold as many of its records, with the same sum, as its manifest says.
A record of a transaction that is meant to be aborted has MARK for its value.

``Transforming.java`` says the same in its language.
"""

import zlib

IN, OUT, AUDIT, MANIFEST = "in", "out", "audit", "manifest"
PARTITIONS = {IN: 8, OUT: 4, AUDIT: 4, MANIFEST: 1}
RESULTS = (OUT, AUDIT, MANIFEST)
MARK = b"to be aborted"
PADDING = b"=" * 64


def make_input(number: int) -> bytes:
    """Return the value of an input."""
    return b"%d:%b" % (number, PADDING)


def number_of(value: bytes) -> int:
    """Return the number of an input or of a result."""
    return int(value[: value.index(b":")])


def transformed(value: bytes) -> bytes:
    """Return the result of an input."""
    return b"%d:%08x" % (number_of(value), zlib.crc32(value))


def partition_of(topic: str, number: int) -> int:
    """Return where a number stands."""
    return number // 4 % 4 if topic == AUDIT else number % PARTITIONS[topic]


def make_manifest(numbers: list[int]) -> bytes:
    """Return the value of the manifest of a transaction with these inputs."""
    return b"%d:%d" % (len(numbers), sum(numbers))
