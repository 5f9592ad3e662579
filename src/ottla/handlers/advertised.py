"""The addresses that clients are told.

Unless ``advertised.listeners`` says otherwise, a client is told the address it reached us by: that
is the one address which is known to work from where it is. Source: Kafka's documentation of the
option, and the commonest failure of a first hour with it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.handlers.client import Client
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage


class AdvertisedBroker(NamedTuple):
    """One broker as clients are told to reach it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


class Advertised:
    """Decides between the configured address and the one the client used."""

    def __init__(self, node_id: NodeId, endpoint: tuple[str, int] | None) -> None:
        self._node_id = node_id
        self._endpoint = endpoint

    def brokers(self, image: MetadataImage, client: Client) -> Iterator[AdvertisedBroker]:
        """Give every live broker, in the order of their ids."""
        for node_id, broker in sorted(image.brokers.items()):
            told = broker.registration
            host, port = told.host, told.port
            if node_id == self._node_id:
                host, port = self._endpoint or (client.local_host, client.local_port)
            yield AdvertisedBroker(node_id, host, port, told.rack)
