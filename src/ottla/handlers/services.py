"""What the handlers of a node are built with.

Knows the types only: a handler, and the part of the node that it needs, is imported when its API is
first asked for (``routes``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.handlers.call import Handler

if TYPE_CHECKING:  # Types only: importing them would import what no client has asked for.
    from ottla.answer_memory import AnswerMemory
    from ottla.cluster.client_quotas import ClientQuotas
    from ottla.cluster.configs import Configs
    from ottla.cluster.controller import Controller
    from ottla.cluster.credentials import Credentials
    from ottla.cluster.producer_ids import ProducerIds
    from ottla.cluster.registrations import Registrations
    from ottla.config.config import Config
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.internal_topics import InternalTopicMaker
    from ottla.coordinator.on_demand import CoordinatorsOnDemand
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.env.clock import Clock
    from ottla.env.rng import Rng
    from ottla.handlers.advertised import Advertised
    from ottla.handlers.apis.describe_log_dirs import MeasuredDirectory
    from ottla.handlers.authorization.making import Authorization
    from ottla.housekeeping.deletion import Deletion
    from ottla.housekeeping.relocation import Relocation
    from ottla.ids import NodeId
    from ottla.metadata.image import MetadataImage
    from ottla.pending import Pending
    from ottla.replication.administration import ReplicaAdministration
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.turns import Turns


class Services(NamedTuple):
    """Everything that the handlers are built with."""

    node_id: NodeId
    config: Config
    image: MetadataImage
    topic_config: Callable[[str], Config]
    replica_manager: ReplicaManager
    deletion: Deletion
    relocation: Relocation
    broker_config: Callable[[], Config]
    """Returns the configuration in force now; ``config`` is the one at the start."""
    controller: Controller
    configs: Configs
    credentials: Callable[[], Credentials]
    """Returns what changes users' credentials; made only for those who change them."""
    client_quotas: Callable[[], ClientQuotas]
    measure_log_dirs: Callable[[], Pending[list[MeasuredDirectory]]]
    replica_administration: Callable[[], ReplicaAdministration]
    """Returns what moves replicas and leaders; made only for those who ask for it."""
    registrations: Callable[[], Registrations]
    """Returns what forgets nodes; made likewise."""
    producer_ids: ProducerIds
    coordinators: CoordinatorsOnDemand
    group_topic: InternalTopicMaker
    transaction_topic: InternalTopicMaker
    advertised: Advertised
    clock: Clock
    rng: Rng
    turns: Turns
    answers: AnswerMemory
    authorization: Authorization | None = None
    """Who may do what; None: everybody may do everything."""

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups; it is made when it is first asked for."""
        return self.coordinators.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions, likewise."""
        return self.coordinators.transactions


MakeHandler = Callable[[Services], Handler[Any]]
"""Makes the handler of one API, and imports its module."""
