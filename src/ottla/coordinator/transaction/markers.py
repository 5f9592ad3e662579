"""Writes the markers that end a transaction, until every partition has its own.

Owns the retries. Of this node's partitions the group coordinator writes the markers of groups'
offsets, because its memory follows them; the replica manager writes all others. For partitions that
other nodes lead these are asked, once for all partitions of a node. Calls back once, at the end. A
marker that is written twice does no harm.

A partition refuses the markers of coordinators older than the newest of which it knows. An epoch
that no coordinator ever had stays in a log for as long as its producer is remembered, and would
keep the markers of the real coordinator out: so that coordinator takes the epoch over. Source:
Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ottla.coordinator.appends import NO_TIMEOUT_MS
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.coordinator.records import EndMarker
from ottla.coordinator.step_line import StepLine
from ottla.coordinator.transaction.peers import Elsewhere, Marker
from ottla.deadlines import Deadlines
from ottla.env.clock import Clock
from ottla.errors import ErrorCode
from ottla.ids import NodeId, TopicPartition
from ottla.log.append import own
from ottla.log.results import AppendResult
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.pending import Pending, failed
from ottla.protocol.messages.produce import ACKS_ALL
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from ottla.replication.append import AppendOutcome, AppendRefusal
from ottla.replication.replica_manager import ReplicaManager
from ottla.turns import Turns

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0
"""The longest pause; each pause is twice the one before."""
PARTITIONS_PER_STEP = 64
"""Partitions written to between two chances for other work to have its turn: some 1.5 ms."""
WARN_AFTER = 4
"""Failed tries until the log has a warning: a partition may be loading at first."""


class MarkerWriter:
    """The writer of one node's markers. Its methods run on the loop."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        groups: GroupCoordinator,
        image: MetadataImage,
        clock: Clock,
        turns: Turns,
        *,
        elsewhere: Elsewhere,
    ) -> None:
        self._replica_manager = replica_manager
        self._groups = groups
        self._image = image
        self._clock = clock
        self._elsewhere = elsewhere
        self._waiting: dict[object, Callable[[], None]] = {}
        """Use: tries again before its time. Invariant: the keys of ``_retries``."""
        self._retries = Deadlines(clock, turns, name="retries of markers")
        self._line = StepLine(turns, "markers of transactions")

    @property
    def epoch_max(self) -> int:
        """The newest epoch of any coordinator in this cluster; 0: there is none yet."""
        topic = self._image.topic(TRANSACTION_STATE_TOPIC)
        return max((state.leader_epoch for state in topic.partitions), default=0) if topic else 0

    def write(
        self, marker: Marker, partitions: Sequence[TopicPartition], *, attempt: int | None = None
    ) -> Pending[list[ErrorCode]]:
        """Write the marker once to each partition; resolves with their codes when it is durable.

        ``attempt``: the number of this try by the node's own coordinator; None: another coordinator
        asks, and only partitions of this node are written to.
        """
        answer: Pending[list[ErrorCode]] = Pending()
        codes: dict[TopicPartition, ErrorCode] = {}
        asked = partitions
        afar, partitions = self._of_other_nodes(partitions, may_ask=attempt is not None)
        data = [where for where in partitions if where.topic != GROUP_METADATA_TOPIC]
        offsets = [where for where in partitions if where.topic == GROUP_METADATA_TOPIC]
        left = len(offsets) + len(afar) + 1

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                answer.resolve([codes[where] for where in asked])

        def offsets_done(where: TopicPartition, done: Pending[ErrorCode]) -> None:
            (codes[where],) = _faulty(done, [where]) if done.value is None else [done.value]
            one_done()

        def afar_done(those: list[TopicPartition], done: Pending[list[ErrorCode]]) -> None:
            codes.update(zip(those, done.value or _faulty(done, those), strict=True))
            one_done()

        for node, those in afar.items():
            self._write_afar(node, marker, those).on_done(partial(afar_done, those))
        for where in offsets:
            written = self._write_to_group(self._heard(marker, where, attempt), where)
            written.on_done(partial(offsets_done, where))

        def data_done(outcomes: Sequence[AppendOutcome]) -> None:
            for where, one in zip(data, outcomes, strict=True):
                codes[where] = ErrorCode.NONE if isinstance(one, AppendResult) else one.code
            one_done()

        self._write_here(marker, data, attempt, data_done)
        return answer

    def _write_here(
        self,
        marker: Marker,
        data: Sequence[TopicPartition],
        attempt: int | None,
        done: Callable[[Sequence[AppendOutcome]], None],
    ) -> None:
        """Write the marker to partitions that this node leads; call back once, perhaps at once."""
        version = marker.transaction_version
        batches = [
            (
                where,
                own(
                    memoryview(self._batch(self._heard(marker, where, attempt))),
                    transaction_version=version,
                ),
            )
            for where in data
        ]
        outcome = self._replica_manager.appends.many(
            batches, acks=ACKS_ALL, timeout_ms=NO_TIMEOUT_MS
        )

        def ended(pending: Pending[list[AppendOutcome]]) -> None:
            done(pending.value or [AppendRefusal(code) for code in _faulty(pending, data)])

        if isinstance(outcome, Pending):
            outcome.on_done(ended)
        else:
            done(outcome)

    def _of_other_nodes(
        self, partitions: Sequence[TopicPartition], *, may_ask: bool
    ) -> tuple[dict[NodeId, list[TopicPartition]], list[TopicPartition]]:
        """Return by node what other nodes lead, if they ``may_ask``; and the rest."""
        afar: dict[NodeId, list[TopicPartition]] = {}
        rest: list[TopicPartition] = []
        for where in partitions:
            node = self._elsewhere.leader_of(where) if may_ask else None
            if node is None:
                rest.append(where)
            else:
                afar.setdefault(node, []).append(where)
        return afar, rest

    def _write_afar(
        self, node: NodeId, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Pending[list[ErrorCode]]:
        if self._elsewhere.is_live(node):
            return self._elsewhere.peers.write_markers(node, marker, partitions)
        refused: Pending[list[ErrorCode]] = Pending()
        refused.resolve([ErrorCode.LEADER_NOT_AVAILABLE for _ in partitions])
        return refused

    def apply(self, delta: MetadataDelta) -> None:
        """Try again at once what waits, when nodes came or leaders changed."""
        if delta.brokers or any(
            change.old is not None and change.old.leader != change.new.leader
            for change in delta.partitions
            if change.new is not None
        ):
            for key, work in list(self._waiting.items()):
                self._retries.schedule(key, 0, work)

    def write_all(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
        *,
        attempt: int = 0,
    ) -> None:
        """Write the marker until all partitions have it, while ``is_wanted``; then call ``done``.

        Some partitions are written to at once; many take turns with other work of the loop.
        """
        left: list[TopicPartition] = []
        unanswered = 1  # One more, until all are under way.

        def one_over() -> None:
            nonlocal unanswered
            unanswered -= 1
            if not unanswered and is_wanted():
                self._go_on(marker, left, is_wanted, done, attempt)

        def written(some: Sequence[TopicPartition], answer: Pending[list[ErrorCode]]) -> None:
            codes = answer.value or _faulty(answer, some)
            left.extend(self._without(marker, some, codes, attempt))
            one_over()

        def steps() -> Iterator[None]:
            nonlocal unanswered
            for begin in range(0, len(partitions), PARTITIONS_PER_STEP):
                if not is_wanted():
                    return
                unanswered += 1
                some = partitions[begin : begin + PARTITIONS_PER_STEP]
                try:
                    answer = self.write(marker, some, attempt=attempt)
                except Exception as fault:  # noqa: BLE001 - it is logged with the outcome
                    answer = failed(fault)
                answer.on_done(partial(written, some))
                yield
            one_over()

        if len(partitions) > PARTITIONS_PER_STEP:
            self._line.add(steps())
        else:
            self._line.do(steps())

    def _without(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        codes: Sequence[ErrorCode],
        attempt: int,
    ) -> list[TopicPartition]:
        """Return the partitions that do not have the marker yet."""
        return [
            where
            for where, code in zip(partitions, codes, strict=True)
            if not self._is_over(marker, where, code, is_news=attempt == WARN_AFTER)
        ]

    def _go_on(
        self,
        marker: Marker,
        left: Sequence[TopicPartition],
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
        attempt: int,
    ) -> None:
        if not left:
            done()
            return
        self._retry(
            lambda: self.write_all(marker, left, is_wanted, done, attempt=attempt + 1), attempt
        )

    def close(self) -> None:
        """Cancel all retries."""
        self._retries.close()
        self._waiting.clear()
        self._elsewhere.close()

    def _heard(self, marker: Marker, where: TopicPartition, attempt: int | None) -> Marker:
        """Return the marker with an epoch that the partition accepts, if this node may use it.

        For some tries the epoch in the log is believed: leadership may have moved before this node
        hears of it. An epoch above those of all coordinators is never believed.
        """
        if attempt is None:
            return marker
        partition = self._replica_manager.get(where)
        states = None if partition is None else partition.log.producers.states
        state = None if states is None else states.get(marker.producer_id)
        if state is None or state.coordinator_epoch <= marker.coordinator_epoch:
            return marker
        if state.coordinator_epoch <= self.epoch_max and attempt <= WARN_AFTER:
            return marker
        logger.warning(
            "%s knows coordinator epoch %d of producer id %d, which is not its coordinator's (%d): "
            "the marker is written with it",
            where,
            state.coordinator_epoch,
            marker.producer_id,
            marker.coordinator_epoch,
        )
        return marker._replace(coordinator_epoch=state.coordinator_epoch)

    def _is_over(
        self, marker: Marker, where: TopicPartition, code: ErrorCode, *, is_news: bool
    ) -> bool:
        """Tell whether the partition needs no other try."""
        if code is ErrorCode.NONE:
            return True
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._image.partition(where) is None:
            return True  # It was deleted with its part of the transaction.
        if code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # A later epoch has written here: so this transaction is not open any more.
            logger.warning("%s has no open transaction of %s any more", where, marker)
            return True
        if is_news:
            logger.warning("%s does not take the marker %s yet: %s", where, marker, code.name)
        return False

    def _retry(self, work: Callable[[], None], attempt: int) -> None:
        delay_seconds = min(RETRY_SECONDS * 2 ** min(attempt, 10), RETRY_SECONDS_MAX)
        key = object()

        def again() -> None:
            self._waiting.pop(key, None)
            work()

        self._waiting[key] = again
        self._retries.schedule(key, int(delay_seconds * 1000), again)

    def _write_to_group(self, marker: Marker, where: TopicPartition) -> Pending[ErrorCode]:
        ended = self._groups.end_transaction(
            where.partition,
            self._batch(marker),
            EndMarker(marker.producer_id, marker.is_commit),
            marker.transaction_version,
        )
        return ended.then(lambda _: ErrorCode.NONE, lambda error: error.code)

    def _batch(self, marker: Marker) -> bytearray:
        control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
        return build_end_transaction_marker(
            EndTransactionMarker(control_type, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )


def _faulty(done: Pending[Any], partitions: Sequence[TopicPartition]) -> list[ErrorCode]:
    """Return the codes of partitions whose markers a fault of ours kept out: they are sent again.

    Else the transaction would be open for good.
    """
    if partitions:
        logger.error("markers could not be written to %s", partitions[0], exc_info=done.error)
    return [ErrorCode.UNKNOWN_SERVER_ERROR for _ in partitions]
