"""The committed records of one partition, in order: what a copy takes and a comparison looks at.

Left out are control records and those of aborted transactions. Owns how a record becomes a digest.
"""

from collections.abc import AsyncGenerator
from hashlib import blake2b
from struct import pack

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.reading import read_records
from ottla.ids import TopicPartition
from ottla.records.record import Record

DIGEST_BYTES = 16
TO_AN_END = FetchLimits(max_wait_ms=5, read_committed=True)
"""What is read is there: a Fetch that waits for more would only hold up the next partition's."""


async def committed_records(
    cluster: Cluster, partition: TopicPartition, start: int, end: int
) -> AsyncGenerator[Record, None]:
    """Yield the records from ``start`` on, before ``end``. To be closed if it is not read up.

    Raises KafkaError, CORRUPT_MESSAGE for a damaged batch.
    """
    if start >= end:
        return
    async with Fetcher(cluster, TO_AN_END) as fetcher:
        await fetcher.assign({partition: start})
        async for batches in fetcher.batches():
            for record in read_records(batches.records, batches.offset, batches.aborted):
                if record.offset >= end:
                    return
                yield record
            if batches.next_offset >= end:
                return


def is_same(one: Record, other: Record) -> bool:
    """Whether two records say the same: key, value, headers and time. Not their offsets."""
    return (
        one.value == other.value
        and one.key == other.key
        and one.timestamp == other.timestamp
        and one.headers == other.headers
    )


class Digest:
    """A digest over records in their order; equal for equal records, wherever they lie."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def add(self, record: Record) -> None:
        """Take a record in."""
        self.count += 1
        parts = [pack(">q", record.timestamp), _sized(record.key), _sized(record.value)]
        parts.append(pack(">i", len(record.headers)))
        for name, value in record.headers:
            parts += [_sized(name.encode("utf-8", "surrogatepass")), _sized(value)]
        self._hash.update(b"".join(parts))

    def text(self) -> str:
        """Return it in hexadecimal."""
        return self._hash.hexdigest()


def _sized(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else pack(">i", len(data)) + data
