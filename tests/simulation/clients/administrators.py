"""Administrators: some make and delete topics under the same names, one meddles with all of them.

Now and then a topic goes while somebody is at work with it: its first records are on their way, or
its records are being deleted.

The life of a name is in the hands of one of them, so that its topics are known one after the other;
what the others ask by name may reach any topic that has the name then.
"""

import uuid

from ottla.client.wire.errors import ConnectionFailed
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.produce import ProduceResponse
from tests.campaigns.administering.administrators import (
    AUTOMATIC_PARTITIONS,
    BROKER,
    PARTITIONS_MAX,
    TOPIC,
    TOPIC_OPTIONS,
)
from tests.campaigns.administering.history import (
    Altered,
    Call,
    Creation,
    Deleted,
    Grown,
    Verdict,
    seconds,
)
from tests.simulation.clients.base import Client
from tests.simulation.clients.producers import PlainProducer
from tests.simulation.clients.readers import LATEST, list_offset

NAMES_EACH = 3
DELETE = 1
"""The operation that takes an option back."""
HASTY_CHANCE = 0.5
"""Of a topic's deletion, that work is begun on the topic just before it."""
SHORT_LIFE_CHANCE = 0.15
"""Of a topic, that it is deleted with the first records on their way."""
LARGE_PARTITIONS = (12, 60)
NULL_ID = uuid.UUID(int=0).bytes
OPTIONS = TOPIC_OPTIONS | {
    "retention.ms": ["-1", "600000", "600000", "60000", "20000"],
    "segment.ms": ["1000", "30000", "604800000"],
    "delete.retention.ms": ["86400000", "60000", "0"],
    "min.compaction.lag.ms": ["0", "0", "20000", "100000"],
    "message.timestamp.type": ["CreateTime", "CreateTime", "LogAppendTime"],
}
TAKE_BACK_CHANCE = 0.15
"""Of an option that is altered, that it is taken back."""
BROKER_OPTIONS = {
    "log.cleaner.backoff.ms": ["100", "2000", "15000"],
    "log.segment.delete.delay.ms": ["0", "500", "10000"],
    "log.cleaner.min.cleanable.ratio": ["0.01", "0.5"],
    "log.cleaner.io.max.bytes.per.second": ["500", "5000", "1000000"],
}


