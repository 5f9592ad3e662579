"""One batch into its topics exactly once, by the driver, in one transaction.

Between the tasks' record batches (``outgoing``) and the cluster. The order of the steps is what
makes it exactly once; each of them may be the last before the process is killed:

    1  InitProducerId       ends what a predecessor left open, and keeps it out from now on
    2  read the marker      this batch, with these rows, is there: done. (Before step 1 it would
                            be a guess.)
    3  Produce              every batch, numbered by this epoch
    4  TxnOffsetCommit      the marker, in the same transaction
    5  OffsetCommit         which batch was begun, outside of it and for ever: markers expire
    6  EndTxn               rows and marker are there, or neither

Killed before 6: the batch comes again, step 1 aborts it, it is written. Killed after: it comes
again, step 2 finds the marker. Where there is none, step 2 reads what step 5 noted: another batch,
or a time at which the marker, if there was one, has not expired. Open for longer than its timeout,
the coordinator aborts it, and it is sent again from step 1 on. Knows no Arrow.
Source: KIP-98, KIP-447; docs/adr.
"""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.coordination import KEPT_LAST
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.sending import NO_IDENTITY
from ottla.config.human import duration_text, size_text
from ottla.env.clock import Clock, SystemClock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.spark.writing.identity import Step
from ottla.spark.writing.marker import (
    FOR_EVER_MS,
    Begun,
    DeliveryError,
    Marker,
    Rules,
    begun_group,
    decide,
    marker_place,
    read_begun,
    read_marker,
    write_begun,
    write_marker,
)
from ottla.spark.writing.outgoing import Outgoing
from ottla.spark.writing.sink_options import TRANSACTION_TIMEOUT, TRANSACTIONAL_ID, SinkOptions
from ottla.spark.writing.staging_place import StagingError

