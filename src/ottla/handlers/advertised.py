"""Decides which addresses of brokers clients are told.

Unless ``advertised.listeners`` says otherwise, a client is told the address it has connected to,
because that address is known to work for it. Source: Kafka's documentation of the option; a wrong
value is the most common mistake of new users.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.handlers.client import Client
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage


class AdvertisedBroker(NamedTuple):
    """A broker and the address that clients are told for it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


class Advertised:
    """Chooses between a listener's configured address and the one that the client used."""

    def __init__(self, node_id: NodeId, told: Mapping[str, tuple[str, int]]) -> None:
        """``told``: by the listener that a client came by, what it is told of this node."""
        self._node_id = node_id
        self._told = told

    def brokers(self, image: MetadataImage, client: Client) -> Iterator[AdvertisedBroker]:
        """Yield every live broker, by ascending id."""
        for node_id, broker in sorted(image.brokers.items()):
            told = broker.registration
            host, port = told.host, told.port
            if node_id == self._node_id:
                reached = (client.local_host, client.local_port)
                host, port = self._told.get(client.listener, reached)
            yield AdvertisedBroker(node_id, host, port, told.rack)