def create_request(creation):
    """Return CreateTopics of one topic."""
    configs = [CreatableTopicConfig(name=key, value=to) for key, to in creation.configs.items()]
    topic = CreatableTopic(
        name=creation.name,
        num_partitions=creation.partition_count,
        replication_factor=1,
        assignments=[],
        configs=configs,
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


class Landlord(Client):
    """Makes, deletes and makes anew the topics of some names."""

    kind = "landlord"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._names = [f"t{number}-{at}" for at in range(NAMES_EACH)]
        self._hand = _Hand(world, number)

    def hang_up(self):
        super().hang_up()
        self._hand.hang_up()

    async def step(self):
        """Do one thing to one name, unless it is in doubt."""
        name = self.random.choice(self._names)
        topic = self.history.by_name(name)
        if name in self.history.creations or self._is_going(name):
            return
        if topic is None:
            await self._create(name)
            return
        age_seconds = self.world.seconds() - topic.created.over
        if age_seconds > self.random.choice(self.world.mix.topic_seconds):
            await self._replace(topic)

    async def pause(self):
        await self.world.sleep(self.random.expovariate(1 / (3 * self.world.mix.pause_seconds)))

    async def _replace(self, topic):
        """Delete a topic and, mostly, make another one of its name at once."""
        if await self._delete_amid_work(topic) and self.random.random() < 0.85:
            await self._create(topic.name)
            topic = self.history.by_name(topic.name)
            if topic is not None and self.random.random() < SHORT_LIFE_CHANCE:
                await self._delete_amid_work(topic)

    async def _delete_amid_work(self, topic):
        """Delete a topic; return whether it is gone. Others may just have begun something."""
        if self.random.random() < HASTY_CHANCE:
            await self._hand.begin_work(topic)
            await self.world.sleep(self.random.choice([0.0, 0.001, 0.01, 0.1]))
        is_gone = await self._delete(topic)
        await self._hand.end_work()
        return is_gone

    def _is_going(self, name):
        return any(
            topic.name == name and not topic.is_living and not topic.is_gone
            for topic in self.history.topics.values()
        )

    async def _create(self, name):
        if self.random.random() < 0.2:
            creation = Creation(name, Call(), {}, AUTOMATIC_PARTITIONS)
            ask = self._create_by_metadata
        else:
            configs = {
                key: self.random.choice(values)
                for key, values in (OPTIONS | self.world.mix.topic_options).items()
                if key in self.world.mix.given_options or self.random.random() < 0.5
            }
            is_large = self.random.random() < self.world.mix.large_chance
            count = self.random.randint(*(LARGE_PARTITIONS if is_large else (1, 3)))
            creation = Creation(name, Call(), configs, count)
            ask = self._create_by_request
        self.history.creations[name] = creation
        topic_id = await ask(creation)
        if topic_id is None:
            return
        creation.call.answer(Verdict.OK)
        self.history.creations.pop(name, None)
        topic = self.history.topics[topic_id] = creation.topic(topic_id)
        if ask == self._create_by_request:
            self.world.device.created(topic)
        self.history.count("topics created")
        self.world.trace.note("created", name, topic_id)

    async def _create_by_request(self, creation):
        answer = (await self.call(create_request(creation), CreateTopicsResponse)).topics[0]
        self.world.coverage.answered("CreateTopics", answer.error_code)
        if answer.error_code:
            text = f"CreateTopics {creation.name}: {answer.error_code} {answer.error_message}"
            if answer.error_code not in (7, 36, 41, 56):
                self.world.problem(text)
            return None
        return uuid.UUID(bytes=answer.topic_id)

    async def _create_by_metadata(self, creation):
        begin = self.world.loop.now
        while True:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=creation.name)], allow_auto_topic_creation=True
            )
            answer = (await self.call(request, MetadataResponse)).topics[0]
            if answer.error_code == 0:
                return uuid.UUID(bytes=answer.topic_id)
            self.be_patient(begin, f"creation of {creation.name}: error {answer.error_code}")
            await self.world.sleep(0.1)

    async def _delete(self, topic):
        call = Call()
        topic.deletion = call
        if self.random.random() < 0.5:
            asked = DeleteTopicState(name=topic.name, topic_id=NULL_ID)
        else:
            asked = DeleteTopicState(name=None, topic_id=topic.topic_id.bytes)
        request = DeleteTopicsRequest(topics=[asked], timeout_ms=30_000)
        answer = (await self.call(request, DeleteTopicsResponse)).responses[0]
        self.world.coverage.answered("DeleteTopics", answer.error_code)
        if answer.error_code:
            if answer.error_code not in (7, 41, 56):
                self.world.problem(f"DeleteTopics {topic.name}: {answer.error_code}")
            return False
        call.answer(Verdict.OK)
        self.world.device.deleted(topic)
        self.history.count("topics deleted")
        self.world.trace.note("deleted", topic.name, topic.topic_id)
        return True


class _Hand(PlainProducer):
    """Begins work on a topic, by a connection of its own, and does not wait for it at once."""

    kind = "hand"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._begun = []
        """What was asked: the calls of each, and its answer to come."""

    async def begin_work(self, topic):
        """Write to all of its partitions, or delete their records; return before it is answered."""
        connection = await self.connection()
        numbers = range(topic.partition_count)
        if self.random.random() < 0.4:
            end = self.random.choice([1, 5, 20])
            asked = [Deleted(topic.name, Call(), number, end) for number in numbers]
            self.history.deleted += asked
            calls = [one.call for one in asked]
            parts = [DeleteRecordsPartition(partition_index=at, offset=end) for at in numbers]
            of_topic = DeleteRecordsTopic(name=topic.name, partitions=parts)
            request = DeleteRecordsRequest(topics=[of_topic], timeout_ms=30_000)
            self._begun.append((calls, connection.send(request, DeleteRecordsResponse)))
            return
        for number in numbers:
            batch, data = self.make(topic, number)
            request, highest = self.request(batch, data)
            answer = connection.send(request, ProduceResponse, highest=highest)
            self._begun.append(([batch.call], answer))

    def hang_up(self):
        super().hang_up()
        self._begun.clear()

    async def end_work(self):
        """Wait for the answers: from then on nobody works on what was asked."""
        for calls, answer in self._begun:
            try:
                await self.world.within(self._timeout_ms / 1000, answer, self._connection)
            except (ConnectionFailed, OSError):
                break
            for call in calls:
                call.over = seconds()
        else:
            self._begun.clear()
            return
        self.hang_up()


