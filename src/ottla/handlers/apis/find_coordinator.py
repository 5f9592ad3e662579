"""FindCoordinator, key 10: tells which broker coordinates a group or a transactional id.

v3 is flexible, v4 asks for several keys at once (KIP-699), v6 for share groups (KIP-932). The first
request has the internal topic (of groups or of transactions) made. Kafka answers
COORDINATOR_NOT_AVAILABLE meanwhile; here the answer waits until the topic exists. Share groups have
no coordinator yet.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.coordinator.internal_topics import InternalTopicMaker
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.advertised import Advertised, AdvertisedBroker
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.pending import Pending
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.sliced import Steps, distinct, each

logger = logging.getLogger(__name__)

MANY_SINCE = 4
GROUP, TRANSACTION, SHARE = range(3)
SHARE_SINCE = 6
UNSERVED = "share groups are not served by this version of Ottla"


class Runtime(Protocol):
    """As much of a ``CoordinatorRuntime`` as is asked here."""

    def partition_for(self, key: str) -> int:
        """Return the partition that coordinates ``key``."""

    def has_failed(self, partition: int) -> bool:
        """Tell whether this node leads the partition but its shard has failed."""


class Coordinated(NamedTuple):
    """The internal topic whose partitions coordinate keys of one type."""

    topic: str
    maker: InternalTopicMaker
    ready: Callable[[], Pending[None]]
    """Makes the coordinator, if this is the first client that asks for one."""
    runtime: Callable[[], Runtime]
    """Returns the coordinator's shards, once it is ready."""


class FindCoordinator:
    """Looks up the leader of the internal partition that a key belongs to."""

    def __init__(
        self, image: MetadataImage, advertised: Advertised, coordinated: Mapping[int, Coordinated]
    ) -> None:
        """Build the handler; ``coordinated`` has the internal topic of each key type."""
        self._image = image
        self._advertised = advertised
        self._coordinated = coordinated
        self._has_warned = False

    def handle(self, request: FindCoordinatorRequest, call: Call) -> Steps[FindCoordinatorResponse]:
        """Return a coordinator or an error for each key; a key named twice is answered once."""
        is_many = call.api_version >= MANY_SINCE
        keys = [request.key]
        if is_many:
            keys = yield from distinct(request.coordinator_keys)
        coordinated = self._coordinated.get(request.key_type)
        if coordinated is not None and keys:
            yield coordinated.ready()
            yield coordinated.maker.ensure()
        if not is_many:
            return self._single(request.key_type, request.key, call)
        found = yield from each(keys, lambda key: self._one(request.key_type, key, call))
        return FindCoordinatorResponse(coordinators=found)

    def _single(self, key_type: int, key: str, call: Call) -> FindCoordinatorResponse:
        try:
            found = self._find(key_type, key, call)
        except KafkaError as error:
            return FindCoordinatorResponse(
                error_code=error.code, error_message=error.why, node_id=-1, host="", port=-1
            )
        # Kafka says so, and a client may show it.
        return FindCoordinatorResponse(
            error_message="NONE", node_id=found.node_id, host=found.host, port=found.port
        )

    def _one(self, key_type: int, key: str, call: Call) -> Coordinator:
        try:
            found = self._find(key_type, key, call)
        except KafkaError as error:
            return Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=error.code,
                error_message=error.why,
            )
        return Coordinator(
            key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=""
        )

    def _find(self, key_type: int, key: str, call: Call) -> AdvertisedBroker:
        """Return who leads the partition of a key. Raises KafkaError."""
        coordinated = self._coordinated.get(key_type)
        if coordinated is not None:
            return self._leader_of(coordinated, key, call)
        if key_type == SHARE and call.api_version >= SHARE_SINCE and key.count(":") == 2:
            if not self._has_warned:  # The client's user would only see that it waits.
                self._has_warned = True
                logger.warning("a client at %s asks in vain: %s", call.client.host, UNSERVED)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, UNSERVED)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator for keys of type {key_type}")

    def _leader_of(self, coordinated: Coordinated, key: str, call: Call) -> AdvertisedBroker:
        runtime = coordinated.runtime()
        partition = runtime.partition_for(key)
        where = TopicPartition(coordinated.topic, partition)
        state = self._image.partition(where)
        if state is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} is not there yet")
        if runtime.has_failed(partition):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} cannot be read")
        for broker in self._advertised.brokers(self._image, call.client):
            if broker.node_id == state.leader:
                return broker
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} has no leader")
