"""Clients that work until they are paused: what they share, and those that produce.

A client has one connection and writes into the history what it asks and what it is told. It goes on
when the broker comes back, wherever it listens then. Paused, it first brings to an end what it must
not leave open: an idempotent batch is sent again until it is answered, a transaction is fenced off.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.campaigns.administering.history import (
    BY_NAME,
    Batch,
    History,
    Outcome,
    Topic,
    Transaction,
)
from tests.campaigns.administering.records import (
    TRANSACTIONAL,
)
from tests.campaigns.administering.writing import COMES_BACK, Writer
from tools.wire_client import Closed, WireClient

PATIENCE_SECONDS = 40.0
"""A broker that lives must let a client go on within this time; long, as machines are busy."""
NO_SUCH_TOPIC = {3, 100, 103}


class Stuck(Exception):
    """The broker serves, and this client cannot go on."""


class Service:
    """Where the broker listens, and whether clients shall work. Shared by all of them."""

    def __init__(self) -> None:
        self.bootstrap = ""
        self.working = threading.Event()
        self.is_ended = False
        self.is_down = True
        """It was taken down on purpose, or is stopped; nobody's patience runs meanwhile."""
        self.up_since = 0.0

    def went_down(self) -> None:
        """No patience runs from here on."""
        self.is_down = True

    def came_up(self, bootstrap: str) -> None:
        """Patience begins anew."""
        self.bootstrap = bootstrap
        self.up_since = time.monotonic()
        self.is_down = False


