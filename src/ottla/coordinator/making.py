"""Puts the coordinators of a node together: that of groups, and that of transactions."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.cluster.producer_ids import ProducerIds
from ottla.coordinator.group.consumer.configs import GroupConfigs
from ottla.coordinator.group.consumer.settings import ConsumerSettingsByGroup
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.settings import GroupSettings
from ottla.coordinator.group.shard import Groups
from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.shard import Context
from ottla.coordinator.transaction.coordinator import TransactionCoordinator
from ottla.coordinator.transaction.markers import MarkerWriter
from ottla.coordinator.transaction.peers import Elsewhere, Peers
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
    """How many partitions the topic will have; used until the topic exists. So is the other count.
   """
    transactions: TransactionSettings
    transaction_partition_count: int
    group_codec: Codec = Codec.NONE
    """The compression of batches of groups and offsets."""


class Coordinators(NamedTuple):
    """The coordinators of one node."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator

    def start(self) -> None:
        """Load the partitions that this node leads already.

        Those of groups first: transactions write markers into them.
        """
        self.groups.start()
        self.transactions.start()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow changes of leadership. Call this after the ReplicaManager has followed them."""
        self.groups.apply(image, delta)
        self.transactions.apply(image, delta)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition whose log was made after the image named its leader."""
        self.groups.hosted(where)
        self.transactions.hosted(where)

    def stop(self) -> None:
        """Close all shards of both coordinators."""
        self.transactions.stop()
        self.groups.stop()


def coordinators_of(
    context: Context,
    image: MetadataImage,
    producer_ids: ProducerIds,
    settings: CoordinatorSettings,
    *,
    node_id: NodeId,
    open_peers: Callable[[], Peers],
) -> Coordinators:
    """Return a node's coordinators, which are not started yet.

    ``open_peers`` makes what asks other nodes; called at the first question.
    """
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
    elsewhere = Elsewhere(image, node_id, open_peers)
    markers = MarkerWriter(
        context.replica_manager, groups, image, context.clock, turns, elsewhere=elsewhere
    )
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
        elsewhere,
    )
    return Coordinators(groups, transactions)
