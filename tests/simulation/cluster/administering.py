"""Clients that change what the cluster is: topics come, replicas move, leaders are chosen.

And logs begin later: one that deletes records wants their start raised on all replicas.
"""

from typing import NamedTuple

from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.simulation.cluster.clients import COMES_BACK, Client
from tests.simulation.cluster.reading import LATEST, OUT_OF_RANGE

ELECTION_NOT_NEEDED = 84
PREFERRED_NOT_AVAILABLE = 80
NOT_ALIVE = 39
NOT_CHOSEN = {ELECTION_NOT_NEEDED, PREFERRED_NOT_AVAILABLE}
TOPIC_EXISTS = 36
TOO_FEW_NODES = 38
MADE_MAX = 4
"""Topics of one maker."""


INTERNAL = ("__consumer_offsets", "__transaction_state")
INTERNAL_CHANCE = 0.3


class Internal(NamedTuple):
    """A topic of coordinators; it need not be there yet."""

    name: str
    replication_factor: int


class Administrator(Client):
    """Moves replicas and has preferred leaders elected."""

    kind = "administrator"

    async def step(self):
        topic, partition = self.choose()
        if self.random.random() < INTERNAL_CHANCE:
            topic, partition = Internal(self.random.choice(INTERNAL), len(self.world.numbers)), 0
        if self.random.random() < 0.4:
            await self._elect(topic, partition)
            return
        replicas = self.random.sample(self.world.numbers, len(self.world.numbers))
        count = topic.replication_factor
        if count > 1:
            count = self.random.choice([count - 1, count])
        await self._move(topic, partition, replicas[:count])

    async def _elect(self, topic, partition):
        wanted = TopicPartitions(topic=topic.name, partitions=[partition])
        request = ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=3_000)
        answer = await self.ask_anyone(request, ElectLeadersResponse)
        codes = {
            part.error_code
            for one in answer.replica_election_results
            for part in one.partition_result
        }
        self._heard("ElectLeaders", topic, {answer.error_code, *codes} - NOT_CHOSEN)

    async def _move(self, topic, partition, replicas):
        part = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3_000, topics=[ReassignableTopic(name=topic.name, partitions=[part])]
        )
        answer = await self.ask_anyone(request, AlterPartitionReassignmentsResponse)
        codes = {part.error_code for one in answer.responses for part in one.partitions}
        self._heard("AlterPartitionReassignments", topic, {answer.error_code, *codes})

    def _heard(self, what, topic, codes):
        for code in sorted(codes):
            self.ledger.counts[f"{what} {code}"] += 1
            if code and code not in (*COMES_BACK, NOT_ALIVE):
                self.world.problem(f"{what} of {topic.name}: error {code}")


class Maker(Client):
    """Makes topics amid faults; others write to them at once."""

    kind = "maker"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._made = 0

    async def step(self):
        if self._made == MADE_MAX:
            return
        name = f"made-{self.number}-{self._made}"
        self.world.nemesis.making.set()
        count, options = len(self.world.numbers), self.world.mix.topic_options
        told = await self.world.ask_for_topic(self, name, count, 1, options)
        self.ledger.counts[f"CreateTopics {told.error_code}"] += 1
        if told.error_code and told.error_code not in (*COMES_BACK, TOPIC_EXISTS, TOO_FEW_NODES):
            self.world.problem(f"CreateTopics of {name}: error {told.error_code}")
        topic_id = told.topic_id
        if told.error_code == TOPIC_EXISTS:
            topic_id = await self._id_of(name)
        elif told.error_code:
            return
        if topic_id is not None:
            self._made += 1
            self.world.add_topic(name, topic_id, 1, count, options)

    async def _id_of(self, name):
        told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
        return next((one.topic_id for one in told.topics if one.name == name), None)


class Deleter(Client):
    """Deletes records, mostly of the older half of a log, sometimes all that are committed."""

    kind = "deleter"

    async def step(self):
        topic, partition = self.choose()
        if topic.is_compacted:
            return  # Its policy leaves no record to be deleted.
        leader = await self.leader(topic, partition)
        end = await self.ask_for_offset(leader, topic, partition, LATEST)
        if not end:
            return
        offset = end if self.random.random() < 0.2 else self.random.randint(0, end // 2)
        place = self.ledger.place((topic.name, partition))
        place.asked_start = max(place.asked_start, offset)
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[part])], timeout_ms=3_000
        )
        answer = await self.ask(leader, request, DeleteRecordsResponse)
        told = answer.topics[0].partitions[0]
        where = f"{topic.name}-{partition}"
        self.ledger.counts[f"DeleteRecords {told.error_code}"] += 1
        # An end that another leader has told may be above what this one knows of.
        if told.error_code and told.error_code not in (*COMES_BACK, OUT_OF_RANGE):
            self.world.problem(f"DeleteRecords of {where}: error {told.error_code}")
        if not told.error_code and told.low_watermark < offset:
            text = f"DeleteRecords of {where} below {offset}: told was {told.low_watermark}"
            self.world.problem(text)
