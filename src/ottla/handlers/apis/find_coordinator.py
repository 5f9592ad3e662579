"""FindCoordinator, key 10: who coordinates a group or a transactional id.

v3 is flexible, v4 asks for several keys at once (KIP-699), v6 share groups (KIP-932). The topic of
groups is made by the first who asks; Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, here the
answer waits for it; so with the topic of transactions. Of shares nobody is the coordinator yet.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.coordinator.internal_topics import InternalTopicMaker
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.advertised import Advertised, AdvertisedBroker
from ottla.handlers.call import Call
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.sliced import Steps, distinct, each

logger = logging.getLogger(__name__)

BATCHED_SINCE = 4
GROUP, TRANSACTION, SHARE = range(3)
SHARE_SINCE = 6
UNSERVED = "share groups are not served by this version of Ottla"


class Coordinated(NamedTuple):
    """Where keys of one type belong."""

    topic: str
    maker: InternalTopicMaker
    partition_for: Callable[[str], int]
    has_failed: Callable[[int], bool]
    """Tells of partitions that this node leads and cannot read."""


class FindCoordinator:
    """Looks up who leads the partition that a key belongs to."""

    def __init__(
        self, image: MetadataImage, advertised: Advertised, coordinated: Mapping[int, Coordinated]
    ) -> None:
        """``coordinated`` by key type."""
        self._image = image
        self._advertised = advertised
        self._coordinated = coordinated
        self._has_warned = False

    def handle(self, request: FindCoordinatorRequest, call: Call) -> Steps[FindCoordinatorResponse]:
        """Answer every key by itself; one that is named again is answered once."""
        is_batched = call.api_version >= BATCHED_SINCE
        keys = [request.key]
        if is_batched:
            keys = yield from distinct(request.coordinator_keys)
        coordinated = self._coordinated.get(request.key_type)
        if coordinated is not None and keys:
            yield coordinated.maker.ensure()
        if not is_batched:
            return _single(self._find(request.key_type, request.key, call))
        found = yield from each(
            keys, lambda key: _coordinator(key, self._find(request.key_type, key, call))
        )
        return FindCoordinatorResponse(coordinators=found)

    def _find(self, key_type: int, key: str, call: Call) -> AdvertisedBroker | KafkaError:
        coordinated = self._coordinated.get(key_type)
        if coordinated is not None:
            return self._leader_of(coordinated, key, call)
        if key_type == SHARE and call.api_version >= SHARE_SINCE and key.count(":") == 2:
            if not self._has_warned:  # The client will only say that it waits.
                self._has_warned = True
                logger.warning("a client at %s asks in vain: %s", call.client.host, UNSERVED)
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, UNSERVED)
        return KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator for keys of type {key_type}")

    def _leader_of(
        self, coordinated: Coordinated, key: str, call: Call
    ) -> AdvertisedBroker | KafkaError:
        partition = coordinated.partition_for(key)
        where = TopicPartition(coordinated.topic, partition)
        state = self._image.partition(where)
        if state is None:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} is not there yet")
        if coordinated.has_failed(partition):
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} cannot be read")
        for broker in self._advertised.brokers(self._image, call.client):
            if broker.node_id == state.leader:
                return broker
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{where} has no leader")


def _single(found: AdvertisedBroker | KafkaError) -> FindCoordinatorResponse:
    if isinstance(found, KafkaError):
        return FindCoordinatorResponse(
            error_code=found.code, error_message=found.why, node_id=-1, host="", port=-1
        )
    # Kafka says so, and a client may show it.
    return FindCoordinatorResponse(
        error_message="NONE", node_id=found.node_id, host=found.host, port=found.port
    )


def _coordinator(key: str, found: AdvertisedBroker | KafkaError) -> Coordinator:
    if isinstance(found, KafkaError):
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=found.code,
            error_message=found.why,
        )
    return Coordinator(
        key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=""
    )
