"""One batch into its topics exactly once, by the driver, in one transaction.

Between the tasks' record batches (``sink_task``) and the cluster. The order of the steps is what
makes it exactly once; each of them may be the last before the process is killed:

    1  InitProducerId       ends what a predecessor left open, and keeps it out from now on
    2  read the marker      this batch, with these rows, is there: done. (Before step 1 it would
                            be a guess.)
    3  Produce              every batch, numbered by this epoch
    4  TxnOffsetCommit      the marker, in the same transaction
    5  EndTxn               rows and marker are there, or neither

Killed before 5: the batch comes again, step 1 aborts it, it is written. Killed after: it comes
again, step 2 finds the marker. Knows no Arrow. Source: KIP-98, KIP-447; docs/adr.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ottla.client.blocking import BlockingClient
from ottla.client.blocking_coordinators import BlockingCoordinators
from ottla.client.blocking_producer import BlockingProducer
from ottla.client.errors import ConnectionFailed
from ottla.client.sending import ProducerIdentity
from ottla.config.human import size_text
from ottla.env.clock import SystemClock
from ottla.env.rng import SystemRng
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.writing.identity import BatchOf, Content, Step
from ottla.spark.writing.marker import (
    DeliveryError,
    Marker,
    Rules,
    decide,
    marker_place,
    read_marker,
    write_marker,
)
from ottla.spark.writing.planned import planned
from ottla.spark.writing.sink import Staged
from ottla.spark.writing.sink_options import (
    APP_ID,
    DELIVERY,
    MAX_BYTES,
    TRANSACTION_TIMEOUT,
    TRANSACTIONAL_ID,
    VERSION,
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
    rules: Rules = Rules(),  # noqa: B008 - a value
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
        if marker is not None and _is_there(coordinators, transactional_id, marker, rules):
            return Step.SKIP
        if marker is None and not batches:
            return Step.WRITE
        try:
            _send(client, options, producer, batches)
            if marker is not None:
                place = marker_place(marker.topic)
                offset = {place: write_marker(marker, _log_end(client, place, batches))}
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
    known = _known(options, staged, batch_id)
    is_stream = batch_id is not None
    if known is None:
        _require_no_id(options)
        name = options.transactional_id or ID_PREFIX + SystemRng().random_bytes(16).hex()
        deliver(options, name, None, batches)
        return
    plan = planned(options.checkpoint, known.batch_id) if is_stream else None
    marker = Marker(
        known.query_id,
        known.batch_id,
        options.topic,
        known.run_id,
        _sum(one.content for one in staged),
        None if plan is None else plan.plan,
    )
    at_ms = None if plan is None else plan.at_ms
    rules = Rules(
        are_gaps_legal=not is_stream,
        missing_is_new=options.missing_is_new,
        changed=options.changed,
        age_ms=None if at_ms is None else SystemClock().wall_ms() - at_ms,
    )
    deliver(options, _id(options, known, is_stream=is_stream), marker, batches, rules)


def _sum(contents: Iterable[Content]) -> Content:
    every = list(contents)
    return Content(sum(each.rows for each in every), sum(each.sum for each in every) % (1 << 64))


def _require_no_id(options: SinkOptions) -> None:
    """Raise DeliveryError for a transactional.id where nobody knows which batch this is."""
    if options.transactional_id is None:
        return
    message = (
        f"{TRANSACTIONAL_ID} is given, and which micro-batch this is is not known: over Spark "
        "Connect, and in threads of one's own, Spark does not tell. Written like this, a batch "
        "that is repeated would be there twice. In foreachBatch use ottla.spark.write_batch(df, "
        f"batch_id, ...), or give the options {APP_ID} (a name that stays, another for each sink) "
        f"and {VERSION} (batch_id). A job that comes once needs no {TRANSACTIONAL_ID}: leave it out"
    )
    raise DeliveryError(message)


def _id(options: SinkOptions, known: BatchOf, *, is_stream: bool) -> str:
    """Return the transactional id. A stream has one sink, so the query's id will do there."""
    if options.transactional_id is None and not is_stream and options.by_hand is None:
        message = (
            f"writing in foreachBatch with {DELIVERY}=exactly-once needs the option "
            f"{TRANSACTIONAL_ID}, another one for each sink (or use ottla.spark.write_batch)"
        )
        raise DeliveryError(message)
    return options.transactional_id or ID_PREFIX + known.query_id


def _known(options: SinkOptions, staged: Sequence[Staged], batch_id: int | None) -> BatchOf | None:
    """Return which batch this is, None for a job that is no micro-batch as far as anybody knows."""
    if batch_id is None and not staged:
        return options.by_hand
    told = {each.batch_of for each in staged}
    if batch_id is None and told <= {None}:
        return None
    numbers = {each.batch_id for each in told if each is not None}
    numbers |= set() if batch_id is None else {batch_id}
    if None in told or len(told) != 1 or len(numbers) != 1:
        message = f"tasks of different batches in batch {batch_id}: {sorted(map(str, told))}"
        raise DeliveryError(message)
    return next(iter(told))


def too_large(bytes_max: int) -> DeliveryError:
    """Return the error for a batch that the driver should not have to hold."""
    return DeliveryError(
        f"more than {size_text(bytes_max)} of record batches in one batch delivered exactly once: "
        f"the driver holds and sends them all. Make batches smaller (maxOffsetsPerTrigger of the "
        f"source), compress (kafka.compression.type), or raise {MAX_BYTES}"
    )


def _is_there(coordinators: BlockingCoordinators, group: str, marker: Marker, rules: Rules) -> bool:
    place = marker_place(marker.topic)
    found = read_marker(coordinators.committed(group, [place]).get(place))
    return decide(found, marker, rules) is Step.SKIP


def _log_end(
    client: BlockingClient,
    place: TopicPartition,
    batches: Sequence[tuple[TopicPartition, bytearray]],
) -> int:
    """Return where the log of ``place`` will end when the transaction is committed.

    It is for people's tools only, so a refusal is no reason to fail: 0 then.
    """
    try:
        (end,) = client.latest_offsets([place]).values()
    except KafkaError:
        return 0
    ends_with_a_control_record = any(each == place for each, _ in batches)
    return end + 1 if ends_with_a_control_record else end


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
