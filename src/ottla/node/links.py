"""Opens connections from this node to another one, which then knows that a node asks.

Owns where a node is reached by the others, and how this one logs in there. Who opens a connection
owns it: what is asked on it, its retries and its end are his. Requests on one connection are
answered in order, so whoever waits long for answers (a follower) opens one of his own.
Imports the client at the first connection; a single node never opens one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId
from ottla.node.interbroker import INTER_BROKER, MECHANISM, InterBroker, login_name

if TYPE_CHECKING:
    from ottla.client.asyncio.connection import Connection
    from ottla.client.wire.settings import Address
    from ottla.env.net import Net
    from ottla.metadata.image import BrokerImage, MetadataImage

CONNECT_TIMEOUT_MS = 5_000
"""For one connection, the login included."""
CLIENT_ID = "ottla-node"


class NodeLinks:
    """The ways from one node to the others."""

    def __init__(
        self, image: MetadataImage, net: Net, node: NodeId, inter_broker: InterBroker | None
    ) -> None:
        """``node``: this one. ``inter_broker``: None when nodes ask as clients do."""
        self._image = image
        self._net = net
        self._node = node
        self._inter_broker = inter_broker

    def registered(self, node: NodeId) -> BrokerImage | None:
        """Return how a node is registered now, the same object until that changes; None: not."""
        return self._image.brokers.get(node)

    def address_of(self, node: NodeId) -> Address:
        """Return where a node is reached now.

        Raises KafkaError BROKER_NOT_AVAILABLE when it is not registered, or not for nodes.
        """
        from ottla.client.wire.settings import Address  # noqa: PLC0415 - see above

        broker = self._image.brokers.get(node)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node} is not registered")
        registered = broker.registration
        if self._inter_broker is None:
            return Address(registered.host, registered.port)
        for name, host, port in registered.listeners:
            if name == INTER_BROKER:
                return Address(host, port)
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node} lets no nodes in")

    async def open(self, node: NodeId, *, answer_timeout_ms: int) -> Connection:
        """Return a new connection to a node, on which this one is known as a node.

        ``answer_timeout_ms``: how long ``Connection.call`` waits for an answer unless it is told.
        Raises ConnectionFailed, KafkaError BROKER_NOT_AVAILABLE (see ``address_of``) or
        SASL_AUTHENTICATION_FAILED (another supervisor's nodes).
        """
        from ottla.client.asyncio.connection import Connection  # noqa: PLC0415 - see above
        from ottla.client.wire.security import (  # noqa: PLC0415 - as above
            NO_SECURITY,
            Credentials,
            Security,
        )
        from ottla.client.wire.settings import ClientSettings  # noqa: PLC0415 - as above

        address, security = self.address_of(node), NO_SECURITY
        if self._inter_broker is not None:
            name, secret = login_name(self._node), self._inter_broker.secret
            security = Security(sasl=Credentials(MECHANISM, name, secret))
        settings = ClientSettings(
            bootstrap=(address,),
            client_id=CLIENT_ID,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            request_timeout_ms=answer_timeout_ms,
            security=security,
        )
        return await Connection.open(self._net, address, settings)
