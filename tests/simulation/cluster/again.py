"""A client whose topic is deleted, and made anew under the same name, again and again.

What it was promised by the topic of one id has to be there, at its offset, as long as that topic
is; nothing of a former one is ever seen; and a topic whose deletion was confirmed is not back.
"""

import uuid

from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.campaigns.administering.records import make_batch
from tests.simulation.clients.readers import fetch_request, read_of
from tests.simulation.cluster.administering import TOO_FEW_NODES, TOPIC_EXISTS
from tests.simulation.cluster.clients import COMES_BACK, Client, Lost
from tests.simulation.cluster.reading import OUT_OF_RANGE

NO_SUCH_TOPIC = {3, 100, 103}
HEARS_LATE_SECONDS = 5.0
"""So long a node may tell of what was, when its way to the store is whole again."""
CHANGED_MEANWHILE = {37, 42}
PARTITIONS_MAX = 5


class Again(Client):
    """Has one topic at a time, of a name of its own."""

    kind = "again"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._writer = world.next_writer()
        self._topic = f"again-{number}"
        self._next = 0
        self._id = None
        """Of the topic that there is; None: it is not known, or there is none."""
        self._count = 0
        self._promised = {}
        """Of this topic: records by partition and offset."""
        self._asked = set()
        """Ids of topics that may be deleted: that was asked for."""
        self._deleted = set()
        """Those of them whose deletion was confirmed."""

    async def step(self):
        if self._id is None:
            await self._make()
            return
        what = self.random.random()
        if what < 0.5:
            await self._write()
        elif what < 0.75:
            await self._read(self.random.randrange(self._count))
        elif what < 0.8:
            await self._grow()
        elif what < 0.9:
            await self._delete()

    async def finish(self):
        """Look at all that was promised; then have no topic until work goes on, or keep it."""
        if self._id is not None:
            for partition in range(self._count):
                await self._read(partition, is_last=True)
        end = self.world.loop.now + HEARS_LATE_SECONDS
        while is_back := await self._deleted_that_are_there():
            if self.world.loop.now > end:
                self.world.problem(f"{self._topic} {is_back} was deleted, and is there")
                return
            await self.world.sleep(0.5)

    async def _deleted_that_are_there(self):
        told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
        return [
            one.topic_id.hex()
            for one in told.topics
            if one.name == self._topic and one.topic_id in self._deleted
        ]

    # -- the topic -----------------------------------------------------------------------------

    async def _make(self):
        count = self.random.randint(1, 3)
        told = await self.world.ask_for_topic(
            self, self._topic, len(self.world.numbers), count, self.world.mix.topic_options
        )
        self._count_code("CreateTopics", told.error_code)
        if told.error_code == TOPIC_EXISTS:
            await self._take_over()
        elif not told.error_code:
            self._has(told.topic_id, count)
        elif told.error_code not in (*COMES_BACK, TOO_FEW_NODES):
            self.world.problem(f"CreateTopics of {self._topic}: error {told.error_code}")

    async def _take_over(self):
        """Take a topic whose making nobody has heard of, unless it is one that was deleted."""
        told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
        for one in told.topics:
            if one.name == self._topic and one.topic_id not in self._deleted:
                self._has(one.topic_id, len(one.partitions))

    def _has(self, topic_id, count):
        if topic_id in self._deleted:
            self.world.problem(f"{self._topic}: the id {topic_id.hex()} was a former topic's")
        self._id, self._count, self._promised = topic_id, count, {}

    async def _grow(self):
        if self._count >= PARTITIONS_MAX:
            return
        wanted = CreatePartitionsTopic(name=self._topic, count=self._count + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=False)
        answer = await self.ask_anyone(request, CreatePartitionsResponse)
        code = answer.results[0].error_code
        self._count_code("CreatePartitions", code)
        if not code:
            self._count += 1
        elif code not in (*COMES_BACK, *CHANGED_MEANWHILE, TOO_FEW_NODES):
            self.world.problem(f"CreatePartitions of {self._topic}: error {code}")

    async def _delete(self):
        topic_id = self._id
        wanted = DeleteTopicState(name=None, topic_id=topic_id)
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=5_000)
        self._asked.add(topic_id)
        self._id = None  # From now on it may be gone.
        answer = await self.ask_anyone(request, DeleteTopicsResponse)
        code = answer.responses[0].error_code
        self._count_code("DeleteTopics", code)
        if not code:
            self._deleted.add(topic_id)
        elif code not in (*COMES_BACK, *NO_SUCH_TOPIC):
            self.world.problem(f"DeleteTopics of {self._topic}: error {code}")

    # -- its records ---------------------------------------------------------------------------

    async def _leader_of(self, partition):
        told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
        for one in told.topics:
            if one.name == self._topic and one.topic_id == self._id:
                for part in one.partitions:
                    if part.partition_index == partition and part.leader_id > 0:
                        return part.leader_id
                raise Lost
        if self._id in self._asked:
            self._id = None
        raise Lost

    async def _write(self):
        partition, topic_id = self.random.randrange(self._count), self._id
        leader = await self._leader_of(partition)
        ids = [(self._writer, self._next + at) for at in range(self.random.choice([1, 3]))]
        self._next += len(ids)
        data = make_batch(
            ids,
            uuid.UUID(bytes=topic_id),
            has_tombstones=False,
            timestamp_ms=self.world.now_ms,
        )
        part = PartitionProduceData(index=partition, records=data)
        topic = TopicProduceData(name="", topic_id=topic_id, partition_data=[part])
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[topic]
        )
        answer = await self.ask(leader, request, ProduceResponse)
        told = answer.responses[0].partition_responses[0]
        self._count_code("Produce again", told.error_code)
        if not told.error_code and self._id == topic_id:
            for at, one in enumerate(ids):
                self._promised[partition, told.base_offset + at] = one

    async def _read(self, partition, *, is_last=False):
        """Read all of a partition; ``is_last``: nothing else is under way."""
        topic_id, position, found, end = self._id, 0, {}, None
        leader = await self._leader_of(partition)
        promised = dict(self._promised)
        while end is None or position < end:
            request = fetch_request(
                [(uuid.UUID(bytes=topic_id), partition, position)], isolation=0, wait_ms=0
            )
            answer = await self.ask(leader, request, FetchResponse)
            told = answer.responses[0].partitions[0]
            self._count_code("Fetch again", told.error_code)
            if told.error_code:
                is_gone = told.error_code == OUT_OF_RANGE and self._may_lose()
                if is_last and not is_gone:
                    raise Lost
                return
            end = told.high_watermark
            read, _ = read_of(told)
            for each in read:
                for one in each.records:
                    found[one.offset] = one
            if not read:
                break
            position = read[-1].end_offset
        for offset, one in sorted(found.items()):
            if one.topic_id.bytes != topic_id:
                text = f"{self._topic}-{partition}: {one.record} at {offset} is a former topic's"
                self.world.problem(text)
        if not self._may_lose():
            for (number, offset), record in promised.items():
                if number != partition:
                    continue
                if offset >= position:
                    if is_last:  # A leader may not know yet how far it is committed.
                        raise Lost
                    continue
                if offset not in found or found[offset].record != record:
                    at = f"{self._topic}-{partition} at {offset} of {position}"
                    self.world.problem(f"{self.name}: {record} was promised, is not in {at}")

    def _may_lose(self):
        options = self.world.mix.topic_options
        return any(int(options.get(name, -1)) >= 0 for name in ("retention.ms", "retention.bytes"))

    def _count_code(self, what, code):
        self.ledger.counts[f"{what} {code}"] += 1