class Meddler(Client):
    """Deletes records, alters options, adds partitions, moves replicas."""

    kind = "meddler"

    async def step(self):
        """Do one thing to one topic."""
        topics = self.history.living()
        if topics:
            topic = self.random.choice(topics)
            work = [self._delete_records, self._alter, self._grow, self._move, self._alter_broker]
            await self.random.choices(work, self.world.mix.meddling)[0](topic)

    async def _delete_records(self, topic):
        partition = self.random.randrange(topic.partition_count)
        code, end = await list_offset(self, topic, partition, LATEST)
        if code or end <= 0:
            return
        offset = end if self.random.random() < 0.2 else self.random.randint(0, end * 2 // 3)
        asked = Deleted(topic.name, Call(), partition, offset)
        self.history.deleted.append(asked)
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[part])], timeout_ms=30_000
        )
        answer = (await self.call(request, DeleteRecordsResponse)).topics[0].partitions[0]
        self._note("DeleteRecords", asked.call, answer.error_code)
        if answer.error_code == 0 and topic.is_living:
            self.world.device.records_deleted(topic.topic_id, partition, offset)
        self.world.afterlife.promised(topic.topic_id, partition)

    async def _alter(self, topic):
        key = self.random.choice(self.world.mix.altered_options or list(OPTIONS))
        configs = {key: self.random.choice(OPTIONS[key])}
        if self.random.random() < TAKE_BACK_CHANCE:
            configs = {key: None}
        asked = Altered(topic.name, Call(), configs)
        self.history.altered.append(asked)
        code = await self._set(TOPIC, topic.name, configs)
        self._note("AlterTopic", asked.call, code)

    async def _alter_broker(self, _):
        key = self.random.choice(list(BROKER_OPTIONS))
        configs = {key: self.random.choice(BROKER_OPTIONS[key])}
        self._note("AlterBroker", Call(), await self._set(BROKER, "", configs))

    async def _set(self, resource_type, name, configs):
        entries = [
            AlterableConfig(name=key, config_operation=0 if value else DELETE, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=entries
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self.call(request, IncrementalAlterConfigsResponse)
        return answer.responses[0].error_code

    async def _grow(self, topic):
        count = topic.partition_count + 1
        if count > PARTITIONS_MAX:
            return
        asked = Grown(topic.name, Call(), count)
        self.history.grown.append(asked)
        wanted = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
        answer = (await self.call(request, CreatePartitionsResponse)).results[0]
        self._note("CreatePartitions", asked.call, answer.error_code)
        if topic.is_meant(asked):
            topic.partition_count = max(topic.partition_count, count)

    async def _move(self, topic):
        partition = self.random.randrange(topic.partition_count)
        asked = AlterReplicaLogDirTopic(name=topic.name, partitions=[partition])
        path = self.random.choice(self.world.log_dirs)
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
        answer = (await self.call(request, AlterReplicaLogDirsResponse)).results[0].partitions[0]
        self._note("AlterReplicaLogDirs", Call(), answer.error_code)

    def _note(self, what, call, code):
        """Any refusal leaves it open: a topic may have gone in the middle of the work."""
        if code == 0:
            call.answer(Verdict.OK)
        self.world.coverage.answered(what, code)
