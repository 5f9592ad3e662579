"""Forgets nodes that will not come back: what the store knows of them beside their registration.

A node's registration ends with its session; what is known of its directories stays, so that a
missing one is noticed at its next start. Source: Kafka's UnregisterBroker (KIP-500).
"""

from collections.abc import Iterable

from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId
from ottla.metadata.answering import store_answers
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import ABSENT, Delete, Guard, MetadataStore


async def forget(store: MetadataStore, keys: Keys, nodes: Iterable[NodeId]) -> int:
    """Forget nodes of this host that are not started, and hold no replica: they will get none.

    One that is started later is known again by its own start. Return the revision at which that is
    so; 0: there was none to forget. Called at a start, before any node is a member. Raises what the
    store raises.
    """
    revision = 0
    for node in sorted(nodes):
        revision = await store.commit([], [Delete(keys.known_broker(node))])
    return revision


class Registrations:
    """What is known of nodes, whether they run or not."""

    def __init__(self, store: MetadataStore, keys: Keys, follower: ImageFollower) -> None:
        self._store = store
        self._keys = keys
        self._follower = follower

    async def unregister(self, node: int) -> None:
        """Forget a node that does not run.

        Raises KafkaError: BROKER_ID_NOT_REGISTERED for one that nothing is known of,
        INVALID_REQUEST for one that runs: it would be known again at once.
        """
        what = f"the registration of broker {node}"
        with store_answers():
            await self._follower.mirror.contests.won(what, lambda: self._attempt(NodeId(node)))

    async def _attempt(self, node: NodeId) -> None:
        """Forget it as it is known now. Raises GuardFailed when it has just come, or gone."""
        key, live = self._keys.known_broker(node), self._keys.live_broker(node)
        if node in self._follower.image.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {node} is running: stop it")
        known = await self._store.get(key)
        if known is None:
            why = f"Broker ID {node} is not currently registered"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
        guards = [Guard(key, mod_rev=known.mod_rev), Guard(live, mod_rev=ABSENT)]
        await self._store.commit(guards, [Delete(key)])
