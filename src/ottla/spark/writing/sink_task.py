"""What a task of the sink does with its rows: write them, or make batches for the driver to send.

The executor's side. Exactly once, tasks write nothing, so a task that is tried again, runs twice or
never ends does no harm: what it hands back are its batches, encoded and compressed, and the driver
(``delivery``) only numbers and sends them. Owns the bound on what is handed back.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext

from ottla.client.blocking import BlockingClient
from ottla.client.blocking_producer import BlockingProducer
from ottla.client.lanes import Written
from ottla.client.view import TopicView
from ottla.ids import TopicPartition
from ottla.spark.writing.content import ContentSum
from ottla.spark.writing.delivery import too_large
from ottla.spark.writing.identity import BatchOf
from ottla.spark.writing.sink import Staged, Wrote
from ottla.spark.writing.sink_options import RETRY_TIMEOUT_MS, SinkOptions
from ottla.spark.writing.write import RowsWriter

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
DESCRIPTION = "spark.job.description"
"""Properties that Spark gives the tasks of a micro-batch, and of what ``foreachBatch`` runs in its
own thread. Threads that the user starts, and Spark Connect, have none of them."""


class StagingProducer:
    """Takes batches as ``BlockingProducer`` does, and keeps them."""

    def __init__(self, options: SinkOptions) -> None:
        self._client = BlockingClient(options.client)
        self._cluster = BlockingProducer(self._client, options.client, options.write.sending)
        self._bytes_max = options.staged_bytes_max
        self.size_bytes = 0
        self.batches: list[tuple[TopicPartition, bytearray]] = []

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """Nothing yet."""
        return {}

    @property
    def smallest_refused_bytes(self) -> int | None:
        """Nothing was refused: nobody was asked."""
        return None

    def topic(self, name: str, *, again: bool = False) -> TopicView:
        """Return the topic's partitions, as ``BlockingProducer`` does."""
        return self._cluster.topic(name, again=again)

    def send(self, partition: TopicPartition, data: bytearray, size_bytes: int) -> None:
        """Keep a copy of the batch. Raises DeliveryError when there are too many."""
        self.size_bytes += size_bytes
        if self.size_bytes > self._bytes_max:
            raise too_large(self._bytes_max)
        self.batches.append((partition, bytearray(memoryview(data)[:size_bytes])))

    def flush(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        self._client.close()


def batch_of_task(options: SinkOptions) -> BatchOf | None:
    """Return which micro-batch this task is of, None when that is not known."""
    context = TaskContext.get()

    def local(name: str) -> str | None:
        return context.getLocalProperty(name) if context else None

    run_id = local(RUN_ID)
    if run_id is not None and f"runId = {run_id}" not in (local(DESCRIPTION) or ""):
        run_id = None  # a job group of the user's own
    if options.by_hand is not None:
        return options.by_hand._replace(run_id=run_id)
    query_id, batch_id = local(QUERY_ID), local(BATCH_ID)
    if query_id is None or batch_id is None:
        return None
    return BatchOf(query_id, int(batch_id), run_id)


def patient(options: SinkOptions, batch: BatchOf | None) -> SinkOptions:
    """Return the options for a query that has reached the cluster before: it waits for it."""
    if batch is None or batch.batch_id == 0:
        return options
    wait_ms = max(options.write.sending.metadata_timeout_ms, RETRY_TIMEOUT_MS)
    sending = replace(options.write.sending, metadata_timeout_ms=wait_ms)
    return replace(
        options,
        client=replace(options.client, awaits_cluster=True),
        write=replace(options.write, sending=sending),
    )


def write_rows(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> Wrote:
    """Write the rows of this task, each at least once. Blocks.

    Raises RowError, KafkaError, ConnectionFailed.
    """
    options = patient(options, batch_of_task(options))
    writer = RowsWriter(options.client, options.write)
    try:
        for batch in rows:
            writer.write(batch)
        written = writer.finish()
    finally:
        writer.abort()
    return Wrote({partition: each.record_count for partition, each in written.items()})


def stage_rows(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Return the rows of this task as batches. Blocks.

    Raises RowError, DeliveryError, and what asking for the topics' partitions raises.
    """
    batch_of = batch_of_task(options)
    options = patient(options, batch_of)
    producer = StagingProducer(options)
    summed = ContentSum()
    writer = RowsWriter(options.client, options.write, sender=producer, seen=summed.add)
    try:
        for batch in rows:
            writer.write(batch)
        writer.finish()
    finally:
        writer.abort()
    return Staged(batch_of, producer.batches, summed.content)
