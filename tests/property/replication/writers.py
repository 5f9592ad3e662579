"""Producers of the lives of replicas: what each has sent, and what it was promised."""

from ottla.errors import ErrorCode, KafkaError
from ottla.log.append import own
from ottla.records.builder import build_batch
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from ottla.records.record import Record
from ottla.replication.append import AppendRefusal
from tests.property.replication.replicas import Violation, batches_of

REFUSED_FOR_GOOD = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
}
TIMEOUT_MS = 600_000


class Sent:
    """A batch of a producer, and the answer that it waits for, if it is in flight."""

    def __init__(self, sequence, records):
        self.sequence = sequence
        self.records = records
        self.acked_at = None
        self.begin(None, is_held=False)

    def begin(self, answer, *, is_held):
        """Send it. ``is_held``: the partition was, and it is not appended before it is answered."""
        self.answer = answer
        self.is_held = is_held

    def outcome(self):
        """Return what it was answered, if it was."""
        answer = self.answer
        if hasattr(answer, "is_done"):
            answer = answer.value if answer.is_done else None
        return answer and answer[0]


class Writer:
    """An idempotent or transactional producer, on one connection to the leader.

    A connection handles a request when the batch of the one before is in the log, or refused:
    nothing is sent behind one that waits for a partition that is held.
    """

    def __init__(self, life, producer_id, *, is_transactional):
        self.life = life
        self.producer_id = producer_id
        self.is_transactional = is_transactional
        self.next_sequence = 0
        self.unknown = []
        """What it has sent and was not promised, by sequence."""
        self.acked = []
        self.again = None
        """One that was acknowledged and is sent once more, if so."""
        self.leader = None
        self.is_open = False
        self.ending = None
        """How its transaction ends, from when that is decided until the marker is committed."""
        self.marker = None
        """The leader's epoch and the offset of a marker that is not committed yet."""
        self.is_lost = False
        self.transaction = []

    @property
    def is_quiet(self):
        return not self.unknown and not self.is_open and self.again is None

    @property
    def _in_flight(self):
        return [one for one in self.unknown if one.answer is not None]

    def disconnect(self, replica):
        if self.leader is replica:
            self.marker = self.again = None
            for one in self.unknown:
                one.answer = None

    # -- what it sends ------------------------------------------------------------------------

    def send(self):
        """Send what was not acknowledged once more, or something new."""
        leader = self.life.leading()
        if leader is None or self.ending is not None or self.again is not None:
            return
        if self._in_flight and self.leader is not leader:
            return
        for one in self._next():
            if any(before.is_held for before in self._in_flight):
                break
            self.leader = leader
            self.is_open = self.is_transactional
            self._send(leader, one)

    def _next(self):
        life = self.life
        waiting = [one for one in self.unknown if one.answer is None]
        if waiting:
            return waiting[: life.random.choice([1, 5])]
        if life.is_closing or len(self.unknown) >= life.pipelined:
            return []
        if any(before.is_held for before in self._in_flight):
            return []
        records = [life.new_record(self) for _ in range(life.random.choice([1, 1, 2, 3]))]
        self.unknown.append(Sent(self.next_sequence, records))
        self.next_sequence += len(records)
        return self.unknown[-1:]

    def _send(self, leader, sent):
        now_ms = leader.node.clock.wall_ms()
        batch = build_batch(
            [Record(timestamp=now_ms, key=key, value=value) for key, value in sent.records],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sent.sequence,
            transactional=self.is_transactional,
        )
        is_held = leader.partition.has_to_wait
        sent.begin(leader.node.append((0, batch), timeout_ms=TIMEOUT_MS), is_held=is_held)
        leader.look()

    def send_again(self):
        """Send what was acknowledged once more, if every broker has to remember it.

        Of what is deleted a replica that began anew knows nothing, and of what is compacted away
        one that copied the rest knows the newest batch only.
        """
        leader = self.life.leading()
        if leader is None or self.is_transactional or not self.is_quiet:
            return
        newest = self.acked[-(1 if self.life.is_compacted else 4) :]
        start = leader.partition.log.log_start_offset
        known = [one for one in newest if one.acked_at >= start]
        if known:
            self.again = self.life.random.choice(known)
            self.leader = leader
            self._send(leader, self.again)

    def end_transaction(self):
        """Let the coordinator write the marker, once every batch is acknowledged or given up."""
        life, leader = self.life, self.life.leading()
        if not self.is_open or self._in_flight or (self.unknown and self.ending is None):
            return
        if leader is None or self.marker is not None or leader.partition.is_held:
            return
        if self.ending is None:
            kinds = [ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT]
            self.ending = life.random.choice(kinds)
        marker = build_end_transaction_marker(
            EndTransactionMarker(self.ending, 0),
            producer_id=self.producer_id,
            producer_epoch=0,
            timestamp_ms=leader.node.clock.wall_ms(),
        )
        analysis = own(memoryview(bytearray(marker)), transaction_version=0)
        try:
            result = leader.partition.append(analysis, acks=-1)
        except KafkaError:
            return
        self.leader = leader
        self.marker = life.metadata.leader_epoch, result.last_offset
        leader.look()

    # -- what it hears ------------------------------------------------------------------------

    def hear(self):
        self._hear_again()
        for one in list(self.unknown):
            outcome = one.outcome()
            if outcome is None:
                continue
            one.answer = None
            if not isinstance(outcome, AppendRefusal):
                self._acknowledged(one, outcome.base_offset)
            elif outcome.code in REFUSED_FOR_GOOD and one is self.unknown[0]:
                self._refused(one, outcome)
                break
        self._hear_of_marker()

    def _hear_again(self):
        one = self.again
        outcome = one and one.outcome()
        if outcome is None:
            return
        self.again = one.answer = None
        if isinstance(outcome, AppendRefusal):
            if outcome.code in REFUSED_FOR_GOOD:
                raise Violation(f"{self.producer_id} sends {one.sequence} again: {outcome}")
        elif outcome.base_offset != one.acked_at:
            offsets = one.acked_at, outcome.base_offset
            raise Violation(f"{self.producer_id} sent {one.sequence} again: it is at {offsets}")

    def _acknowledged(self, sent, base_offset):
        self.unknown.remove(sent)
        self.acked.append(sent)
        self.acked.sort(key=lambda one: one.sequence)
        sent.acked_at = base_offset
        values = {value: base_offset + at for at, (_, value) in enumerate(sent.records)}
        if self.is_transactional:
            self.transaction.append(values)
        else:
            self.life.committed |= values

    def _refused(self, sent, outcome):
        """Begin as another producer when this one is forgotten; else it must not be refused."""
        if not self._is_known_by_marker_only() and not self._is_compacted_away(sent):
            raise Violation(f"{self.producer_id} sends {sent.sequence}: {outcome}")
        self.unknown = []
        if self.is_open:
            self.is_lost = True
            self.ending = ControlType.ABORT
        else:
            self.life.replace(self)

    def _is_known_by_marker_only(self):
        """Tell whether the leader began anew behind all data of this producer, amid a transaction.

        Then the marker is all that it knows, and by Kafka's rule no sequence follows from that.
        """
        leader = self.leader
        if not self.is_transactional or leader.partition is None:
            return False
        log = leader.partition.log
        known = log.producers.states.get(self.producer_id)
        headers = [one.batch.header for one in leader.history.values()]
        return (
            known is not None
            and not known.batches
            and all(
                header.last_offset < log.log_start_offset
                for header in headers
                if header.producer_id == self.producer_id and not header.is_control
            )
        )

    def _is_compacted_away(self, sent):
        """Tell whether the batch was appended, and no log of the leader's has it any more.

        Who copies such a log, or reads it at a start without a snapshot, knows its newest batches.
        """
        leader = self.leader
        if not self.life.is_compacted or leader.partition is None:
            return False
        offsets = {batch.header.last_offset for batch in batches_of(leader.partition.log)}
        headers = [one.batch.header for one in leader.history.values()]
        return any(
            header.producer_id == self.producer_id
            and header.base_sequence == sent.sequence
            and header.last_offset not in offsets
            for header in headers
        )

    def _hear_of_marker(self):
        if self.marker is None:
            return
        epoch, offset = self.marker
        leader = self.leader
        if not leader.is_leading or leader.partition.leader_epoch != epoch:
            self.marker = None  # Another leader may not have it: the coordinator writes it again.
        elif leader.partition.high_watermark > offset:
            if self.ending is ControlType.COMMIT:
                for values in self.transaction:
                    self.life.committed |= values
            self.marker = self.ending = None
            self.is_open = False
            self.transaction = []
            if self.is_lost:
                self.life.replace(self)
