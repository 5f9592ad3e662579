"""Producers: plain ones and idempotent ones."""

from collections import deque

from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.campaigns.administering.history import BY_NAME
from tests.campaigns.administering.writing import Writer
from tests.simulation.clients.base import (
    COMES_BACK,
    NO_SUCH_TOPIC,
    Client,
)

GAP_CHANCE = 0.05
"""Of an idempotent producer's step, that it leaves sequences out."""


class Producer(Client):
    """What producers share: batches of numbered records."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self._writing = Writer(world.history, self.random, world.next_writer())

    def choose(self):
        """Return a topic and a partition to write to; None when there is no topic."""
        return self._writing.choose()

    def make(self, topic, partition, **how):
        """Return a new batch and its bytes; see ``Writer.make``."""
        timestamp_ms = int(self.world.seconds() * 1000)
        return self._writing.make(topic, partition, timestamp_ms=timestamp_ms, **how)

    def request(self, batch, data, transactional_id=None, acks=-1):
        """Return a Produce request and the highest version it may have."""
        highest = 12 if batch.topic_id == BY_NAME else None
        part = PartitionProduceData(index=batch.partition, records=data)
        topic = TopicProduceData(
            name=batch.name if batch.topic_id == BY_NAME else "",
            topic_id=batch.topic_id.bytes,
            partition_data=[part],
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[topic]
        )
        return request, highest

    async def send(self, batch, data, transactional_id=None):
        """Send one batch; return the part of the answer that is about it."""
        request, highest = self.request(batch, data, transactional_id)
        answer = await self.call(request, ProduceResponse, highest=highest)
        return answer.responses[0].partition_responses[0]

    def judge(self, batch, answer):
        """Write an answer down; return its code."""
        code = answer.error_code
        self._writing.judge(batch, code, answer.base_offset)
        self.world.trace.note("produced", self.name, batch.ids[0][1], code, answer.base_offset)
        self.world.coverage.answered("Produce", code)
        if code == 0:
            self.world.device.appended(batch.topic_id, batch.partition)
            self.world.afterlife.promised(batch.topic_id, batch.partition)
        return code


class PlainProducer(Producer):
    """Sends each batch once, mostly by topic id, sometimes by name."""

    kind = "plain"

    async def step(self):
        chosen = self.choose()
        if chosen is not None:
            batch, data = self.make(*chosen, by_name=self.random.random() < 0.2)
            self.judge(batch, await self.send(batch, data))


class IdempotentProducer(Producer):
    """Sends some batches at a time to one partition, and again until each is answered."""

    kind = "idempotent"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._producer_id = -1
        self._sequences = {}
        self._pending = deque()
        self._topic = None

    async def step(self):
        if self._producer_id < 0:
            code = await self.insist("InitProducerId", self._init)
            if code:
                self.world.problem(f"{self.name}: InitProducerId: error {code}")
                return
        if not self._pending and self.random.random() < GAP_CHANCE:
            await self._leave_a_gap()
        if not self._pending:
            self._fill()
        await self._drain()

    async def _leave_a_gap(self):
        """Send a batch as a producer does that has lost the one before it: nobody may take it."""
        chosen = self.choose()
        if chosen is None:
            return
        topic, partition = chosen
        sequence = self._sequences.get((topic.topic_id, partition))
        if sequence is None:
            return  # Of a producer that is not known any sequence is taken.
        batch, data = self.make(
            *chosen,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence + self.random.randint(1, 3),
        )
        answer = await self.send(batch, data)
        code = self.judge(batch, answer)
        if code == 0 and not self._may_forget(topic):
            where = f"{batch.name}-{partition} ({batch.topic_id})"
            self.world.problem(
                f"{where}: a gap in a producer's sequence at {sequence} was let pass"
            )

    async def finish(self):
        while self._pending:
            await self._drain()

    async def _init(self):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self.call(request, InitProducerIdResponse)
        self._producer_id = answer.producer_id
        self._sequences.clear()
        return answer.error_code

    def _fill(self):
        chosen = self.choose()
        if chosen is None:
            return
        self._topic, partition = chosen
        place = (self._topic.topic_id, partition)
        # Of a compacted log one batch of a producer is remembered, else five. And the first batch
        # goes alone: the second would be taken, whatever its sequence, when the first is refused.
        is_first = place not in self._sequences
        at_once = 1 if is_first or self._may_forget(self._topic) else self.random.randint(1, 5)
        for _ in range(at_once):
            sequence = self._sequences.get(place, 0)
            one = self.make(
                *chosen, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
            )
            self._sequences[place] = sequence + len(one[0].ids)
            self._pending.append(one)

    def _may_forget(self, topic):
        policies = self.history.possible(topic, "cleanup.policy", "delete")
        return any("compact" in policy for policy, _, _ in policies)

    async def _drain(self):
        """Send what is pending until it is answered, or its topic goes."""
        begin = self.world.loop.now
        while self._pending:
            connection = await self.connection()
            futures = []
            spread_chance = self.random.choice([0.0, 0.5, 1.0])
            for batch, data in self._pending:
                # So that it may come amid the flush of the one before, some of them together.
                if futures and self.random.random() < spread_chance:
                    mean = self.world.mix.job_seconds * self.world.node.trouble.pace
                    await self.world.sleep(min(self.random.expovariate(1 / mean), 1.0))
                request, highest = self.request(batch, data)
                futures.append((batch, connection.send(request, ProduceResponse, highest=highest)))
            answers = []
            for batch, future in futures:
                answer = await self.world.within(self._timeout_ms / 1000, future, connection)
                answers.append((batch, answer.responses[0].partition_responses[0]))
                self.told("ProduceRequest")
            is_in_order = True
            for batch, answer in answers:
                code = answer.error_code
                if code in (0, 46):
                    self.judge(batch, answer)
                    if is_in_order:
                        self._pending.popleft()
                    continue
                if is_in_order:
                    is_in_order = False
                    await self._fail(code, begin, batch, answer)
            if not is_in_order and self._pending:
                await self.world.sleep(0.1)

    async def _fail(self, code, begin, batch, answer):
        self.world.coverage.answered("Produce", code)
        what = f"{batch.ids[0]} for {batch.name}-{batch.partition} ({batch.topic_id})"
        text = f"Produce of {what}: error {code}, {answer.error_message}"
        if not self._topic.is_living:
            self._give_up()
        elif code in COMES_BACK or code in NO_SUCH_TOPIC:
            self.be_patient(begin, text)
        elif code in (45, 59) and self._may_forget(self._topic):
            self._give_up()
        else:
            # It may be that its deletion has just begun.
            await self.world.sleep(0.5)
            if self._topic.is_living:
                self.world.problem(text)
            self._give_up()

    def _give_up(self):
        """Leave what is pending as it is, and become another producer."""
        self._pending.clear()
        self._producer_id = -1
