"""The transactional ids of one partition of ``__transaction_state``: memory, and effects.

Between the pure machine and the runtime's shard, which writes: a change is in force, and answered,
when it is durable. A decided transaction (PrepareCommit, PrepareAbort) is carried on at once, also
after a restart: markers into every partition, then the record that says so. Source: Kafka's
TransactionStateManager.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ottla.cluster.arriving import Arriving
from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinator.records import CoordinatorRecord, EndMarker, StoredRecord
from ottla.coordinator.shard import Shard, ShardState
from ottla.coordinator.transaction import machine, records
from ottla.coordinator.transaction.machine import Answer
from ottla.coordinator.transaction.markers import MarkerWriter
from ottla.coordinator.transaction.peers import Marker
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.transaction import (
    IDLE,
    PREPARED,
    Transaction,
    TransactionState,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import ProducerId
from ottla.pending import Pending
from ottla.records.batch import NO_PRODUCER_ID

logger = logging.getLogger(__name__)

TransactionsShard: TypeAlias = "Shard[Transactions]"
Tell = Callable[[Answer], None]
RETRY_MS = 1000
"""The pause until a failed write is tried again: the disk was full, or too slow."""
EXPIRED_PER_STEP = 16
"""Ids looked at between two chances for other work to have its turn: an expired one is an append.
"""
_EXPIRY_TIMER = "expiry"


class Collaborators(NamedTuple):
    """The collaborators of all shards of the coordinator."""

    settings: TransactionSettings
    producer_ids: ProducerIds
    markers: MarkerWriter


class Transactions:
    """A shard's state machine: transactional ids."""

    def __init__(self, shard: TransactionsShard, collaborators: Collaborators) -> None:
        self._shard = shard
        self._settings = collaborators.settings
        self._producer_ids = collaborators.producer_ids
        self._markers = collaborators.markers
        self.transactions: dict[str, Transaction] = {}
        self._pending: set[str] = set()
        """Use: ids that wait for a write, or for a producer id."""
        self._arriving = Arriving()
        self._ids: dict[int, str] = {}
        """Use: transactional ids by producer id. Invariant: has all of ``transactions``."""
        self._waiting: dict[str, dict[int, Callable[[], None]]] = {}
        """Use: callbacks for the end of an id's transaction, by id and by a number of their own."""
        self._waiting_count = 0
        self._next_waiter = 0

    # What the runtime calls.

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record, at a load."""
        if not records.is_transaction(stored):
            logger.warning("%s: an unknown kind of record stays unread", self._shard.where)
            return
        transactional_id = records.read_id(stored)
        if stored.value is None:
            self._drop(transactional_id)
        else:
            self._put(records.read_transaction(transactional_id, stored))

    def _put(self, transaction: Transaction) -> None:
        self._drop(transaction.transactional_id)
        self.transactions[transaction.transactional_id] = transaction
        self._ids[transaction.producer_id] = transaction.transactional_id

    def _drop(self, transactional_id: str) -> None:
        former = self.transactions.pop(transactional_id, None)
        if former is not None and self._ids.get(former.producer_id) == transactional_id:
            del self._ids[former.producer_id]

    def end_transaction(self, marker: EndMarker) -> None:
        """Do nothing: no record of this topic is written in a transaction."""

    def loaded(self) -> Iterator[None]:
        """Carry on decided transactions, and begin the timeouts of open ones."""
        highest = NO_PRODUCER_ID
        for transaction in list(self.transactions.values()):
            yield
            highest = max(highest, transaction.producer_id, transaction.next_producer_id)
            if transaction.state in PREPARED:
                self._write_markers(transaction)
            elif transaction.state is TransactionState.ONGOING:
                self._schedule_timeout(transaction)
        if highest != NO_PRODUCER_ID:  # No log need know it: perhaps it has written nothing.
            self._producer_ids.known(highest)
        self._schedule_expiry()

    def unloaded(self, error: KafkaError) -> None:
        """Call back every client that waits."""
        del error
        self.transactions.clear()
        self._arriving.clear()
        self._ids.clear()
        waiting, self._waiting = self._waiting, {}
        self._waiting_count = 0
        for those in waiting.values():
            for come_back in those.values():
                come_back()

    # Events.

    def of_producer(self, producer_id: int) -> Transaction | None:
        """Return the transactional id of a producer id; None: no id of this shard has it."""
        transactional_id = self._ids.get(producer_id)
        return None if transactional_id is None else self.transactions[transactional_id]

    def is_settled(self, transactional_id: str) -> bool:
        """Tell whether no change of the id is on its way and no transaction is ending."""
        known = self.transactions.get(transactional_id)
        is_ending = known is not None and known.state in PREPARED
        return not is_ending and transactional_id not in self._pending

    def happen(
        self,
        transactional_id: str,
        event: machine.InitProducerId | machine.AddPartitions | machine.EndTransaction,
        tell: Tell,
    ) -> None:
        """Let a request's event happen; ``tell`` its answer when its change is durable.

        One id more than may be kept is refused: to forget another one would hurt its owner.
        """
        is_new = transactional_id not in self.transactions
        if not is_new or not isinstance(event, machine.InitProducerId):
            self._carry_out(transactional_id, event, tell)
            return
        count = len(self.transactions) + len(self._arriving)
        if count >= self._settings.ids_max and transactional_id not in self._arriving:
            tell(Answer(ErrorCode.POLICY_VIOLATION))
            return
        arrived = self._arriving.begin(transactional_id)

        def tell_arrived(answer: Answer) -> None:
            arrived()
            tell(answer)

        self._carry_out(transactional_id, event, tell_arrived)

    def when_settled(
        self,
        transactional_id: str,
        come_back: Callable[[], None],
        give_up: Callable[[], None],
        *,
        within_ms: int,
    ) -> None:
        """Run ``come_back`` when the id is settled, or when the shard ends.

        Or ``give_up``: after ``within_ms``, or at once if too many wait already. The end of a
        transaction may take for ever: one of its partitions may be out of service for good.
        """
        if within_ms <= 0 or self._waiting_count >= self._settings.waiting_max:
            give_up()
            return
        waiter = self._next_waiter
        self._next_waiter += 1
        self._waiting_count += 1
        self._waiting.setdefault(transactional_id, {})[waiter] = come_back

        def ring() -> None:
            those = self._waiting.get(transactional_id, {})
            if those.pop(waiter, None) is not None:
                self._waiting_count -= 1
                if not those:
                    del self._waiting[transactional_id]
                give_up()

        self._shard.timers.schedule(("wait", waiter), within_ms, ring)

    def _settle(self, transactional_id: str) -> None:
        if transactional_id in self._waiting and self.is_settled(transactional_id):
            those = self._waiting.pop(transactional_id)
            self._waiting_count -= len(those)
            for waiter, come_back in those.items():
                self._shard.timers.cancel(("wait", waiter))
                come_back()

    def _carry_out(self, transactional_id: str, event: machine.Event, tell: Tell) -> None:
        known = self.transactions.get(transactional_id)
        now_ms = self._shard.clock.wall_ms()
        pending = transactional_id in self._pending
        outcome = machine.step(known, event, now_ms, pending=pending)
        if isinstance(outcome, Answer):
            tell(outcome)
        elif isinstance(outcome, machine.Write):
            self._write(outcome, tell)
        elif isinstance(outcome, machine.Forget):
            self._forget(transactional_id, tell)
        else:
            assert isinstance(event, machine.InitProducerId | machine.EndTransaction)
            self._with_producer_id(transactional_id, event, tell)

    def _with_producer_id(
        self,
        transactional_id: str,
        event: machine.InitProducerId | machine.EndTransaction,
        tell: Tell,
    ) -> None:
        """Let the event happen again, with a fresh producer id."""
        assert event.fresh_producer_id == NO_PRODUCER_ID, "it has one"
        self._pending.add(transactional_id)

        def got(done: Pending[ProducerId]) -> None:
            self._pending.discard(transactional_id)
            fresh = done.value
            if fresh is None:
                tell(Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                self._settle(transactional_id)
                return
            self._shard.execute(
                lambda: self._carry_out(
                    transactional_id, event._replace(fresh_producer_id=fresh), tell
                ),
                lambda error: tell(Answer(error.code)),
            )

        self._producer_ids.next().on_done(got)

    def _write(self, write: machine.Write, tell: Tell) -> None:
        transaction, answer = write
        transactional_id = transaction.transactional_id
        try:
            record = records.transaction_record(transaction)
        except KafkaError as error:
            tell(Answer(error.code))
            return

        def applied() -> None:
            self._put(transaction)
            self._follow(transaction)

        # An end says more than its beginning did, and names all that was added.
        is_bounded = transaction.state is TransactionState.ONGOING
        self._append(transactional_id, record, applied, answer, tell, is_bounded=is_bounded)

    def _append(
        self,
        transactional_id: str,
        record: CoordinatorRecord,
        applied: Callable[[], None],
        answer: Answer,
        tell: Tell,
        *,
        is_bounded: bool = True,
    ) -> None:
        self._pending.add(transactional_id)

        def done() -> None:
            self._pending.discard(transactional_id)
            if self._shard.state is ShardState.ACTIVE:
                applied()
                tell(answer)
            else:
                tell(Answer(ErrorCode.NOT_COORDINATOR))
            self._settle(transactional_id)

        def refuse(error: KafkaError) -> None:
            logger.warning("%.249r could not be written: %s", transactional_id, error)
            self._pending.discard(transactional_id)
            tell(Answer(error.code))
            self._settle(transactional_id)

        self._shard.append([record], done, refuse, replayed=False, is_bounded=is_bounded)

    def _follow(self, transaction: Transaction) -> None:
        """Begin what the new state of a transaction needs: its timeout, or its markers."""
        key = ("timeout", transaction.transactional_id)
        if transaction.state is TransactionState.ONGOING:
            if key not in self._shard.timers:
                self._schedule_timeout(transaction)
            return
        self._shard.timers.cancel(key)
        if transaction.state in PREPARED:
            self._write_markers(transaction)

    # Ends.

    def _write_markers(self, transaction: Transaction) -> None:
        marker = Marker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.is_commit,
            self._shard.leader_epoch,
            transaction.client_version,
        )
        transactional_id = transaction.transactional_id

        def is_wanted() -> bool:
            return self.transactions.get(transactional_id) is transaction

        self._markers.write_all(
            marker,
            sorted(transaction.partitions),
            is_wanted,
            lambda: self._complete(transaction),
        )

    def _complete(self, transaction: Transaction) -> None:
        """Write that all markers are written; try again until that is durable."""
        transactional_id = transaction.transactional_id

        def run() -> None:
            if self.transactions.get(transactional_id) is transaction:
                self._carry_out(transactional_id, machine.MarkersWritten(), told)

        def told(answer: Answer) -> None:
            if answer.code is not ErrorCode.NONE and self._shard.state is ShardState.ACTIVE:
                key = ("complete", transactional_id)
                self._shard.timers.schedule(key, RETRY_MS, lambda: self._complete(transaction))

        self._shard.execute(run, lambda _: None)

    def _schedule_timeout(self, transaction: Transaction) -> None:
        now_ms = self._shard.clock.wall_ms()
        delay_ms = transaction.start_ms + transaction.timeout_ms - now_ms
        # If the clock was set back, the transaction does not stay open for longer.
        self._time_out_in(transaction, min(delay_ms, transaction.timeout_ms))

    def _time_out_in(self, transaction: Transaction, delay_ms: int) -> None:
        transactional_id = transaction.transactional_id
        key = ("timeout", transactional_id)
        event = machine.TimedOut(transaction.producer_id, transaction.producer_epoch)

        def told(answer: Answer) -> None:
            if answer.code is ErrorCode.NONE:
                logger.info(
                    "the transaction of %.249r has been open for %d ms: aborted",
                    transactional_id,
                    transaction.timeout_ms,
                )
            elif answer.code is not ErrorCode.PRODUCER_FENCED and (
                self._shard.state is ShardState.ACTIVE
            ):
                self._time_out_in(transaction, RETRY_MS)

        def ring() -> None:
            still_counts = self._shard.timers.rung(key)  # The next transaction has the same epoch.

            def run() -> None:
                if still_counts():
                    self._carry_out(transactional_id, event, told)

            self._shard.execute(run, lambda _: None)

        self._shard.timers.schedule(key, delay_ms, ring)

    # What is forgotten.

    def _forget(self, transactional_id: str, tell: Tell) -> None:
        def applied() -> None:
            self._drop(transactional_id)

        record = records.tombstone(transactional_id)
        self._append(transactional_id, record, applied, machine.DONE, tell)

    def expire(self) -> None:
        """Delete the ids that no producer has used for long enough, in steps."""
        self._shard.in_steps(self._expire())

    def _expire(self) -> Iterator[None]:
        latest_ms = self._shard.clock.wall_ms() - self._settings.expiration_ms
        for ordinal, transactional_id in enumerate(list(self.transactions), 1):
            transaction = self.transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.last_update_ms <= latest_ms
                and transaction.state in IDLE
            ):
                self._carry_out(transactional_id, machine.Expired(), lambda _: None)
            if not ordinal % EXPIRED_PER_STEP:
                yield
                if self._shard.state is not ShardState.ACTIVE:
                    return

    def _schedule_expiry(self) -> None:
        def again() -> None:
            self._shard.execute(self.expire, lambda _: None)
            if self._shard.state is ShardState.ACTIVE:
                self._schedule_expiry()

        interval_ms = self._settings.expiration_check_interval_ms
        self._shard.timers.schedule(_EXPIRY_TIMER, interval_ms, again)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert len(self._ids) <= len(self.transactions)
        assert self._waiting_count == sum(map(len, self._waiting.values()))
        for transactional_id, transaction in self.transactions.items():
            assert transaction.transactional_id == transactional_id
            assert transaction.producer_id in self._ids
            assert transaction.producer_epoch >= 0
            assert not (transaction.partitions and transaction.state in IDLE)
