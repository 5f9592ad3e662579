"""What a task of the sink does with its rows: write them, or make batches for the driver to send.

The executor's side. Exactly once, tasks write nothing, so a task that is tried again, runs twice or
never ends does no harm: what it hands back are its batches, encoded and compressed, and the driver
(``delivery``) only numbers and sends them. Owns the bound on what passes through the driver's heap:
a task with more has a file for it (``staging``).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.lanes import Written
from ottla.client.wire.view import TopicView
from ottla.env.rng import SystemRng
from ottla.ids import TopicPartition
from ottla.spark.writing.content import ContentSum
from ottla.spark.writing.identity import BatchOf
from ottla.spark.writing.kept import kept_standing
from ottla.spark.writing.messages import Staged, Wrote
from ottla.spark.writing.sink_options import RETRY_TIMEOUT_MS, SinkOptions, transactional_id_of
from ottla.spark.writing.staged_files import StagedFile, attempt_directory, message_bytes_max
from ottla.spark.writing.staging_place import Stage
from ottla.spark.writing.write import RowsWriter

if TYPE_CHECKING:
    from ottla.spark.writing.staging import StagingWriter

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
DESCRIPTION = "spark.job.description"
"""Properties that Spark gives the tasks of a micro-batch, and of what ``foreachBatch`` runs in its
own thread. Threads that the user starts, and Spark Connect, have none of them."""

BATCH_IN_MESSAGE_BYTES = 100
"""What a batch takes in a message, beside its own bytes: the topic's name and so on."""


class StagingProducer:
    """Takes batches as ``BlockingProducer`` does, and keeps them: a few here, more in a file."""

    def __init__(
        self, client: BlockingClient, options: SinkOptions, stage: Stage, directory: str
    ) -> None:
        """``directory`` is where this task's file goes, if there is to be one."""
        self._cluster = BlockingProducer(client, options.client, options.write.sending)
        context = TaskContext.get()
        self._task = 0 if context is None else context.partitionId()
        self._bytes_max = message_bytes_max(options.message_bytes_max, self._task)
        self._stage = stage
        self._directory = directory
        self._size_bytes = 0
        self._writer: StagingWriter | None = None
        self.batches: list[tuple[TopicPartition, bytearray]] = []
        self.file: StagedFile | None = None

    @property
    def written(self) -> dict[TopicPartition, Written]:
        """What was written: nothing, for the driver writes."""
        return {}

    @property
    def smallest_refused_bytes(self) -> int | None:
        """The smallest refused batch: none, for no broker was asked."""
        return None

    def topic(self, name: str, *, again: bool = False) -> TopicView:
        """Return the topic's partitions, as ``BlockingProducer`` does."""
        return self._cluster.topic(name, again=again)

    def send(self, partition: TopicPartition, data: bytearray, size_bytes: int) -> None:
        """Keep the batch; ``data`` is free again. Raises StagingError."""
        batch = memoryview(data)[:size_bytes]
        self._size_bytes += size_bytes + BATCH_IN_MESSAGE_BYTES
        if self._writer is None and self._size_bytes <= self._bytes_max:
            self.batches.append((partition, bytearray(batch)))
            return
        if self._writer is None:
            self._writer = self._open()
        self._writer.write(partition, batch)

    def flush(self) -> None:
        """Close the file: no batch comes after this. Raises StagingError."""
        if self._writer is not None:
            self.file = self._writer.finish()

    def close(self) -> None:
        """Remove a file that was not finished."""
        if self._writer is not None:
            self._writer.abandon()

    def _open(self) -> "StagingWriter":
        from ottla.spark.writing.staging import StagingWriter

        name = f"{self._task}-{SystemRng().random_bytes(8).hex()}"
        writer = StagingWriter(self._stage.place, self._directory, name)
        for partition, batch in self.batches:
            writer.write(partition, memoryview(batch))
        self.batches = []
        return writer


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
    with kept_standing(options.client) as standing:
        writer = RowsWriter(options.client, options.write, standing=standing)
        try:
            for batch in rows:
                writer.write(batch)
            written = writer.finish()
        finally:
            writer.abort()
    return Wrote({partition: each.record_count for partition, each in written.items()})


def stage_rows(options: SinkOptions, stage: Stage, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Return the rows of this task as batches. Blocks.

    Raises RowError, StagingError, and what asking for the topics' partitions raises.
    """
    batch_of = batch_of_task(options)
    options = patient(options, batch_of)
    owner = None if batch_of is None else transactional_id_of(options, batch_of)
    number = None if batch_of is None else batch_of.batch_id
    directory = attempt_directory(stage.attempt, owner, number)
    summed = ContentSum()
    with kept_standing(options.client) as standing:
        producer = StagingProducer(standing.client, options, stage, directory)
        writer = RowsWriter(options.client, options.write, sender=producer, seen=summed.add)
        try:
            for batch in rows:
                writer.write(batch)
            writer.finish()
        finally:
            writer.abort()
    return Staged(batch_of, producer.batches, summed.content, producer.file)
