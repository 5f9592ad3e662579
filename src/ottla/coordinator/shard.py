"""One partition of a coordinator's topic, led by this node: loaded, served, appended to, let go.

    LOADING --all replayed--> ACTIVE --an append failed--> FAILED
    LOADING --cannot be read--> FAILED
    any state --the leadership went, or the node stops--> CLOSED

Append first, change memory after: a record reaches the state machine's ``replay`` when the high
watermark has passed it, in the order of the log, the same way as at a load. So memory holds durable
state only, and what a client has seen survives a crash. Operations run in the order in which they
came. An operation that must see everything before it, and nothing beside it, runs ``alone``:
appends before it are durable by then, and operations behind it wait until its own appends are.

However much is loaded, replayed, queued or due at once, other work of the loop has its turns.

An unexpected error in an operation costs that operation: it is logged and refused, and the shard
goes on. An unexpected error while memory follows the log costs the memory: it is read again.

Owns the states above. ``operations`` has the order of operations, ``appends`` the writes and what
follows them, ``loading`` the load. Knows a partition and a state machine, nothing of groups.
Source: Kafka's CoordinatorRuntime in its effect.
"""

from __future__ import annotations  # else those of inner functions are made at each call

import logging
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.coordinator.appends import Apply, Done, ShardAppends
from ottla.coordinator.loading import Loading
from ottla.coordinator.operations import Operations, Refuse
from ottla.coordinator.records import (
    CoordinatorRecord,
    EndMarker,
    ProducerIdAndEpoch,
    StoredRecord,
)
from ottla.coordinator.step_line import StepLine
from ottla.deadlines import Deadlines
from ottla.env.clock import Clock
from ottla.env.executor import Executor
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.records.builder import KeyAndValue
from ottla.records.compression import Codec
from ottla.replication.partition import Partition, check_standing
from ottla.replication.replica_manager import ReplicaManager
from ottla.turns import Turns

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Machine = TypeVar("Machine", bound="StateMachine")


class ShardState(Enum):
    """The states of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_ACTIVE = ShardState.ACTIVE
"""The constant is faster to look up than the member: see ``ottla.log.health.OPEN``."""


class StateMachine(Protocol):
    """The memory of one partition. Its methods are called on the loop only."""

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record. Raises KafkaError or MalformedMessage if it makes no sense."""

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take or drop what a producer's transaction wrote, at once or in steps."""

    def loaded(self) -> Iterator[None] | None:
        """Begin to serve: the whole log has been replayed. Operations wait until the last step."""

    def unloaded(self, error: KafkaError) -> None:
        """Answer all clients that wait with ``error``, and forget everything."""


class Context(NamedTuple):
    """The collaborators of all shards of a coordinator."""

    replica_manager: ReplicaManager
    executor: Executor
    clock: Clock
    codec: Codec = Codec.NONE
    """The compression of their batches."""
    turns: Turns | None = None
    """The line of the loop; None: nobody else stands in it."""