LOG = logging.getLogger("ottla.spark")

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
OVER = (
    *FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""What a producer hears whose transaction was aborted."""
CANNOT_KEEP = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Why what was begun cannot be kept: a missing right, or a cluster that keeps nothing for ever."""
ABORT_TIMEOUT_MS = 5_000
"""Time for aborting a transaction after a failure; the next run would abort it anyway."""
TRIES = 3
"""How often a batch is sent whose transaction ran out of time."""
TIMEOUT_MS_MIN = 60_000
"""Kafka's default for a producer."""
TIMEOUT_MS_MAX = 900_000
"""Kafka's default of ``transaction.max.timeout.ms``, the most that a broker takes."""
BYTES_PER_MS = 4 << 10
"""A rate that is surely reached. A long timeout costs something only where the driver dies in the
middle and does not come back: readers of committed records wait so long."""

MS_PER_BATCH = 10
"""The same for small batches: 20,000 of a few rows each, for 10,000 partitions, took two to three
minutes where much else was running."""


class Delivered(NamedTuple):
    """How a batch was delivered."""

    step: Step
    """SKIP: it was there already."""
    found: Marker | None
    """The marker that was there before."""


def timeout_ms_for(size_bytes: int, batch_count: int, given_ms: int | None, number: int) -> int:
    """Return the transaction's timeout for the try with this number, from 0.

    ``given_ms`` is the option's. None: by the size and the number of record batches, and once it
    was too short, the longest.
    """
    if given_ms is not None:
        return given_ms
    if number:
        return TIMEOUT_MS_MAX
    wanted_ms = TIMEOUT_MS_MIN + size_bytes // BYTES_PER_MS + batch_count * MS_PER_BATCH
    return min(wanted_ms, TIMEOUT_MS_MAX)


def deliver(
    options: SinkOptions,
    transactional_id: str,
    marker: Marker | None,
    outgoing: Outgoing,
    rules: Rules = Rules(),  # noqa: B008 - a value
    *,
    clock: Clock | None = None,
) -> Delivered:
    """Write ``outgoing`` and ``marker`` in one transaction, or find that they are there. Blocks.

    ``marker`` None: nobody will ask for this batch again; the transaction is all there is.
    Raises DeliveryError, StagingError, KafkaError, ConnectionFailed: then nothing of it is to be
    seen, but for an error of the last step, which says so.
    """
    # The tasks were there a moment ago.
    with BlockingClient(replace(options.client, awaits_cluster=True)) as client:
        delivery = _Delivery(client, options, transactional_id, marker, outgoing)
        wall = clock or SystemClock()
        found = None
        for number in range(TRIES):
            at_ms = wall.wall_ms()
            delivery.begin(number)
            if marker is not None:
                found, step = delivery.judged(marker, rules, at_ms, number)
                if step is not None:
                    return Delivered(step, found)
            elif outgoing.is_empty:
                break
            try:
                delivery.run()
            except OttlaError as error:
                if not delivery.has_timed_out(error):
                    raise delivery.explained(error) from error
                if number + 1 == TRIES:
                    raise delivery.too_slow() from error
            else:
                break
    return Delivered(Step.WRITE, found)


class _Delivery:
    """The tries to write one batch."""

    def __init__(
        self,
        client: BlockingClient,
        options: SinkOptions,
        transactional_id: str,
        marker: Marker | None,
        outgoing: Outgoing,
    ) -> None:
        self._client = client
        self._options = options
        self._id = transactional_id
        self._marker = marker
        self._outgoing = outgoing
        self._coordinators = BlockingCoordinators(client)
        self._producer = NO_IDENTITY
        self._timeout_ms = 0
        self._begun: Begun | None = None
        self._is_begun_needed = False
        """Whether nothing is to be written unless that is noted."""
        self._is_first_of_run = True
        self._began_at: float | None = None
        """When the transaction was opened, or a little earlier; None: it is not."""
        self._ends = False
        """Whether EndTxn was sent."""
        self._best = (0, 1.0)
        """What the best try has sent: bytes acknowledged, in so many seconds."""

    def begin(self, number: int) -> None:
        """Take the id over (step 1) for the try with this number."""
        given_ms = self._options.transaction_timeout_ms
        outgoing = self._outgoing
        size_bytes, batch_count = outgoing.size_bytes, outgoing.batch_count
        self._timeout_ms = timeout_ms_for(size_bytes, batch_count, given_ms, number)
        self._began_at, self._ends = None, False
        while True:
            try:
                self._producer = self._coordinators.take_over(self._id, self._timeout_ms)
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    raise
                if given_ms is not None or self._timeout_ms < 2:
                    raise self._timeout_refused(error) from error
                self._timeout_ms //= 2  # the broker's limit is below Kafka's default
            else:
                return

    def judged(
        self, marker: Marker, rules: Rules, at_ms: int, number: int
    ) -> tuple[Marker | None, Step | None]:
        """Return the marker that is there (step 2), and how the batch was delivered already.

        None: it is to be written. ``at_ms``: a time before step 1. Raises as ``decide`` does.
        """
        place = marker_place(marker.topic)
        found = read_marker(self._coordinators.committed(self._id, [place]).get(place))
        if number and found == marker:  # the last try's, whose end we did not hear
            return None, Step.WRITE
        begun = None if found else self._begun_there(marker, rules)
        elsewhere = () if found else self._markers()
        step = decide(found, marker, rules, begun=begun, now_ms=at_ms, elsewhere=elsewhere)
        if step is Step.SKIP:
            if found is not None and found[:2] == marker[:2]:
                return found, Step.SKIP
            self._outgoing = Outgoing([])  # somebody says so; the next batch finds a marker
        self._begun = Begun(marker.query_id, marker.batch_id, at_ms)
        self._is_begun_needed = found is None and rules.missing is None
        self._is_first_of_run = found is None or found.run_id != marker.run_id
        return found, None

    def _markers(self) -> list[Marker]:
        """Return the id's markers for whatever topics. What is none says nothing here."""
        found: list[Marker] = []
        for committed in self._coordinators.committed(self._id).values():
            with suppress(DeliveryError):
                marker = read_marker(committed)
                found += [] if marker is None else [marker]
        return found

    def _begun_there(self, marker: Marker, rules: Rules) -> Begun | None:
        """Return what was begun last, for where there is no marker (step 2).

        Where that cannot be read and ``rules`` say what to do then, it may have been this batch.
        """
        place = marker_place(marker.topic)
        group = begun_group(self._id)
        try:
            return read_begun(self._coordinators.committed(group, [place]).get(place))
        except KafkaError as error:
            if error.code not in CANNOT_KEEP:
                raise
            if rules.missing is None:
                raise self._cannot_keep(error) from error
            return Begun(marker.query_id, marker.batch_id, 0)

    def run(self) -> None:
        """Write everything (steps 3 to 6). Leaves no transaction open when it raises."""
        partitions = self._outgoing.partitions
        self._began_at = self._client.clock.monotonic()
        try:
            self._send(partitions)
            if self._marker is not None:
                place = marker_place(self._marker.topic)
                log_end = self._log_end(place)
                offset = {place: write_marker(self._marker, log_end)}
                self._coordinators.commit_offsets(self._producer, self._id, offset)
                self._keep_begun(place, log_end)
        except OttlaError as error:
            fenced = None if self.has_timed_out(error) else self._abort()
            if fenced is not None and isinstance(error, StagingError):
                raise fenced from error  # who has taken over has cleared the files up, too
            raise
        self._ends = True
        self._coordinators.end(self._producer, commit=True)

    def has_timed_out(self, error: OttlaError) -> bool:
        """Tell whether the coordinator has aborted the transaction because it took too long.

        It says no more than that the epoch is over. Another driver may have taken over as well;
        then the marker tells, once this one has taken over again.
        """
        if self._began_at is None or not isinstance(error, KafkaError):
            return False
        elapsed_ms = (self._client.clock.monotonic() - self._began_at) * 1000
        return elapsed_ms >= self._timeout_ms and error.code in OVER

    def too_slow(self) -> DeliveryError:
        """Return the error for a batch that takes longer than a transaction may."""
        sent_bytes, seconds = self._best
        rate = size_text(int(sent_bytes / seconds))
        return DeliveryError(
            f"the transaction of {size_text(self._outgoing.size_bytes)} under {self._id} ran out "
            f"of time {TRIES} times, and nothing of it is to be seen: {size_text(sent_bytes)} were "
            f"sent in {seconds:.0f} s ({rate}/s), and it may be open for "
            f"{duration_text(self._timeout_ms)}. Give it more time ({TRANSACTION_TIMEOUT}, and "
            "transaction.max.timeout.ms of the brokers, which bounds it), make it smaller "
            "(kafka.compression.type; from the next batch on maxOffsetsPerTrigger of the source), "
            "or find out what makes the cluster or the staging location slow"
        )

    def explained(self, error: OttlaError) -> OttlaError:
        """Return ``error`` with what it means for the batch."""
        if isinstance(error, KafkaError) and error.code in FENCED:
            # An answer to EndTxn may have been lost before that.
            written = "Whether this one has committed this batch is found out at the next start"
            if not self._ends:
                written = "Nothing of this batch was written by this one"
            return DeliveryError(
                f"another producer has taken over transactional id {self._id}: the same query runs "
                f"twice, or two sinks share a {TRANSACTIONAL_ID}. {written} ({error})"
            )
        is_unanswered = isinstance(error, ConnectionFailed) or (
            isinstance(error, KafkaError) and error.code.retriable
        )
        if self._ends and is_unanswered:
            return DeliveryError(
                f"the commit of transactional id {self._id} was not answered, so it may be done or "
                f"not: the query finds that out when it is started again ({error})"
            )
        return error

    def _send(self, partitions: frozenset[TopicPartition]) -> None:
        options = self._options
        with BlockingProducer(
            self._client, options.client, options.write.sending, self._producer
        ) as sender:
            try:
                if options.topic is not None:
                    sender.topic(options.topic)  # the marker's, even where there are no rows
                sender.join(partitions)
                for partition, batch in self._outgoing:
                    sender.send(partition, batch, len(batch))
                sender.flush()
            finally:
                self._note(sum(each.size_bytes for each in sender.written.values()))

    def _keep_begun(self, place: TopicPartition, log_end: int) -> None:
        assert self._begun is not None, "the marker says which batch it is"
        group = begun_group(self._id)
        try:
            kept = {place: write_begun(self._begun, log_end)}
            self._coordinators.keep(group, kept, FOR_EVER_MS)
        except KafkaError as error:
            if error.code not in CANNOT_KEEP:
                raise
            if self._is_begun_needed:
                raise self._cannot_keep(error) from error
            if self._is_first_of_run:
                LOG.warning("%s", self._cannot_keep(error))

    def _cannot_keep(self, error: KafkaError) -> DeliveryError:
        return DeliveryError(
            f"the cluster does not keep in the group {begun_group(self._id)} which batch was begun "
            f"({error}): it needs the right to Read that group, and OffsetCommit v{KEPT_LAST}. "
            f"Markers of {self._id} expire, and a batch without one may have been written before. "
            "If this one was not, start with the option onMissingMarker=write"
        )

    def _note(self, sent_bytes: int) -> None:
        assert self._began_at is not None, "it is open"
        seconds = self._client.clock.monotonic() - self._began_at
        if sent_bytes >= self._best[0]:
            self._best = (sent_bytes, max(seconds, 0.001))

    def _log_end(self, place: TopicPartition) -> int:
        """Return where the log of ``place`` will end when the transaction is committed.

        It is for people's tools only, so a refusal is no reason to fail: 0 then.
        """
        try:
            (end,) = self._client.latest_offsets([place]).values()
        except KafkaError:
            return 0
        ends_with_a_control_record = place in self._outgoing.partitions
        return end + 1 if ends_with_a_control_record else end

    def _abort(self) -> KafkaError | None:
        """Let nobody wait for the transaction. Return the refusal, if another one has taken over.

        Failing otherwise says nothing new.
        """
        settings = replace(self._options.client, retry_timeout_ms=ABORT_TIMEOUT_MS)
        try:
            with BlockingClient(settings) as client:
                BlockingCoordinators(client).end(self._producer, commit=False)
        except OttlaError as error:
            if isinstance(error, KafkaError) and error.code in FENCED:
                return error
        return None

    def _timeout_refused(self, error: KafkaError) -> DeliveryError:
        return DeliveryError(
            f"{TRANSACTION_TIMEOUT}={self._timeout_ms} is more than the brokers take: give less, "
            f"or raise their transaction.max.timeout.ms ({error})"
        )
