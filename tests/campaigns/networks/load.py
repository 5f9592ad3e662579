"""Idempotent producers and consumers of a topic, one of each per partition, that never give up.

Each is a thread. A producer has some batches in flight, sends what was not acknowledged again, in
order, to whoever leads then, and tells the ledger. A consumer reads each partition from its first
offset on, by leader epochs, as Java's does: it listens to no leader older than one it has heard of.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tests.campaigns.networks.ledger import Ledger
from tools.wire_client import Closed, WireClient, batch, values_of

TOPIC = "campaign"
IN_FLIGHT = 3
"""Batches; a broker remembers five."""
RECORDS_MAX = 4
SILENCE_SECONDS = 0.25
"""After which somebody else is asked who leads."""
SILENT_FOR_SECONDS = 1.0
"""How long the others are asked first when one has not answered."""
GIVEN_UP_SECONDS = 10.0
"""For one answer of a node that is said to lead."""
REQUEST_MS = 2_000
STUCK_SECONDS = 20.0
"""How long the oldest record may be refused for its sequence number."""
OUT_OF_RANGE = 1
OUT_OF_ORDER = 45


class Leader(NamedTuple):
    """Who leads a partition."""

    node: int
    epoch: int


class Leaders:
    """Who leads each partition, as the nodes say; asked by all threads, but not by all at once."""

    FRESH_SECONDS = 0.03

    def __init__(self, bootstraps: Mapping[int, str], partitions: int) -> None:
        self.bootstraps = bootstraps
        self._lock = threading.Lock()
        self._known = [Leader(-1, -1)] * partitions
        self._heard = 0.0
        self._not_before = dict.fromkeys(bootstraps, 0.0)
        """Use: when each may be asked again before the others."""

    def of(self, partition: int) -> Leader:
        """Return who leads a partition by the newest epoch heard of; nobody yet: -1."""
        self._ask()
        return self._known[partition]

    def last_known(self, partition: int) -> Leader:
        """Return the same without asking anybody."""
        return self._known[partition]

    def isrs(self) -> list[list[int]]:
        """Return the replicas of each partition that all nodes take for in sync.

        One node is not enough: it may have been cut off, and not have heard yet of what it missed.
        """
        told = []
        with self._lock:
            for node in self.bootstraps:
                found: list[list[int]] = []
                with suppress(OSError, Closed):
                    found = self._ask_one(node)
                told.append(found or [[]] * len(self._known))
        return [sorted(set.intersection(*map(set, each))) for each in zip(*told, strict=True)]

    def _ask(self) -> None:
        with self._lock:
            if time.monotonic() - self._heard < self.FRESH_SECONDS:
                return
            now = time.monotonic()
            for node in sorted(self._not_before, key=lambda node: self._not_before[node]):
                self._not_before[node] = now  # Each in its turn: one that is cut off knows nothing.
                with suppress(OSError, Closed):
                    if self._ask_one(node):
                        self._heard = time.monotonic()
                        return
                self._not_before[node] = time.monotonic() + SILENT_FOR_SECONDS

    def _ask_one(self, node: int) -> list[list[int]]:
        """Return the in-sync replicas of all partitions, as a node says; [] if it knows not all."""
        with WireClient(self.bootstraps[node], timeout_seconds=SILENCE_SECONDS) as client:
            answer = client.call("metadata", 9, topics=[{"name": TOPIC}])
        found = answer["topics"][0]["partitions"]
        for each in found:
            partition, told = (
                each["partition_index"],
                Leader(each["leader_id"], each["leader_epoch"]),
            )
            if told.node >= 0 and told.epoch >= self._known[partition].epoch:
                self._known[partition] = told
        if len(found) != len(self._known):
            return []
        by_index = sorted(found, key=lambda each: each["partition_index"])
        return [list(each["isr_nodes"]) for each in by_index]


class Client(threading.Thread):
    """What producers and consumers share: a connection to the leader, while it leads."""

    def __init__(self, leaders: Leaders, ledger: Ledger, rest_seconds: float) -> None:
        super().__init__(daemon=True)
        self.leaders = leaders
        self.ledger = ledger
        self.partition = ledger.partition
        self.rest_seconds = rest_seconds
        self.stopping = threading.Event()
        self.broke: BaseException | None = None
        """What ended the thread though nobody wanted it to."""

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self.stopping.is_set():
                leader = self.leaders.of(self.partition)
                with suppress(OSError, Closed):
                    if leader.node >= 0:
                        address = self.leaders.bootstraps[leader.node]
                        with WireClient(address, timeout_seconds=SILENCE_SECONDS) as client:
                            self.work(client, leader)
                time.sleep(0.01)
        except BaseException as error:
            self.broke = error
            raise

    def work(self, client: WireClient, leader: Leader) -> None:
        """Use a connection to the leader; return, or raise Closed, when there should be another."""
        raise NotImplementedError

    def answer(self, client: WireClient, leader: Leader) -> bytes:
        """Return the next frame. Raises Closed when another node leads now."""
        deadline = time.monotonic() + GIVEN_UP_SECONDS
        buffered = bytearray()
        while True:
            try:
                missing = 4 - len(buffered)
                if missing <= 0:
                    missing += int.from_bytes(buffered[:4], "big")
                if missing <= 0:
                    return bytes(buffered[4:])
                piece = client.socket.recv(missing)
            except TimeoutError:
                if self.leaders.of(self.partition) != leader or time.monotonic() > deadline:
                    raise Closed("another node leads") from None
                continue
            if not piece:
                raise Closed("closed")
            buffered += piece


class Producer(Client):
    """Writes one partition."""

    def __init__(self, leaders: Leaders, ledger: Ledger, rest_seconds: float, seed: int) -> None:
        super().__init__(leaders, ledger, rest_seconds)
        self._producer_id = -1
        self._unanswered: list[tuple[int, int]] = []
        """Use: first record and count of each batch that is not acknowledged, in order."""
        self._seed = seed
        self._refused_since = 0.0
        self.answers: list[tuple[float, int]] = []
        """When a batch was acknowledged, and by whom."""
        self.codes: dict[int, int] = {}

    def work(self, client: WireClient, leader: Leader) -> None:
        """Send and take answers, while all goes well."""
        if self._producer_id < 0:
            made = client.call(
                "init_producer_id", 4, transactional_id=None, producer_id=-1, producer_epoch=-1
            )
            if made["error_code"]:
                raise AssertionError(made)
            self._producer_id = made["producer_id"]
        sent = 0
        while not self.stopping.is_set() or self._unanswered:
            while sent < len(self._unanswered) or (sent < IN_FLIGHT and not self.stopping.is_set()):
                if sent == len(self._unanswered):
                    first = self.ledger.sent
                    count = 1 + (first * 7 + self._seed) % RECORDS_MAX
                    self._unanswered.append((first, count))
                self._send(client, *self._unanswered[sent])
                sent += 1
            if not self._take(client, leader):
                return
            sent -= 1
            if self.rest_seconds:
                time.sleep(self.rest_seconds)

    def _send(self, client: WireClient, first: int, count: int) -> None:
        records = batch(
            self.ledger.send(first, count),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        data = [{"index": self.partition, "records": records}]
        client.send_frame(
            client.encode(
                "produce",
                9,
                acks=-1,
                timeout=REQUEST_MS,
                topic_data=[{"name": TOPIC, "partition_data": data}],
            )
        )

    def _take(self, client: WireClient, leader: Leader) -> bool:
        answer: Any = client.decode("produce", 9, self.answer(client, leader))
        told = answer["responses"][0]["partition_responses"][0]
        code = told["error_code"]
        if code:
            self.codes[code] = self.codes.get(code, 0) + 1
            self._judge(code)
            return False
        first, count = self._unanswered.pop(0)
        self.ledger.acknowledge(first, count, told["base_offset"])
        self.answers.append((time.monotonic(), leader.node))
        self._refused_since = 0.0
        return True

    def _judge(self, code: int) -> None:
        if code != OUT_OF_ORDER:
            return
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if now - self._refused_since > STUCK_SECONDS:
            self.ledger.fail(f"record {self._unanswered[0][0]} is out of order, for ever")
            self._refused_since = now


class Consumer(Client):
    """Reads one partition."""

    def work(self, client: WireClient, leader: Leader) -> None:
        """Read on, while this node leads."""
        while not self.stopping.is_set():
            asked = {
                "partition": self.partition,
                "current_leader_epoch": leader.epoch,
                "fetch_offset": self.ledger.seen,
                "partition_max_bytes": 1 << 20,
            }
            client.send_frame(
                client.encode(
                    "fetch",
                    12,
                    replica_id=-1,
                    session_id=0,
                    session_epoch=-1,
                    max_wait=100,
                    min_bytes=4_000,
                    max_bytes=1 << 20,
                    topics=[{"topic": TOPIC, "partitions": [asked]}],
                )
            )
            answer = client.decode("fetch", 12, self.answer(client, leader))
            told = answer["responses"][0]["partitions"][0]
            if told["error_code"]:
                if told["error_code"] == OUT_OF_RANGE:
                    who = f"node {leader.node} in epoch {leader.epoch}"
                    self.ledger.fail(f"{who} has no offset {asked['fetch_offset']}")
                return
            for offset, value in values_of(told["records"]):
                if offset >= self.ledger.seen:  # A batch comes from its first record on.
                    self.ledger.see(offset, value)


def read_again(leaders: Leaders, ledger: Ledger) -> None:
    """Read a partition that nobody writes any more from its first offset on, and judge it."""
    leader = leaders.of(ledger.partition)
    with WireClient(leaders.bootstraps[leader.node]) as client:
        ((_, end),) = client.list_offsets(TOPIC, [ledger.partition])
        offset = 0
        while offset < end:
            answer = client.fetch(
                TOPIC, offset, ledger.partition, max_bytes=8 << 20, partition_max_bytes=8 << 20
            )
            values = values_of(answer["records"])
            if not values:
                ledger.fail(f"offset {offset} cannot be read: {answer['error_code']}")
                break
            for offset, value in values:
                ledger.read_again(offset, value)
            offset += 1
    ledger.end(end)