class Shard(Generic[Machine]):
    """One partition of a coordinator's topic. ``machine`` may be read while the shard is ACTIVE."""

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
        self.timers = Deadlines(context.clock, turns, name="timers of a coordinator")
        """Use: the timers of the state machine. They end with the shard."""
        self.clock = context.clock
        self.partition = partition
        """Use: the log. The replica manager has another object after it has opened the log anew."""
        self.needs_reload = False
        """Use: the shard is FAILED, but the log is not the cause: it can be read again."""
        self.on_failed: Callable[[], None] = lambda: None
        """Use: told that the shard has failed."""
        self._following = StepLine(turns, f"appends to {self.where}")
        """Use: the line in which all changes of memory stand, in the order of the log."""
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
        if self.state is not _ACTIVE:
            raise self._refusal()

    def check_standing(self) -> None:
        """Raise KafkaError if another node may coordinate by now, unheard of here.

        What is in memory may be old then. (Kafka's brokers tell it: a committed offset goes back.)
        So it may while this process has registered anew, and was not granted the partition since.
        """
        partition = self.partition
        has_others = self.state is _ACTIVE and len(partition.state.replicas) > 1
        if not partition.is_leader or (partition.is_failed and has_others):  # Others may lead.
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.where} is not led here yet")
        check_standing(partition, ErrorCode.NOT_COORDINATOR)

    def _refusal(self) -> KafkaError:
        if self.state is ShardState.LOADING:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.where} is loading")
        if self.state is ShardState.FAILED:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.where} has failed")
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.where} is not led here")

    def execute(self, run: Callable[[], None], refuse: Refuse, *, alone: bool = False) -> None:
        """Run an operation in its turn: now, unless something is in its way. Or ``refuse`` it."""
        if self.state is _ACTIVE:
            self._operations.execute(run, refuse, alone=alone)
        else:
            refuse(self._refusal())

    def answer(
        self, run: Callable[[Pending[Answer]], None], *, alone: bool = False
    ) -> Pending[Answer]:
        """Execute a client's operation, which resolves the Pending it gets; a refusal fails it."""
        pending: Pending[Answer] = Pending()

        def run_in_turn() -> None:
            self.check_standing()  # It may have waited for what this node could not commit.
            run(pending)

        self.execute(run_in_turn, pending.fail, alone=alone)
        return pending

    def look(self, read: Callable[[], Answer]) -> Pending[Answer]:
        """Read memory at once, before all operations that wait: memory holds durable state only."""
        pending: Pending[Answer] = Pending()
        try:
            self.check_active()
            pending.resolve(read())
        except KafkaError as error:
            pending.fail(error.as_value())
        return pending

    def surely(self, read: Callable[[], Pending[Answer]]) -> Pending[Answer]:
        """Read when no other node coordinated after this was asked; else fail: NOT_COORDINATOR.

        What was told of memory once must not be told as it was before: ``check_standing`` goes by
        what was heard some seconds ago, and the next coordinator may have begun since.
        """
        confirm = self.partition.confirm
        asked = None if confirm is None else confirm(self.partition)
        if asked is None or asked.value:
            return read()
        answer: Pending[Answer] = Pending()

        def done(confirmed: Pending[bool]) -> None:
            if confirmed.value:
                answer.follow(read())
            else:
                why = f"{self.where}: another node may coordinate by now, unheard of here"
                answer.fail(KafkaError(ErrorCode.NOT_COORDINATOR, why).as_value())

        answer.on_cancel(asked.cancel)
        asked.on_done(done)
        return answer

    def attempt(self, run: Callable[[], None], refuse: Refuse) -> None:
        """Run a part of an operation; a KafkaError that it raises goes to ``refuse``."""
        self._operations.attempt(run, refuse)

    def in_steps(self, steps: Iterator[object]) -> None:
        """Do the rest of an operation in steps; the operation ends with the last step.

        So an operation that runs alone waits for the last step; if this one runs alone itself, the
        operations behind it wait. The steps go on when the shard is closed meanwhile: steps that
        need memory look at ``state``.
        """
        self._operations.in_steps(steps)

    def hold(self) -> None:
        """Let operations that run alone wait until ``release``: a decision is under way."""
        self._operations.hold()

    def release(self) -> None:
        """End one ``hold``: operations run again when everything they wait for has ended."""
        self._operations.release()

    # Appends.

    def append(
        self,
        records: Sequence[KeyAndValue],
        done: Done,
        refuse: Refuse,
        *,
        replayed: bool = True,
        apply: Apply | None = None,
        producer: ProducerIdAndEpoch | None = None,
        is_bounded: bool = True,
    ) -> None:
        """Append all or none; ``done`` once they are durable and replayed, else ``refuse``.

        They may wait in memory until what this shard has appended before is durable; see
        ``ottla.coordinator.appends``. ``replayed`` False: the state machine has the change already,
        or makes it in ``done``. ``apply``: called with the base offset, does to the state machine
        what a replay of the records would do, at once or in steps. ``producer``: whose transaction
        the records belong to. ``is_bounded`` False: they may be more than ``max.message.bytes``,
        for what came before them cannot be undone without them. Either callback may be called
        before this returns.
        """
        self._appends.append(
            records,
            done,
            refuse,
            replayed=replayed,
            apply=apply,
            producer=producer,
            is_bounded=is_bounded,
        )

    def append_marker(
        self,
        batch: bytearray,
        marker: EndMarker,
        done: Done,
        refuse: Refuse,
        *,
        transaction_version: int,
    ) -> None:
        """Append a marker, which ends a producer's transaction in this partition; as above."""
        self._appends.append_marker(
            batch, marker, done, refuse, transaction_version=transaction_version
        )

    def append_each(self, records: Sequence[CoordinatorRecord], done: Done, refuse: Refuse) -> None:
        """Append in as many batches as it takes: for records that need not be written as one.

        One callback is called when all batches have ended: ``refuse`` with the first error.
        """
        self._appends.append_each(records, done, refuse)

    def check_room(self, records: int, bytes_min: int) -> None:
        """Raise the KafkaError of a batch that is too large, before the batch is made.

        ``records``: how many there will be, of ``bytes_min`` bytes at least. Raises nothing if
        batches are compressed: their size is not known yet.
        """
        self._appends.check_room(records, bytes_min)

    # Memory, for those who fill it.

    @property
    def is_loading(self) -> bool:
        """Whether the log is being read."""
        return self.state is ShardState.LOADING

    @property
    def is_served(self) -> bool:
        """Whether memory follows the log."""
        return self.state is _ACTIVE

    def replay(self, stored: StoredRecord) -> None:
        """Take a durable record."""
        self.machine.replay(stored)

    def end_transaction(self, marker: EndMarker) -> Iterator[None] | None:
        """Take the end of a producer's transaction."""
        return self.machine.end_transaction(marker)

    # The beginning and the end.

    def load(self) -> None:
        """Begin to replay the log up to its present end; the shard is ACTIVE or FAILED then."""
        self._loading.begin()

    def loaded(self) -> None:
        """Begin to serve; operations wait until the state machine has begun."""
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
        """Serve no more: memory and log may differ."""
        self.needs_reload |= needs_reload
        if self.state in (ShardState.FAILED, ShardState.CLOSED):
            return
        logger.error("the coordinator of %s is out of service: %s", self.where, why)
        self._end(ShardState.FAILED, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))
        self.on_failed()

    def close(self) -> None:
        """Close the shard: another node leads, the topic was deleted, or this node stops."""
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
