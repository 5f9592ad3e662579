"""The records of ranges, as a Spark task reads them: fetch, decode, until the ranges are done.

The executor's side. Owns the loop and its end; ``client`` owns connections, positions and retries,
``columns`` what becomes of the bytes. No record is read twice, and none beyond a range is handed
on. Records that are gone are an error, or left out with a warning where the query says so.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.range_fetcher import Fetched, RangeFetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicPartition
from ottla.spark.connection import FETCH
from ottla.spark.lookup import cluster_state
from ottla.spark.loss import find_losses
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.positions import Positions
from ottla.spark.reading.columns import ArrowDecoder
from ottla.spark.reading.kept import kept_client, kept_decoder

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.values.value_options import ValueOptions

LOG = logging.getLogger("ottla.spark")
IDLE_PAUSE_SECONDS = 0.1
"""Between two answers without records, where the broker is told not to wait for them."""
_GONE = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of one range, as ``read_ranges`` does."""
    return read_ranges(options, [wanted])


def read_ranges(
    options: SourceOptions, wanted: Sequence[OffsetRange]
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of the ranges, in the order of offsets within each partition. Blocks.

    The ranges are of different partitions. A batch may be used until the next one is asked for, and
    longer by whoever keeps it. Raises DataLoss for what the log holds no more (failOnDataLoss),
    KafkaError: CORRUPT_MESSAGE, or what the broker answered; ConnectionFailed.
    """
    with kept_client(options.settings(retry_timeout_ms=options.read_retry_ms)) as client:
        yield from fetch_ranges(
            client,
            wanted,
            columns=options.columns,
            value=options.value,
            limits=options.fetch,
            fail_on_data_loss=options.fail_on_data_loss,
        )


def fetch_ranges(
    client: BlockingClient,
    wanted: Sequence[OffsetRange],
    *,
    columns: tuple[str, ...],
    value: "ValueOptions | None" = None,
    limits: FetchLimits = FETCH,
    fail_on_data_loss: bool = True,
) -> Iterator["pa.RecordBatch"]:
    """Yield the rows of the ranges by ``client``; errors as for ``read_ranges``."""
    ranges = {one.topic_partition: one for one in wanted}
    assert len(ranges) == len(wanted), "one range of a partition at a time"
    ids = {one.topic: one.topic_id for one in wanted if one.topic_id != NULL_TOPIC_ID}
    ends = {each: (one.start, one.end) for each, one in ranges.items()}
    idle = _Idle(client)
    current: TopicPartition | None = None
    lent = kept_decoder(columns) if value is None else nullcontext(ArrowDecoder(columns, value))
    with lent as decoder, RangeFetcher(client, ends, limits, ids) as fetcher:
        for fetched in fetcher.answers():
            partition, offset, answer = fetched
            left = ranges[partition]._replace(start=offset)
            if answer.error in _GONE:
                loss = _resume(client, left, limits, fail_on_data_loss=fail_on_data_loss)
                fetcher.move(partition, loss)
                continue
            if answer.error:
                raise KafkaError(answer.error, f"{left}: {answer.error.text}")
            if partition != current:
                yield from _rest(decoder)
                current = partition
            yield from _decode(decoder, left, fetched)
            if decoder.next_offset > offset:
                idle.ends(partition)
            elif idle.lasts_too_long(partition):
                if fail_on_data_loss or _is_held_back(fetched, limits):
                    raise _never_comes(left, fetched, limits)
                LOG.warning("%s", _never_comes(left, fetched, limits))
                fetcher.move(partition, left.end)
        yield from _rest(decoder)


class _Idle:
    """Since when nothing has come of each partition.

    As long as a task outlasts trouble, since it may be that: a leader that has just begun gives
    nothing that a silent follower has not, for ``replica.lag.time.max.ms`` (30 s by default).
    """

    def __init__(self, client: BlockingClient) -> None:
        self._clock = client.clock
        self._seconds_max = client.settings.retry_timeout_ms / 1000
        self._since: dict[TopicPartition, float] = {}
        self._answered = float("-inf")

    def ends(self, partition: TopicPartition) -> None:
        """Note that something came."""
        self._since.pop(partition, None)

    def lasts_too_long(self, partition: TopicPartition) -> bool:
        """Note that nothing came; tell whether to give up. Blocks where answers come too fast."""
        now = self._clock.monotonic()
        since = self._since.setdefault(partition, now)
        if now - since >= self._seconds_max:
            return True
        if now - self._answered < IDLE_PAUSE_SECONDS:
            self._clock.sleep(IDLE_PAUSE_SECONDS)
        self._answered = self._clock.monotonic()
        return False


def _decode(
    decoder: ArrowDecoder, left: OffsetRange, fetched: Fetched
) -> Iterator["pa.RecordBatch"]:
    try:
        yield from decoder.decode(fetched.answer.records, left, fetched.answer.aborted)
    except KafkaError as error:
        raise KafkaError(error.code, f"{left}: {error.why}") from error


def _rest(decoder: ArrowDecoder) -> Iterator["pa.RecordBatch"]:
    rest = decoder.rest()
    if rest is not None:
        yield rest


def _resume(
    client: BlockingClient, left: OffsetRange, limits: FetchLimits, *, fail_on_data_loss: bool
) -> int:
    """Return where to go on, now that ``left`` cannot be read from its start. Raises DataLoss.

    Never before that start: what lies there is of another task, or was read. Where a log has lost
    its end, what is written there later is no part of what was planned.
    """
    partition = left.topic_partition
    ids = {} if left.topic_id == NULL_TOPIC_ID else {left.topic: left.topic_id}
    there = client.existing([partition])
    now = cluster_state(client, there, read_committed=limits.read_committed)
    loss = find_losses(Positions({partition: left.start}, ids), now).get(partition)
    if loss is None:  # It was so for a moment only.
        return left.start
    if fail_on_data_loss:
        raise loss.error
    LOG.warning("%s: %s", left, loss.error)
    of_another_topic = ids and now.ids.get(left.topic, left.topic_id) != left.topic_id
    if loss.resume is None or of_another_topic or loss.resume < left.start:
        return left.end
    return loss.resume


def _is_held_back(fetched: Fetched, limits: FetchLimits) -> bool:
    """Tell whether an open transaction is why nothing came: its records are not lost."""
    answer = fetched.answer
    return limits.read_committed and answer.last_stable_offset < answer.high_watermark


def _never_comes(left: OffsetRange, fetched: Fetched, limits: FetchLimits) -> KafkaError:
    answer = fetched.answer
    why = f"{left}: nothing came at offset {left.start}; "
    if _is_held_back(fetched, limits):
        why += f"a transaction is open from offset {answer.last_stable_offset} on; "
    why += f"the log holds [{answer.log_start_offset}, {answer.high_watermark})"
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
