"""The coordinators of a node, put together: of groups, and of transactions, which write to both."""

from typing import NamedTuple

from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.settings import ConsumerSettingsByGroup, GroupSettings
from ottla.coordinator.group.shard import Groups
from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import Context
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import MarkerWriter
from ottla.coordinator.transaction.settings import TransactionSettings
from ottla.coordinator.transaction.shard import Collaborators, Transactions
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.records.compression import Codec
from ottla.turns import Turns


class CoordinatorSettings(NamedTuple):
    """What the node's options mean to its coordinators."""

    groups: GroupSettings
    group_partition_count: int
    """Counts while the topic is not there; so does the other."""
    transactions: TransactionSettings
    transaction_partition_count: int
    group_codec: Codec = Codec.NONE
    """What the batches of groups and offsets are compressed with."""


class Coordinators(NamedTuple):
    """Those of one node."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds

    def start(self) -> None:
        """Load what this node leads already: groups first, since markers go there."""
        self.groups.start()
        self.transactions.start()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow leaderships. After the ReplicaManager."""
        self.groups.apply(image, delta)
        self.transactions.apply(image, delta)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition that has been made since the image told of it."""
        self.groups.hosted(where)
        self.transactions.hosted(where)

    def stop(self) -> None:
        """Let go of everything."""
        self.transactions.stop()
        self.groups.stop()


def coordinators_of(
    context: Context,
    image: MetadataImage,
    producer_ids: ProducerIds,
    settings: CoordinatorSettings,
    node_id: NodeId,
) -> Coordinators:
    """Return a node's coordinators, not started."""
    by_group = ConsumerSettingsByGroup(settings.groups.consumer)
    groups = GroupCoordinator(
        CoordinatorRuntime(
            context._replace(codec=settings.group_codec),
            image,
            node_id=node_id,
            topic=GROUP_METADATA_TOPIC,
            partition_count=settings.group_partition_count,
            make_machine=lambda shard: Groups(shard, settings.groups, image, by_group),
        ),
        settings.groups,
        GroupConfigs(image, by_group),
    )
    turns = Turns(context.clock) if context.turns is None else context.turns
    markers = MarkerWriter(context.replica_manager, groups, image, context.clock, turns)
    collaborators = Collaborators(settings.transactions, producer_ids, markers)
    transactions = TransactionCoordinator(
        CoordinatorRuntime(
            context,
            image,
            node_id=node_id,
            topic=TRANSACTION_STATE_TOPIC,
            partition_count=settings.transaction_partition_count,
            make_machine=lambda shard: Transactions(shard, collaborators),
        ),
        markers,
        settings.transactions,
    )
    return Coordinators(groups, transactions, producer_ids)
