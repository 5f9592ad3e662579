"""One partition of a coordinator's topic, led by this node: loaded, served, appended to, let go.

    LOADING --all replayed--> ACTIVE --an append failed--> FAILED
    LOADING --cannot be read--> FAILED
    any state --the leadership went, or the node stops--> CLOSED

Append first, change memory after: a record reaches the state machine's ``replay`` when the high
watermark has passed it, in the order of the log, by the same way it takes at a load. So whoever
reads the memory sees durable things only, and what is seen survives. Operations run in the order
they came. One that must see everything before it, and nothing beside it, runs ``alone``: appends
before it are durable by then, and those behind it wait until its own are.

However much is loaded, replayed, waits or is due at once: the loop's other work has turns between.

A fault of ours in an operation costs that operation: it is logged and answered, and the shard goes
on. One while memory follows the log costs the memory: it is made anew from the log.

Owns that life; the order of operations is in ``operations``, what is written and what follows in
``appends``, how it begins in ``loading``. Knows a partition and a state machine, nothing of groups.
Source: Kafka's CoordinatorRuntime in its effect.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.coordinator.appends import Apply, Done, ShardAppends
from ottla.coordinator.loading import Loading
from ottla.coordinator.operations import Operations
from ottla.coordinator.records import (
    CoordinatorRecord,
    EndMarker,
    ProducerIdAndEpoch,
    StoredRecord,
)
from ottla.coordinator.step_line import StepLine
from ottla.coordinator.timers import Timers
from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.records.builder import KeyAndValue
from ottla.records.compression import Codec
from ottla.replication.partition import Partition
from ottla.replication.replica_manager import ReplicaManager
from ottla.turns import Turns

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Machine = TypeVar("Machine", bound="StateMachine")


class ShardState(Enum):
    """What a shard can do for requests."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_ACTIVE = ShardState.ACTIVE
"""For the hot way: see ``ottla.log.health.OPEN``."""


class StateMachine(Protocol):
    """What is kept in memory of one partition. Called on the loop only."""

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError or MalformedMessage if it makes no sense."""

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take or drop what a producer's transaction wrote, at once or in steps."""

    def loaded(self) -> Iterator[None] | None:
        """Begin to serve: all there is has been replayed. Operations wait until the last step."""

    def unloaded(self, error: KafkaError) -> None:
        """Answer whoever waits with ``error``, and forget everything."""


class Context(NamedTuple):
    """What all shards of a coordinator share."""

    replica_manager: ReplicaManager
    executor: Executor
    clock: Clock
    codec: Codec = Codec.NONE
    """What their batches are compressed with."""
    turns: Turns | None = None
    """The line of the loop; None: nobody else stands in it."""