class Client:
    """One client. Subclasses say what a step is, and what must be brought to an end."""

    def __init__(self, service: Service, history: History, seed: str) -> None:
        self.name = f"{type(self).__name__} {seed}"
        self._thread = threading.Thread(target=self._run, daemon=True, name=self.name)
        self.service = service
        self.history = history
        self.random = random.Random(seed)
        self.idle = threading.Event()
        self.idle.set()
        self._wire: WireClient | None = None
        self._timeout_seconds = self.random.choice([6.0, 30.0])

    @property
    def wire(self) -> WireClient:
        """The connection, made when it is needed."""
        if self._wire is None:
            self._wire = WireClient(
                self.service.bootstrap, timeout_seconds=self._timeout_seconds, client_id=self.name
            )
        return self._wire

    def call(self, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Ask; raises OSError when there is no answer, and the connection is done with."""
        return self.wire.call(api, version, **fields)

    def hang_up(self) -> None:
        """Forget the connection."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end, which the service's brings."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            while not self.service.is_ended:
                if self.service.working.is_set():
                    self.idle.clear()
                    self._attempt(self.step)
                elif self.idle.is_set() or self._attempt(self.finish):
                    self.idle.set()
                    time.sleep(0.02)
        except Stuck as error:
            self.history.problem(f"{self.name} is stuck: {error}")
        except Exception as error:  # A broken client must not pass for a quiet one.
            self.history.problem(f"{self.name} broke: {type(error).__name__}: {error}")
            raise
        finally:
            self.idle.set()
            self.hang_up()

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except (OSError, Closed):
            self.hang_up()
            self.history.count("connections lost")
            time.sleep(0.05)
            return False
        return True

    def step(self) -> None:
        """Do one thing. Raises OSError when the broker went away."""
        raise NotImplementedError

    def finish(self) -> None:
        """Bring to an end what must not stay open; the next step begins anew."""

    def insist(self, what: str, ask: Callable[[], int]) -> int:
        """Ask until the code is none of those that pass; return it. Raises Stuck, OSError."""
        begin = time.monotonic()
        while True:
            code = ask()
            if code not in COMES_BACK:
                return code
            self.be_patient(begin, f"{what}: error {code}")
            time.sleep(0.05)

    def be_patient(self, begin: float, what: str) -> None:
        """Raise Stuck when the broker has been up for long, and so has this gone on."""
        since = max(begin, self.service.up_since)
        if not self.service.is_down and time.monotonic() - since > PATIENCE_SECONDS:
            raise Stuck(what)


class Producer(Client):
    """What producers share: batches of numbered records."""

    def __init__(self, service: Service, history: History, seed: str, writer: int) -> None:
        super().__init__(service, history, seed)
        self._writing = Writer(history, self.random, writer)

    def choose(self) -> tuple[Topic, int] | None:
        """Return a topic and a partition to write to; None when there is no topic."""
        chosen = self._writing.choose()
        if chosen is None:
            time.sleep(0.02)
        return chosen

    def make(self, topic: Topic, partition: int, **how: Any) -> tuple[Batch, bytes]:
        """Return a new batch and its bytes; see ``Writer.make``."""
        timestamp_ms = int(time.time() * 1000)
        return self._writing.make(topic, partition, timestamp_ms=timestamp_ms, **how)

    def ask(self, batch: Batch, data: bytes, transactional_id: str | None = None) -> bytes:
        """Return a Produce request."""
        asked: dict[str, Any] = {
            "partition_data": [{"index": batch.partition, "records": data}],
        }
        version = 13
        if batch.topic_id == BY_NAME:
            version, asked["name"] = 9, batch.name
        else:
            asked["topic_id"] = batch.topic_id
        return self.wire.encode(
            "produce",
            version,
            transactional_id=transactional_id,
            acks=-1,
            timeout=30_000,
            topic_data=[asked],
        )

    def answer_of(self, batch: Batch) -> dict[str, Any]:
        """Return the answer of the next Produce request in the line."""
        version = 9 if batch.topic_id == BY_NAME else 13
        answer = self.wire.decode("produce", version, self.wire.receive_frame())
        return dict(answer["responses"][0]["partition_responses"][0])

    def judge(self, batch: Batch, answer: dict[str, Any]) -> int:
        """Write an answer down; return its code."""
        code = int(answer["error_code"])
        self._writing.judge(batch, code, answer["base_offset"])
        return code


class PlainProducer(Producer):
    """Sends each batch once, mostly by topic id, sometimes by name."""

    def step(self) -> None:
        """Send one batch."""
        chosen = self.choose()
        if chosen is None:
            return
        batch, data = self.make(*chosen, by_name=self.random.random() < 0.2)
        self.wire.send_frame(self.ask(batch, data))
        code = self.judge(batch, self.answer_of(batch))
        if code:
            self.history.count(f"plain: error {code}")
        time.sleep(self.random.choice([0.0, 0.01, 0.03]))


class IdempotentProducer(Producer):
    """Sends some batches at a time to one partition, and again until each is answered."""

    def __init__(self, service: Service, history: History, seed: str, writer: int) -> None:
        super().__init__(service, history, seed, writer)
        self._producer_id = -1
        self._sequences: dict[tuple[Any, int], int] = {}
        self._pending: deque[tuple[Batch, bytes]] = deque()
        self._topic: Topic | None = None

    def step(self) -> None:
        """Send up to four batches, or what is left of the last ones."""
        if self._producer_id < 0:
            self.insist("InitProducerId", self._init)
        if not self._pending:
            self._fill()
        self._drain()
        time.sleep(self.random.choice([0.0, 0.02]))

    def finish(self) -> None:
        """Send again until all is answered."""
        while self._pending:
            self._drain()

    def _init(self) -> int:
        answer = self.call(
            "init_producer_id",
            5,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._producer_id = answer["producer_id"]
        self._sequences.clear()
        return int(answer["error_code"])

    def _fill(self) -> None:
        chosen = self.choose()
        if chosen is None:
            return
        self._topic, partition = chosen
        place = (self._topic.topic_id, partition)
        # Of a compacted log one batch of a producer is remembered, else five.
        at_once = 1 if self._may_forget() else self.random.randint(1, 4)
        if place not in self._sequences:
            # A partition that is hosted between two batches on their way refuses the one and takes
            # the other for a producer's first, whatever its sequence (so does Kafka).
            at_once = 1
        for _ in range(at_once):
            sequence = self._sequences.get(place, 0)
            one = self.make(
                *chosen, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
            )
            self._sequences[place] = sequence + len(one[0].ids)
            self._pending.append(one)

    def _may_forget(self) -> bool:
        assert self._topic is not None, "chosen"
        with self.history.lock:
            policies = self.history.possible(self._topic, "cleanup.policy", "delete")
        return any("compact" in policy for policy, _, _ in policies)

    def _drain(self) -> None:
        """Send what is pending until it is answered, or its topic goes."""
        begin = time.monotonic()
        while self._pending:
            for batch, data in self._pending:
                self.wire.send_frame(self.ask(batch, data))
            answers = [(batch, self.answer_of(batch)) for batch, _ in tuple(self._pending)]
            is_in_order = True
            for batch, answer in answers:
                code = int(answer["error_code"])
                if code in (0, 46):
                    self.judge(batch, answer)
                    if is_in_order:
                        self._pending.popleft()
                    continue
                if is_in_order:
                    is_in_order = False
                    self._fail(code, begin, batch, answer)
            if not is_in_order and self._pending:
                time.sleep(0.05)

    def _fail(self, code: int, begin: float, batch: Batch, answer: dict[str, Any]) -> None:
        assert self._topic is not None, "it was written to"
        self.history.count(f"idempotent: error {code}")
        what = f"{batch.ids[0]} for {batch.name}-{batch.partition} ({batch.topic_id})"
        text = f"Produce of {what}: error {code}, {answer['error_message']}"
        if not self._topic.is_living:
            self._give_up()
        elif code in COMES_BACK or code in NO_SUCH_TOPIC:
            self.be_patient(begin, text)
        elif code in (45, 59) and self._may_forget():
            self._give_up()
        else:
            # It may be that its deletion has just begun.
            time.sleep(0.2)
            if self._topic.is_living:
                self.history.problem(text)
            self._give_up()

    def _give_up(self) -> None:
        """Leave what is pending as it is, and become another producer."""
        self._pending.clear()
        self._producer_id = -1


class TransactionalProducer(Producer):
    """Writes transactions over some partitions, and commits or aborts them (KIP-890)."""

    def __init__(self, service: Service, history: History, seed: str, writer: int) -> None:
        super().__init__(service, history, seed, writer)
        self._name = f"transactional-{writer}"
        self._producer_id = self._epoch = -1
        self._transaction: Transaction | None = None
        self._number = 0
        self._sequences: dict[tuple[Any, int], int] = {}

    def step(self) -> None:
        """Play one transaction."""
        if self._producer_id < 0 or self._transaction is not None:
            self._close()
        transaction = self._transaction = Transaction(f"{self._name}/{self._number}")
        self._number += 1
        with self.history.lock:
            self.history.transaction_count += 2
        is_whole = True
        for _ in range(self.random.randint(1, 4)):
            is_whole = is_whole and self._produce(transaction)
            if self.random.random() < 0.05:
                time.sleep(self.random.random())
        committed = is_whole and self.random.random() < 0.7
        self._end(transaction, committed=committed)
        time.sleep(self.random.choice([0.0, 0.03]))

    def finish(self) -> None:
        """Fence off what is open: nothing of it is under way afterwards."""
        if self._transaction is not None:
            self._close()

    def _close(self) -> None:
        transaction = self._transaction
        if transaction is not None and transaction.outcome is Outcome.OPEN:
            transaction.outcome = Outcome.ABORTED
        self._init()

    def _init(self) -> None:
        code = self.insist(f"InitProducerId of {self._name}", self._ask_for_id)
        if code:
            self.history.problem(f"InitProducerId of {self._name}: error {code}")
            return
        self._transaction = None
        self._sequences.clear()

    def _ask_for_id(self) -> int:
        answer = self.call(
            "init_producer_id",
            5,
            transactional_id=self._name,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._producer_id, self._epoch = answer["producer_id"], answer["producer_epoch"]
        return int(answer["error_code"])

    def _produce(self, transaction: Transaction) -> bool:
        chosen = self.choose()
        if chosen is None:
            return True
        topic, partition = chosen
        place = (topic.topic_id, partition)
        sequence = self._sequences.get(place, 0)
        batch, data = self.make(
            *chosen,
            transaction=transaction,
            attributes=TRANSACTIONAL,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        self.wire.send_frame(self.ask(batch, data, self._name))
        code = self.judge(batch, self.answer_of(batch))
        if code:
            self.history.count(f"transactional: error {code}")
            return False
        self._sequences[place] = sequence + len(batch.ids)
        return True

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        """Ask for the end, and again while the coordinator cannot tell."""
        transaction.outcome = Outcome.UNKNOWN if committed else Outcome.ABORTED
        answer: dict[str, Any] = {}

        def ask() -> int:
            answer.update(
                self.call(
                    "end_txn",
                    5,
                    transactional_id=self._name,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    committed=committed,
                )
            )
            return int(answer["error_code"])

        code = self.insist(f"EndTxn of {transaction.name}", ask)
        if code == 0:
            transaction.outcome = Outcome.COMMITTED if committed else Outcome.ABORTED
            self._producer_id, self._epoch = answer["producer_id"], answer["producer_epoch"]
            self._sequences.clear()
            self._transaction = None
            self.history.count("transactions ended")
            return
        self.history.count(f"EndTxn: error {code}")
        self._init()
