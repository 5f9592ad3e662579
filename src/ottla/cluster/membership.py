"""This node in the cluster: its sign of life, and the controller's seat.

The keys of a session vanish when its holder dies: other nodes learn of it by watch. On one node
the controller is always this one; the seat is taken the way it will be when there are several.
Source: cluster design 4.3, steps 1 and 2.
"""

from ottla.errors import OttlaError
from ottla.ids import NodeId
from ottla.metadata.keys import Keys
from ottla.metadata.store import (
    ABSENT,
    Guard,
    GuardFailed,
    MetadataStore,
    Put,
    Session,
    SessionState,
)
from ottla.metadata.values import BrokerValue, encode_broker, encode_controller

SESSION_TTL_SECONDS = 9.0


class AlreadyRegistered(OttlaError):
    """Another process serves as this node."""


class Membership:
    """Holds this node's session in the store."""

    def __init__(self, store: MetadataStore, keys: Keys, node_id: NodeId) -> None:
        self._store = store
        self._keys = keys
        self._node_id = node_id
        self._session: Session | None = None
        self.state = SessionState.LOST

    async def join(self, broker: BrokerValue) -> int:
        """Register this node and take the controller's seat; return the store's revision.

        Raises AlreadyRegistered when a node of this id is alive.
        """
        session = await self._store.session(SESSION_TTL_SECONDS, self._heard)
        self._session = session
        live = self._keys.live_broker(self._node_id)
        try:
            await self._store.commit(
                [Guard(live, create_rev=ABSENT)],
                [Put(live, encode_broker(broker), session.id)],
            )
        except GuardFailed as error:
            raise AlreadyRegistered(f"node {self._node_id} is registered already") from error
        return await self._store.commit(
            [Guard(self._keys.controller, create_rev=ABSENT)],
            [Put(self._keys.controller, encode_controller(self._node_id), session.id)],
        )

    async def leave(self) -> None:
        """End the session: the others need not wait for it to time out."""
        if self._session is not None:
            await self._session.close()

    def _heard(self, state: SessionState) -> None:
        self.state = state
