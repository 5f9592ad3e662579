"""The records of one range, as a Spark task reads them: fetch, decode, until the range is done.

The executor's side. Owns the loop and its end; ``client`` owns connections and retries, ``columns``
what becomes of the bytes. Nothing is read twice and nothing beyond the range is handed on.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.spark.columns import ArrowDecoder
from ottla.spark.connection import FETCH
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

EMPTY_FETCHES_MAX = 60
"""So many answers without a record, half a second each, and the range cannot be had."""


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of ``wanted``, in order. Blocks.

    Raises KafkaError: OFFSET_OUT_OF_RANGE when the log no longer holds the range,
    CORRUPT_MESSAGE, or what the broker answered; ConnectionFailed.
    """
    with BlockingClient(options.settings(retry_timeout_ms=options.read_retry_ms)) as client:
        yield from fetch_range(client, wanted, columns=options.columns)


def fetch_range(
    client: BlockingClient, wanted: OffsetRange, *, columns: tuple[str, ...]
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of ``wanted`` by ``client``; errors as for ``read_range``."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    position = wanted.start
    empty_count = 0
    decoder = ArrowDecoder(columns)
    while position < wanted.end:
        fetched = client.fetch({partition: position}, FETCH)[partition]
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _gone(client, wanted, position)
        if fetched.error is not ErrorCode.NONE:
            raise KafkaError(fetched.error, f"{wanted}: {fetched.error.text}")
        left = wanted._replace(start=position)
        try:
            yield from decoder.decode(fetched.records, left)
        except KafkaError as error:
            raise KafkaError(error.code, f"{left}: {error.why}") from error
        position = decoder.next_offset
        empty_count = 0 if position > left.start else empty_count + 1
        if empty_count > EMPTY_FETCHES_MAX:
            why = (
                f"{wanted}: nothing came at offset {position}; "
                f"the log holds [{fetched.log_start_offset}, {fetched.high_watermark})"
            )
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
    rest = decoder.rest()
    if rest is not None:
        yield rest


def _gone(client: BlockingClient, wanted: OffsetRange, position: int) -> KafkaError:
    """Return the error for an offset that the log held when the query was planned."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    start = client.earliest_offsets([partition])[partition]
    why = (
        f"{wanted}: offset {position} is gone since the query was planned (by retention, or the "
        f"topic was made anew); the log starts at {start} now"
    )
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
