"""Keeps a coordinator's "yes" from outliving the transaction that it was about.

When the coordinator of a producer is another node, markers may arrive between its answer and the
append. So each partition notes the question before it is asked, and a marker voids it. When the
coordinator is this node there is no such time, and nothing of this is used. Source: KIP-890.
"""

from collections.abc import Iterable

from ottla.ids import TopicPartition
from ottla.log.producers.states import ProducerStates, Verification
from ottla.replication.replica_manager import ReplicaManager


class Verified:
    """The questions of one request about its producer, one for each partition that is here."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        producer_id: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Note the questions. Call ``end`` when the request has been answered."""
        self._replica_manager = replica_manager
        self._noted: dict[TopicPartition, tuple[ProducerStates, Verification]] = {}
        for where in partitions:
            partition = replica_manager.get(where)
            if partition is not None:
                states = partition.producers
                self._noted[where] = (states, states.begin_verification(producer_id))

    def holds(self, where: TopicPartition) -> bool:
        """Tell whether no transaction of the producer has ended in the partition since."""
        return self.is_of_now(where) and not self._noted[where][1].is_void

    def is_of_now(self, where: TopicPartition) -> bool:
        """Tell whether the partition's producers are those that the question was noted with.

        Otherwise they were read from the disk meanwhile, as when a follower's log is cut.
        """
        noted = self._noted.get(where)
        partition = self._replica_manager.get(where)
        return noted is not None and partition is not None and partition.producers is noted[0]

    def end(self) -> None:
        """Forget the questions."""
        for states, verification in self._noted.values():
            states.end_verification(verification)
        self._noted.clear()