class Shard(Generic[Machine]):
    """See the module. ``machine`` may be looked at while the shard is ACTIVE."""

    def __init__(
        self,
        context: Context,
        partition: Partition,
        make_machine: Callable[[Shard[Machine]], Machine],
    ) -> None:
        self.where: TopicPartition = partition.topic_partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self.turns = turns = Turns(context.clock) if context.turns is None else context.turns
        self.timers = Timers(context.clock, turns)
        """Use: timers of the state machine, gone with the shard."""
        self.clock = context.clock
        self.partition = partition
        """Use: the log. Another object once the replica manager had to open it anew."""
        self.needs_reload = False
        """Use: FAILED by a fault of ours behind an append, not by its log: the log can be read."""
        self._following = StepLine(turns, f"appends to {self.where}")
        """Use: all that changes memory, in the order of the log, and what ends with it."""
        self._operations = Operations(self.where, turns)
        self._appends = ShardAppends(
            partition=partition,
            replica_manager=context.replica_manager,
            clock=context.clock,
            codec=context.codec,
            operations=self._operations,
            following=self._following,
            memory=self,
        )
        self._loading = Loading(partition, context.executor, self._following, self)
        self.machine = make_machine(self)

    # The way in.

    def check_active(self) -> None:
        """Raise KafkaError unless requests can be served."""
        error = self._refusal()
        if error is not None:
            raise error

    def _refusal(self) -> KafkaError | None:
        if self.state is _ACTIVE:
            return None
        if self.state is ShardState.LOADING:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.where} is loading")
        if self.state is ShardState.FAILED:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.where} has failed")
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.where} is not led here")

    def execute(
        self,
        run: Callable[[], None],
        refuse: Callable[[KafkaError], None],
        *,
        alone: bool = False,
    ) -> None:
        """Run an operation in its turn, now if nothing is in its way. Or ``refuse`` it."""
        error = self._refusal()
        if error is None:
            self._operations.execute(run, refuse, alone=alone)
        else:
            refuse(error)

    def answer(
        self, run: Callable[[Pending[Answer | KafkaError]], None], *, alone: bool = False
    ) -> Pending[Answer | KafkaError]:
        """Execute an operation that resolves the Pending it is given; so does a refusal."""
        pending: Pending[Answer | KafkaError] = Pending()
        self.execute(lambda: run(pending), pending.resolve, alone=alone)
        return pending

    def look(
        self, run: Callable[[Pending[Answer | KafkaError]], None]
    ) -> Pending[Answer | KafkaError]:
        """Run an operation that only reads, at once: what memory holds is durable at any time."""
        pending: Pending[Answer | KafkaError] = Pending()
        error = self._refusal()
        if error is None:
            try:
                run(pending)
            except KafkaError as refusal:
                error = refusal.as_value()
        if error is not None:
            pending.resolve(error)
        return pending

    def attempt(self, run: Callable[[], None], refuse: Callable[[KafkaError], None]) -> None:
        """Run what belongs to an operation; what it raises is answered."""
        self._operations.attempt(run, refuse)

    def in_steps(self, steps: Iterator[object]) -> None:
        """Do what is left of an operation in steps; it ends with the last one.

        So what runs alone waits for it, and those behind it if it runs alone itself. Also when the
        shard is let go meanwhile: who needs its memory looks at ``state``.
        """
        self._operations.in_steps(steps)

    def hold(self) -> None:
        """Let operations that run alone wait until ``release``: something is being decided."""
        self._operations.hold()

    def release(self) -> None:
        """Let them run, when everything else that they wait for is over."""
        self._operations.release()

    # Appends.

    def append(
        self,
        records: Sequence[KeyAndValue],
        done: Done,
        *,
        replayed: bool = True,
        apply: Apply | None = None,
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        """Append all or none; ``done`` once they are durable and replayed, or with why they aren't.

        They may wait in memory until what this shard has appended before is durable; see
        ``ottla.coordinator.appends``. ``replayed`` False: the state machine has the change already,
        or makes it in ``done``. ``apply``: called with the base offset, does to the state machine
        what a replay of the records would do, at once or in steps. ``producer``: whose transaction
        the records belong to. ``done`` may be called before this returns.
        """
        self._appends.append(records, done, replayed=replayed, apply=apply, producer=producer)

    def append_marker(
        self, batch: bytearray, marker: EndMarker, done: Done, *, transaction_version: int
    ) -> None:
        """End a producer's transaction in this partition by a marker, made already; as above."""
        self._appends.append_marker(batch, marker, done, transaction_version=transaction_version)

    def append_each(self, records: Sequence[CoordinatorRecord], done: Done) -> None:
        """Append in as many batches as it takes; for what need not be one.

        ``done`` with the first error, once all of them are over.
        """
        self._appends.append_each(records, done)

    def check_room(self, records: int, bytes_min: int) -> None:
        """Raise what ``append`` says of a batch that is too large, before it is made.

        Of so many records of so many bytes at least; whether it fits cannot be told if they are
        compressed.
        """
        self._appends.check_room(records, bytes_min)

    # Memory, for those who fill it.

    @property
    def is_loading(self) -> bool:
        """Whether the log is being read."""
        return self.state is ShardState.LOADING

    @property
    def is_served(self) -> bool:
        """Whether memory is what the log says."""
        return self.state is _ACTIVE

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record."""
        self.machine.replay(stored)

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take the end of a producer's transaction."""
        return self.machine.end_transaction(marker)

    # The beginning and the end.

    def load(self) -> None:
        """Begin to replay the log up to its present end; ACTIVE or FAILED once that is over."""
        self._loading.begin()

    def loaded(self) -> None:
        """Begin to serve; operations wait until that is over."""
        self.state = ShardState.ACTIVE
        self._operations.hold_all()
        self._following.add(self._begin_to_serve())

    def _begin_to_serve(self) -> Iterator[None]:
        try:
            for _ in self.machine.loaded() or ():
                yield
                if self.state is not ShardState.ACTIVE:
                    break
        except Exception:
            logger.exception("%s: it could not begin to serve", self.where)
            self.fail("it could not begin to serve")
        self._operations.release()

    def fail(self, why: str, *, needs_reload: bool = False) -> None:
        """Serve no more: what memory says and what the log holds may differ."""
        self.needs_reload |= needs_reload
        if self.state in (ShardState.FAILED, ShardState.CLOSED):
            return
        logger.error("the coordinator of %s is out of service: %s", self.where, why)
        self._end(ShardState.FAILED, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))

    def close(self) -> None:
        """Let go: another node leads, the topic is gone, or this node stops."""
        if self.state is not ShardState.CLOSED:
            why = f"{self.where} is not led here"
            self._end(ShardState.CLOSED, KafkaError(ErrorCode.NOT_COORDINATOR, why))

    def _end(self, state: ShardState, error: KafkaError) -> None:
        self.state = state
        self.timers.close()
        try:
            self.machine.unloaded(error)
        except Exception:
            logger.exception("%s: those who wait could not be told all", self.where)
        self._following.add(self._appends.refuse_gathered(error))
        self._following.add(self._operations.send_away(error))
