"""One batch into its topics exactly once, by the driver, in one transaction.

Between the tasks' record batches (``sink_task``) and the cluster. The order of the steps is what
makes it exactly once; each of them may be the last before the process is killed:

    1  InitProducerId       ends what a predecessor left open, and keeps it out from now on
    2  read the marker      this batch is there: done. (Before step 1 it would be a guess.)
    3  Produce              every batch, numbered by this epoch
    4  TxnOffsetCommit      the marker, in the same transaction
    5  EndTxn               rows and marker are there, or neither

Killed before 5: the batch comes again, step 1 aborts it, it is written. Killed after: it comes
again, step 2 finds the marker. Knows no Arrow. Source: KIP-98, KIP-447; docs/adr.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from ottla.client.blocking import BlockingClient
from ottla.client.blocking_coordinators import BlockingCoordinators
from ottla.client.blocking_producer import BlockingProducer
from ottla.client.errors import ConnectionFailed
from ottla.client.sending import ProducerIdentity
from ottla.config.human import size_text
from ottla.env.rng import SystemRng
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.writing.marker import (
    DeliveryError,
    Marker,
    Step,
    decide,
    marker_place,
    read_marker,
    write_marker,
)
from ottla.spark.writing.sink import Staged
from ottla.spark.writing.sink_options import (
    DELIVERY,
    MAX_BYTES,
    TRANSACTION_TIMEOUT,
    TRANSACTIONAL_ID,
    SinkOptions,
)

ID_PREFIX = "ottla-spark-"
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
ABORT_TIMEOUT_MS = 5_000
"""For leaving no transaction open after a failure; who comes next does it anyway."""


def deliver(
    options: SinkOptions,
    transactional_id: str,
    marker: Marker | None,
    batches: Sequence[tuple[TopicPartition, bytearray]],
) -> Step:
    """Write ``batches`` and ``marker`` in one transaction, or find that they are there. Blocks.

    ``marker`` None: nobody will ask for this batch again; the transaction is all there is.
    Raises DeliveryError, KafkaError, ConnectionFailed: then nothing of it is to be seen, but for an
    error of the last step, which says so.
    """
    # The tasks were there a moment ago.
    with BlockingClient(replace(options.client, awaits_cluster=True)) as client:
        coordinators = BlockingCoordinators(client)
        timeout_ms = options.transaction_timeout_ms
        producer = coordinators.take_over(transactional_id, timeout_ms)
        if marker is not None and _is_there(coordinators, transactional_id, marker, options):
            return Step.SKIP
        if marker is None and not batches:
            return Step.WRITE
        try:
            _send(client, options, producer, batches)
            if marker is not None:
                offset = {marker_place(marker.topic): write_marker(marker)}
                coordinators.commit_offsets(producer, transactional_id, offset)
        except OttlaError as error:
            _abort(options, producer)
            raise _explained(error, options, transactional_id) from error
        try:
            coordinators.end(producer, commit=True)
        except OttlaError as error:
            raise _explained(error, options, transactional_id, is_last=True) from error
    return Step.WRITE


def deliver_staged(options: SinkOptions, staged: Sequence[Staged], batch_id: int | None) -> None:
    """Write what the tasks of one batch have staged; ``batch_id`` is that of a micro-batch.

    Raises as ``deliver`` does.
    """
    batches = [each for one in staged for each in one.batches]
    if sum(len(batch) for _, batch in batches) > options.staged_bytes_max:
        raise too_large(options.staged_bytes_max)
    marker = _marker(options, staged, batch_id)
    transactional_id = options.transactional_id
    if transactional_id is None:
        # A stream has one sink, so the query's id will do. A job outside of streams comes once.
        is_stream = batch_id is not None
        if marker is not None and not is_stream:
            message = (
                f"writing in foreachBatch with {DELIVERY}=exactly-once needs the option "
                f"{TRANSACTIONAL_ID}, another one for each sink"
            )
            raise DeliveryError(message)
        name = SystemRng().random_bytes(16).hex() if marker is None else marker.query_id
        transactional_id = ID_PREFIX + name
    deliver(options, transactional_id, marker, batches)


def _marker(options: SinkOptions, staged: Sequence[Staged], batch_id: int | None) -> Marker | None:
    """Return what to write down of this batch, None for a job that is no micro-batch."""
    told = {(each.query_id, each.batch_id) for each in staged}
    if batch_id is None and told <= {(None, None)}:
        return None
    query_ids = {query_id for query_id, _ in told}
    batch_ids = {number for _, number in told} | ({batch_id} if batch_id is not None else set())
    if len(query_ids) != 1 or len(batch_ids) != 1 or None in query_ids | batch_ids:
        message = f"tasks of different batches in batch {batch_id}: {sorted(map(str, told))}"
        raise DeliveryError(message)
    (query_id,) = query_ids
    (number,) = batch_ids
    assert query_id is not None
    assert number is not None
    return Marker(query_id, number, options.topic)


def too_large(bytes_max: int) -> DeliveryError:
    """Return the error for a batch that the driver should not have to hold."""
    return DeliveryError(
        f"more than {size_text(bytes_max)} of record batches in one batch delivered exactly once: "
        f"the driver holds and sends them all. Make batches smaller (maxOffsetsPerTrigger of the "
        f"source), compress (kafka.compression.type), or raise {MAX_BYTES}"
    )


def _is_there(
    coordinators: BlockingCoordinators, group: str, marker: Marker, options: SinkOptions
) -> bool:
    place = marker_place(marker.topic)
    found = read_marker(coordinators.committed(group, [place]).get(place))
    return decide(found, marker, missing_is_new=options.missing_is_new) is Step.SKIP


def _send(
    client: BlockingClient,
    options: SinkOptions,
    producer: ProducerIdentity,
    batches: Sequence[tuple[TopicPartition, bytearray]],
) -> None:
    with BlockingProducer(client, options.client, options.write.sending, producer) as sender:
        for topic in {partition.topic for partition, _ in batches}:
            sender.topic(topic)
        for partition, batch in batches:
            sender.send(partition, batch, len(batch))
        sender.flush()


def _abort(options: SinkOptions, producer: ProducerIdentity) -> None:
    """Let nobody wait for the transaction; failing at that says nothing new."""
    settings = replace(options.client, retry_timeout_ms=ABORT_TIMEOUT_MS)
    with contextlib.suppress(OttlaError), BlockingClient(settings) as client:
        BlockingCoordinators(client).end(producer, commit=False)


def _explained(
    error: OttlaError, options: SinkOptions, transactional_id: str, *, is_last: bool = False
) -> OttlaError:
    """Return ``error`` with what it means for the batch."""
    if isinstance(error, KafkaError) and error.code in FENCED:
        return DeliveryError(
            f"another producer has taken over transactional id {transactional_id}: the same query "
            f"runs twice, or two sinks share a {TRANSACTIONAL_ID}; or the transaction was open for "
            f"longer than {TRANSACTION_TIMEOUT}={options.transaction_timeout_ms}. Nothing of this "
            f"batch was written by this one ({error})"
        )
    if is_last and isinstance(error, ConnectionFailed):
        return DeliveryError(
            f"the commit of transactional id {transactional_id} was not answered, so it may be "
            f"done or not: the query finds that out when it is started again ({error})"
        )
    return error
