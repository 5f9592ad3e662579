"""A client of large requests: thousands of topics, most of which nobody knows, or all partitions.

Such a request is decoded and answered in slices. Judged: the answer has each name that was asked
for, once, and none besides; what is committed or written counts as any commit or batch does.
"""

import uuid

from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.campaigns.administering.history import Call, Commit, Verdict
from tests.simulation.clients.base import NOT_THE_COORDINATOR
from tests.simulation.clients.producers import Producer
from tests.simulation.clients.readers import GROUP

NAMES = (100, 3000)
"""How many topics that are not there a request names."""
PAUSE_SECONDS = 10.0
"""The mean time between two requests."""


class BulkClient(Producer):
    """Asks for very many topics in one request, or commits for, or writes to, all partitions."""

    kind = "bulk"

    async def step(self):
        work = [self._metadata, self._list_offsets, self._commit, self._produce]
        await self.random.choice(work)()

    async def pause(self):
        await self.world.sleep(self.random.expovariate(1 / PAUSE_SECONDS))

    def _names(self):
        """Return names of topics in an order of chance: those that live, and far more."""
        names = {topic.name: topic.partition_count for topic in self.history.living()}
        names |= {f"nobody-{number}": 1 for number in range(self.random.randint(*NAMES))}
        chosen = sorted(names)
        self.random.shuffle(chosen)
        return {name: names[name] for name in chosen}

    def _compare(self, what, asked, told):
        asked = list(asked)
        if sorted(asked) != sorted(told):
            missing, more = set(asked) - set(told), len(told) - len(set(told))
            text = f"{len(told)} answers to {len(asked)}, {more} twice, {len(missing)} missing"
            self.world.problem(f"{self.name}: {what}: {text}")

    async def _metadata(self):
        names = self._names()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = await self.call(request, MetadataResponse)
        self._compare("Metadata", names, [topic.name for topic in answer.topics])

    async def _list_offsets(self):
        places = [(name, at) for name, count in self._names().items() for at in range(count)]
        time_ms = int((self.world.seconds() - self.random.choice([0, 10, 1000])) * 1000)
        asked = {}
        for name, at in places:
            one = ListOffsetsPartition(partition_index=at, timestamp=time_ms)
            asked.setdefault(name, []).append(one)
        topics = [ListOffsetsTopic(name=name, partitions=parts) for name, parts in asked.items()]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        answer = await self.call(request, ListOffsetsResponse)
        told = [(of.name, one.partition_index) for of in answer.topics for one in of.partitions]
        self._compare("ListOffsets", places, told)

    async def _produce(self):
        """Write one batch to each partition there is."""
        batches, by_topic = {}, {}
        for topic in self.history.living():
            for at in range(topic.partition_count):
                batch, data = self.make(topic, at)
                batches[topic.topic_id, at] = batch
                part = PartitionProduceData(index=at, records=data)
                by_topic.setdefault(topic.topic_id, []).append(part)
        topics = [
            TopicProduceData(name="", topic_id=topic_id.bytes, partition_data=parts)
            for topic_id, parts in by_topic.items()
        ]
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics
        )
        answer = await self.call(request, ProduceResponse)
        told = [
            ((uuid.UUID(bytes=of.topic_id), one.index), one)
            for of in answer.responses
            for one in of.partition_responses
        ]
        self._compare("Produce", map(str, batches), [str(place) for place, _ in told])
        for place, one in told:
            self.judge(batches[place], one)

    async def _commit(self):
        """Commit one offset for all partitions there are, and for some that are not."""
        group, offset = f"bulk-{self.number}", self.random.randrange(1_000_000)
        commits = {}
        for topic in self.history.living():
            for at in range(topic.partition_count):
                commits[topic.topic_id, at] = Commit(offset, Call())
                self.history.commits[group, topic.topic_id, at].append(commits[topic.topic_id, at])
        nobody = [uuid.UUID(int=self.random.getrandbits(128)) for _ in range(NAMES[0])]
        by_topic = {topic_id: [0] for topic_id in nobody}
        for topic_id, at in commits:
            by_topic.setdefault(topic_id, []).append(at)
        topics = []
        for topic_id, numbers in by_topic.items():
            parts = [
                OffsetCommitRequestPartition(
                    partition_index=at, committed_offset=offset, committed_metadata=""
                )
                for at in numbers
            ]
            topics.append(OffsetCommitRequestTopic(topic_id=topic_id.bytes, partitions=parts))
        request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        answer = await self.call(request, OffsetCommitResponse)
        codes = {
            (uuid.UUID(bytes=of.topic_id), one.partition_index): one.error_code
            for of in answer.topics
            for one in of.partitions
        }
        asked = [(topic_id, at) for topic_id, numbers in by_topic.items() for at in numbers]
        self._compare("OffsetCommit", map(str, asked), [str(place) for place in codes])
        for place, commit in commits.items():
            if codes.get(place) == 0:
                commit.call.answer(Verdict.OK)
        self.world.coverage.answered("OffsetCommit of many", max(codes.values()))
        if NOT_THE_COORDINATOR & set(codes.values()):
            await self.find_coordinator(GROUP, group)
