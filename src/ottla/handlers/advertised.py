"""Decides which addresses of brokers clients are told.

Unless ``advertised.listeners`` says otherwise, a client is told the host it has connected to,
because that host is known to work for it. Of other nodes it is told what they registered for the
listener that it came by; one that listens on every address of its host shares that host with the
client's way to this node. The port is always the node's own: the client may have come by one that
several nodes share. Source: Kafka's documentation of the option; a wrong value is the most common
mistake of new users.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.handlers.client import Client
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.metadata.values import BrokerValue

_EVERY_ADDRESS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - names to compare with


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
            there = _address(broker.registration, client.listener)
            host, port = there or (broker.registration.host, broker.registration.port)
            if node_id == self._node_id:
                reached = (client.local_host, port if there else client.local_port)
                host, port = self._told.get(client.listener, reached)
            elif host in _EVERY_ADDRESS:
                host = client.local_host
            yield AdvertisedBroker(node_id, host, port, broker.registration.rack)


def _address(broker: BrokerValue, listener: str) -> tuple[str, int] | None:
    """Return where a broker is reached by a listener; None: it has no such listener."""
    for name, host, port in broker.listeners:
        if name == listener:
            return host, port
    return None
