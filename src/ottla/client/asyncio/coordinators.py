"""Which broker coordinates a group or a transactional id: asked once, kept, forgotten when wrong.

On asyncio. ``cluster`` owns connections and retries; ``groups`` and ``transactions`` stand on this.
"""

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.wire.coordination import (
    check_coordinator,
    find_coordinator_request,
    read_find_coordinator,
)
from ottla.client.wire.errors import ConnectionFailed
from ottla.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse


class CoordinatorFinder:
    """The coordinators of one kind. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster, kind: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._found: dict[str, int] = {}

    async def connection(self, key: str, purpose: str = "") -> Connection:
        """Return a connection to the coordinator of ``key``; ``purpose`` as in ``Cluster``."""
        cluster = self._cluster
        try:
            if key not in self._found:
                await self._find(key)
            return await cluster.connection(self._found[key], purpose)
        except ConnectionFailed:
            self.forget(key)
            raise

    async def _find(self, key: str) -> None:
        connection = await self._cluster.any()
        request = find_coordinator_request(self._kind, key)
        answer = await connection.call(request, FindCoordinatorResponse)
        node_id = read_find_coordinator(self._kind, key, answer)
        if node_id not in self._cluster.view.brokers:
            await self._cluster.refresh([])
        self._found[key] = node_id

    def node_of(self, key: str) -> int:
        """Return the coordinator that ``connection`` has found."""
        return self._found[key]

    def forget(self, key: str) -> None:
        """Ask anew who coordinates ``key``: the last answer was wrong."""
        self._found.pop(key, None)

    def check(self, key: str, code: int, message: str | None = None) -> None:
        """Raise KafkaError for an error in an answer about ``key``."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.forget(key)
        check_coordinator(self._kind, key, code, message)
