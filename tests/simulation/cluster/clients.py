"""Clients of several nodes: they find leaders by Metadata, and begin anew when one has moved."""

import random
from collections import deque

from ottla.client.asyncio.connection import Connection
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import Address, ClientSettings
from ottla.errors import KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.campaigns.administering.records import TRANSACTIONAL, make_batch
from tests.simulation.cluster.ledger import Fate, Sent, Transaction
from tests.simulation.network import SimulatedNet
from tests.simulation.node import PORT

COMES_BACK = {3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 76, 78, 100}
"""Codes that pass, some of them when Metadata was asked again."""
GROUP, TRANSACTION = 0, 1
PATIENCE_SECONDS = 90.0
"""Without faults every client goes on within this time."""


class Lost(Exception):
    """There is no leader, or no way to it, now."""


class Client:
    """Owns its connections. Subclasses say what a step is."""

    kind = "client"

    def __init__(self, world, number):
        self.world = world
        self.ledger = world.ledger
        self.name = f"{self.kind}-{number}"
        self.number = number
        self.random = random.Random(f"{world.seed}/{self.name}")
        self.is_idle = True
        self._net = SimulatedNet(world.network, world.clients_life, self.name)
        self._connections = {}
        self._leaders = {}
        self.timeout_ms = self.random.choice([3_000, 10_000, 30_000])
        """For an answer, of connections that are opened from now on."""
        self._went_on = 0.0

    # -- ways ----------------------------------------------------------------------------------

    async def node(self, number):
        """Return the connection to a node."""
        known = self._connections.get(number)
        if known is None or known.is_closed:
            settings = ClientSettings(
                client_id=self.name, connect_timeout_ms=3_000, request_timeout_ms=self.timeout_ms
            )
            address = Address(f"node-{number}", PORT)
            known = self._connections[number] = await Connection.open(self._net, address, settings)
        return known

    def hang_up(self):
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    async def ask(self, number, request, answer, *, highest=None):
        connection = await self.node(number)
        return await connection.call(request, answer, highest=highest)

    async def ask_anyone(self, request, answer):
        return await self.ask(self.random.choice(self.world.numbers), request, answer)

    async def leader(self, topic, partition):
        """Return the node that leads. Raises Lost."""
        if (topic.name, partition) not in self._leaders:
            told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
            self._leaders = {
                (one.name, part.partition_index): part.leader_id
                for one in told.topics
                for part in one.partitions
            }
        number = self._leaders.get((topic.name, partition), -1)
        if number < 0:
            self._leaders.clear()
            raise Lost
        return number

    def forget_leaders(self):
        self._leaders.clear()

    async def ask_for_offset(self, leader, topic, partition, timestamp):
        """Return an offset by a time, or by a special one; None when it is refused."""
        one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=topic.name, partitions=[one])],
        )
        answer = await self.ask(leader, request, ListOffsetsResponse)
        told = answer.topics[0].partitions[0]
        self.ledger.counts[f"ListOffsets {told.error_code}"] += 1
        if told.error_code:
            self.forget_leaders()
            return None
        return told.offset

    async def coordinator(self, kind, key):
        """Return the coordinator's node. Raises Lost."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        answer = await self.ask_anyone(request, FindCoordinatorResponse)
        told = answer.coordinators[0]
        if told.error_code:
            raise Lost
        return told.node_id

    # -- life ----------------------------------------------------------------------------------

    async def run(self):
        """Work until the world ends."""
        world = self.world
        try:
            while True:
                if world.work.is_set():
                    self.is_idle = False
                    await self._attempt(self.step)
                    await world.sleep(self.random.expovariate(1 / world.mix.pause_seconds))
                elif self.is_idle or await self._attempt(self.finish):
                    self.is_idle = True
                    await world.work.wait()
        except Exception as error:  # noqa: BLE001 - a broken client must not pass for a quiet one
            world.problem(f"{self.name} broke: {type(error).__name__}: {error}", error)

    async def _attempt(self, work):
        try:
            await work()
        except (ConnectionFailed, OSError, Lost) as error:
            self.hang_up()
            self.ledger.counts[type(error).__name__] += 1
            await self.world.sleep(self.random.choice([0.05, 0.3, 1.0]))
            return False
        except KafkaError as error:
            self.world.problem(f"{self.name}: {error}")
        return True

    async def step(self):
        raise NotImplementedError

    async def finish(self):
        """Bring to an end what must not stay open."""

    async def later(self, begin, what):
        """Try again soon; it is a problem if that goes on although nothing hinders anybody."""
        self.forget_leaders()
        since = max(begin, self.world.unhindered_since)
        if self.world.is_unhindered and self.world.loop.now - since > PATIENCE_SECONDS:
            self.world.problem(f"{self.name} is stuck: {what}")
        await self.world.sleep(self.random.choice([0.05, 0.1, 0.5]))

    def choose(self):
        topic = self.random.choice(self.world.topics)
        return topic, self.random.randrange(topic.partition_count)


class Producer(Client):
    """What producers share."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self._writer = world.next_writer()
        self._next = 0

    def make(self, topic, partition, *, transaction=None, **fields):
        """Return a batch and its bytes; it is written down as sent."""
        ids = [(self._writer, self._next + at) for at in range(self.random.choice([1, 1, 2, 5]))]
        self._next += len(ids)
        timestamp_ms = self.world.now_ms
        data = make_batch(
            ids, topic.topic_id, has_tombstones=False, timestamp_ms=timestamp_ms, **fields
        )
        sent = Sent(
            (topic.name, partition),
            ids,
            transaction,
            is_sequenced="base_sequence" in fields,
            timestamp_ms=timestamp_ms,
        )
        self.ledger.send(sent)
        return sent, data

    def request(self, topic, sent, data, *, acks=-1, transactional_id=None):
        part = PartitionProduceData(index=sent.place[1], records=data)
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=self.random.choice([500, 5_000, 30_000]),
            topic_data=[
                TopicProduceData(name="", topic_id=topic.topic_id.bytes, partition_data=[part])
            ],
        )

    def judge(self, sent, answer, *, is_promise=True):
        part = answer.responses[0].partition_responses[0]
        self.ledger.answered(sent, part.error_code, part.base_offset, is_promise=is_promise)
        self.world.trace.note(
            "produced", self.name, sent.place, sent.ids[0], part.error_code, part.base_offset
        )
        return part.error_code


