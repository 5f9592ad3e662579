"""All shards of one coordinator on this node: which partitions are led here, and their state.

Follows the metadata image after the ReplicaManager has followed it: loads a partition when this
node leads it, and closes the shard when this node does not any more. The same for every coordinator
(groups, transactions); only the state machine differs. Source: Kafka's CoordinatorRuntime.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Generic

from ottla.coordinator.hashing import partition_for
from ottla.coordinator.shard import Context, Machine, Shard, ShardState
from ottla.env.clock import Timer
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.metadata.values import PartitionState
from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 2.0
"""After a failure that may pass, until a shard is loaded again that no client has asked for: it may
have decided transactions, whose markers others wait for."""


class CoordinatorRuntime(Generic[Machine]):
    """The shards of one coordinator, by partition number."""

    def __init__(
        self,
        context: Context,
        image: MetadataImage,
        *,
        node_id: NodeId,
        topic: str,
        partition_count: int,
        make_machine: Callable[[Shard[Machine]], Machine],
    ) -> None:
        """``partition_count`` is used until the topic exists."""
        self.topic = topic
        self._context = context
        self._image = image
        self._node_id = node_id
        self._configured_count = partition_count
        self._make_machine = make_machine
        self._shards: dict[int, Shard[Machine]] = {}
        self._reloads: dict[int, Timer] = {}
        """Use: by partition, when a failed shard is looked at again."""

    @property
    def partition_count(self) -> int:
        """The number of partitions that keys are spread over.

        That is the number the topic was made with, or will be made with. Partitions that were added
        later hold nothing of the keys that would move to them. (A Kafka broker moves keys at its
        next start.)
        """
        topic = self._image.topic(self.topic)
        return self._configured_count if topic is None else topic.first_count

    def partition_for(self, key: str) -> int:
        """Return the partition that coordinates ``key``."""
        return partition_for(key, self.partition_count)

    def shard_for(self, key: str) -> Shard[Machine]:
        """Return the shard that coordinates ``key``; it may be loading. Raises KafkaError.

        Also when another node may coordinate it by now: see ``Shard.check_standing``.
        """
        partition = self.partition_for(key)
        shard = self._shard(partition)
        if shard is None:
            why = f"{self.topic}-{partition} is not led here"
            raise KafkaError(ErrorCode.NOT_COORDINATOR, why)
        shard.check_standing()
        return shard

    def shard_of(self, partition: int) -> Shard[Machine] | None:
        """Return the shard of a partition, whatever its state; None if it is not led here."""
        return self._shard(partition)

    @property
    def shards(self) -> Iterable[Shard[Machine]]:
        """Every shard of this node, whatever its state."""
        return self._shards.values()

    def has_failed(self, partition: int) -> bool:
        """Tell whether this node leads the partition but its shard has failed."""
        shard = self._shard(partition)
        return shard is not None and shard.state is ShardState.FAILED

    def load_all(self) -> None:
        """Load the partitions that this node leads, as the image says. At the start."""
        topic = self._image.topic(self.topic)
        for index, state in enumerate(topic.partitions if topic is not None else ()):
            self._follow(index, state)

    def apply(self, delta: MetadataDelta) -> None:
        """Load and close shards as leadership changes. Call this after the ReplicaManager."""
        for change in delta.partitions:
            if change.topic == self.topic:
                if change.new is None:
                    self._let_go(change.partition)
                else:
                    self._follow(change.partition, change.new)

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition whose log was made after the image named its leader."""
        state = self._image.partition(where) if where.topic == self.topic else None
        if state is not None:
            self._follow(where.partition, state)

    def close(self) -> None:
        """Close all shards; requests that wait are refused with NOT_COORDINATOR."""
        for partition in list(self._shards):
            self._let_go(partition)

    def _shard(self, index: int) -> Shard[Machine] | None:
        """Return a shard. A failed one is made anew if that can help.

        That can help when the log could be opened meanwhile, or when the log was not the cause.
        """
        shard = self._shards.get(index)
        if shard is not None and shard.state is ShardState.FAILED:
            partition = self._context.replica_manager.get(shard.where)
            if partition is not None and (shard.needs_reload or partition is not shard.partition):
                self._let_go(index)
                shard = self._load(index, partition)
        return shard

    def _follow(self, index: int, state: PartitionState) -> None:
        if state.leader != self._node_id:
            self._let_go(index)
            return
        partition = self._context.replica_manager.get(TopicPartition(self.topic, index))
        shard = self._shards.get(index)
        is_known = shard is not None and shard.leader_epoch == state.leader_epoch
        # Another Partition object of that epoch: its log could not be opened before.
        if partition is None or (is_known and shard is not None and shard.partition is partition):
            return
        self._let_go(index)
        self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> Shard[Machine]:
        shard = Shard(self._context, partition, self._make_machine)
        self._shards[index] = shard
        shard.on_failed = lambda: self._reload_later(index)
        shard.load()
        return shard

    def _reload_later(self, index: int) -> None:
        self._forget_reload(index)
        clock = self._context.clock
        self._reloads[index] = clock.call_later(RELOAD_SECONDS, lambda: self._reload(index))

    def _reload(self, index: int) -> None:
        self._forget_reload(index)
        self._shard(index)

    def _forget_reload(self, index: int) -> None:
        timer = self._reloads.pop(index, None)
        if timer is not None:
            timer.cancel()

    def _let_go(self, index: int) -> None:
        self._forget_reload(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()
