"""Clients of replicas as they are on each node: some read followers, some move them about.

Readers of followers (KIP-392) know the leader epoch by Metadata, and ask any replica. Those that
move replicas ask their nodes for another log directory; those that tune change what a topic asks of
its replicas, and how its segments are.
"""

from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.simulation.clients.readers import fetch_request
from tests.simulation.cluster.clients import COMES_BACK, Client, Lost
from tests.simulation.cluster.reading import OUT_OF_RANGE, Reader
from tests.simulation.node import LOG_DIRS

SET, TAKE_BACK = 0, 1
TOPIC = 2
BROKEN_DISK = 56
TUNED = {
    "min.insync.replicas": ("1", "2", "3"),
    "internal.segment.bytes": ("2000", "4000", "1000000"),
    "segment.ms": ("1000", "5000", "604800000"),
    "file.delete.delay.ms": ("0", "10000"),
}
"""Options whose every value bears all promises, as long as no unclean leader is elected."""


class NearReader(Reader):
    """Asks any replica for what it has read to; it never sees what is gone later."""

    kind = "near"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._asked_leader = False

    async def _replica(self, topic, partition):
        """Return the node of a replica, and the leader epoch. Raises Lost."""
        told = await self.ask_anyone(MetadataRequest(topics=None), MetadataResponse)
        for one in told.topics:
            for part in one.partitions:
                if (one.name, part.partition_index) == (topic.name, partition):
                    if part.leader_id < 0 or not part.replica_nodes:
                        raise Lost
                    number = self.random.choice(part.replica_nodes)
                    self._asked_leader = number == part.leader_id
                    return number, part.leader_epoch
        raise Lost

    async def _read(self, topic, partition):
        where = topic.name, partition
        number, epoch = await self._replica(topic, partition)
        for _ in range(self.random.choice([1, 3, 10])):
            position = self._positions.get(where, 0)
            request = fetch_request(
                [(topic.topic_id, partition, position)],
                isolation=int(self._is_committed),
                wait_ms=self.random.choice([0, 10, 100, 500]),
            )
            request.topics[0].partitions[0].current_leader_epoch = epoch
            answer = await self.ask(number, request, FetchResponse)
            for each in answer.responses:
                for told in each.partitions:
                    if told.error_code == OUT_OF_RANGE and not self._asked_leader:
                        self.ledger.counts["Fetch 1 of a follower"] += 1
                        await super()._read(topic, partition)  # As Kafka's consumers do.
                        return
                    self._take(where, position, told)
                    if told.error_code:
                        return


class Mover(Client):
    """Moves replicas between the log directories of their nodes."""

    kind = "mover"

    async def step(self):
        topic, partition = self.choose()
        number = self.random.choice(self.world.numbers)
        wanted = AlterReplicaLogDir(
            path=self.random.choice(LOG_DIRS),
            topics=[AlterReplicaLogDirTopic(name=topic.name, partitions=[partition])],
        )
        request = AlterReplicaLogDirsRequest(dirs=[wanted])
        answer = await self.ask(number, request, AlterReplicaLogDirsResponse)
        for one in answer.results:
            for part in one.partitions:
                code = part.error_code
                self.ledger.counts[f"AlterReplicaLogDirs {code}"] += 1
                if code and code not in (*COMES_BACK, BROKEN_DISK):
                    self.world.problem(f"AlterReplicaLogDirs of {topic.name}: error {code}")


class Tuner(Client):
    """Changes options of topics, and takes them back in the end."""

    kind = "tuner"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._changed = {}

    async def step(self):
        topic, _ = self.choose()
        name = self.random.choice(sorted(TUNED))
        self._changed[topic.name, name] = None
        await self._set(topic.name, name, self.random.choice(TUNED[name]))

    async def finish(self):
        for topic, name in list(self._changed):
            if await self._set(topic, name, None):
                del self._changed[topic, name]
        if self._changed:
            raise Lost

    async def _set(self, topic, name, value):
        """Tell whether it was done; ``value`` None: it is taken back."""
        operation = TAKE_BACK if value is None else SET
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        if value is None and name in self.world.mix.topic_options:
            config = AlterableConfig(
                name=name, config_operation=SET, value=self.world.mix.topic_options[name]
            )
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self.ask_anyone(request, IncrementalAlterConfigsResponse)
        told = answer.responses[0]
        self.ledger.counts[f"IncrementalAlterConfigs {told.error_code}"] += 1
        if told.error_code and told.error_code not in COMES_BACK:
            why = f"{topic}: {name}={value}: error {told.error_code}: {told.error_message}"
            self.world.problem(f"IncrementalAlterConfigs of {why}")
        return not told.error_code