class PlainProducer(Producer):
    """Sends each batch once; with acks=1 nothing is promised that outlives a leader."""

    kind = "plain"

    async def step(self):
        topic, partition = self.choose()
        leader = await self.leader(topic, partition)
        acks = self.random.choice(self.world.mix.acks)
        sent, data = self.make(topic, partition)
        request = self.request(topic, sent, data, acks=acks)
        answer = await self.ask(leader, request, ProduceResponse)
        if self.judge(sent, answer, is_promise=acks == -1):
            self.forget_leaders()


class IdempotentProducer(Producer):
    """Sends some batches at a time to one partition, and again until each is answered."""

    kind = "idempotent"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._producer_id = -1
        self._sequences = {}
        self._written = {}
        """Where the last batch that was answered begins, by place."""
        self._pending = deque()
        self._topic = None

    async def step(self):
        if self._producer_id < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self.ask_anyone(request, InitProducerIdResponse)
            if answer.error_code:
                raise Lost
            self._producer_id = answer.producer_id
            self.ledger.given(answer.producer_id, self.name, self.name)
        if not self._pending:
            self._fill()
        await self._drain()

    async def finish(self):
        if self._pending:
            await self._drain()

    def _fill(self):
        self._topic, partition = self.choose()
        place = self._topic.name, partition
        # Of a compacted log one batch of a producer is remembered, else five.
        is_alone = place not in self._sequences or self._topic.is_compacted
        count = 1 if is_alone else self.random.randint(1, 5)
        for _ in range(count):
            sequence = self._sequences.get(place, 0)
            sent, data = self.make(
                self._topic,
                partition,
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            self._sequences[place] = sequence + len(sent.ids)
            self._pending.append((sent, data))

    async def _drain(self):
        begin = self.world.loop.now
        while self._pending:
            leader = await self.leader(self._topic, self._pending[0][0].place[1])
            connection = await self.node(leader)
            futures = [
                (sent, connection.send(self.request(self._topic, sent, data), ProduceResponse))
                for sent, data in self._pending
            ]
            first_bad = None
            for sent, future in futures:
                answer = await self.world.within(self.timeout_ms / 1000, future, connection)
                code = self.judge(sent, answer)
                if code in (0, 46) and first_bad is None:
                    self._pending.popleft()
                    (part,) = answer.responses[0].partition_responses
                    self._written[sent.place] = part.base_offset
                elif first_bad is None:
                    first_bad = code, sent
            if first_bad is not None:
                code, sent = first_bad
                written = self._written.get(sent.place, 0)
                if code == 45 and self.ledger.place(sent.place).may_be_gone(written):
                    # A replica that begins behind that knows nothing of this producer: it takes
                    # whatever batch comes first, and the one before may have been refused.
                    self._begin_anew()
                    return
                if code not in COMES_BACK:
                    self.world.problem(f"Produce of {sent.ids[0]} to {sent.place}: error {code}")
                await self.later(begin, f"Produce to {sent.place}: error {code}")

    def _begin_anew(self):
        self._producer_id = -1
        self._sequences.clear()
        self._written.clear()
        self._pending.clear()


class OfTransactions(Producer):
    """Owns one transaction at a time. Subclasses begin anew when one is left open."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self._producer_id = self._epoch = -1
        self._transaction = None
        self._count = 0
        self._sequences = {}

    async def finish(self):
        if self._transaction is not None:
            await self._begin_anew()

    async def _begin_anew(self):
        """Fence off what is open."""
        raise NotImplementedError

    async def _fence_off(self, transactional_id, transaction_ms):
        """Fence off whoever has the id; return the answer. None: the id is refused for good."""
        begin = self.world.loop.now
        transaction = self._transaction
        if transaction is not None and transaction.fate is Fate.OPEN:
            transaction.fate = Fate.ABORTED
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_ms
        )
        while True:
            number = await self.coordinator(TRANSACTION, transactional_id)
            answer = await self.ask(number, request, InitProducerIdResponse)
            code = answer.error_code
            self.ledger.counts[f"InitProducerId {code}"] += 1
            if code == 0:
                return answer
            if code not in COMES_BACK:
                self.world.problem(f"InitProducerId of {self.name}: error {code}")
                return None
            await self.later(begin, f"InitProducerId: error {code}")


class TransactionalProducer(OfTransactions):
    """Writes transactions over some partitions, and commits or aborts them (KIP-890)."""

    kind = "transactional"

    async def step(self):
        if self._producer_id < 0 or self._transaction is not None:
            await self._begin_anew()
        self._count += 1
        transaction = self._transaction = Transaction(f"{self.name}/{self._count}")
        is_whole = True
        for _ in range(self.random.randint(1, 4)):
            is_whole = is_whole and await self._produce(transaction)
        if not is_whole:
            transaction.fate = Fate.ABORTED
            await self._begin_anew()
            return
        await self._end(transaction, committed=self.random.random() < 0.7)

    async def _begin_anew(self):
        answer = await self._fence_off(self.name, 60_000)
        if answer is None:
            return
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self.ledger.given(self._producer_id, self.name, self.name)
        self._sequences.clear()
        self._transaction = None

    async def _produce(self, transaction):
        topic, partition = self.choose()
        place = topic.name, partition
        sequence = self._sequences.get(place, 0)
        leader = await self.leader(topic, partition)
        sent, data = self.make(
            topic,
            partition,
            transaction=transaction,
            attributes=TRANSACTIONAL,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        request = self.request(topic, sent, data, transactional_id=self.name)
        code = self.judge(sent, await self.ask(leader, request, ProduceResponse))
        if code:
            self.forget_leaders()
            return False
        self._sequences[place] = sequence + len(sent.ids)
        return True

    async def _end(self, transaction, *, committed):
        transaction.fate = Fate.UNKNOWN if committed else Fate.ABORTED
        number = await self.coordinator(TRANSACTION, self.name)
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        answer = await self.ask(number, request, EndTxnResponse)
        self.ledger.counts[f"EndTxn {answer.error_code}"] += 1
        if answer.error_code:
            await self._begin_anew()
            return
        if committed:
            transaction.fate = Fate.COMMITTED
        self._transaction = None
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
