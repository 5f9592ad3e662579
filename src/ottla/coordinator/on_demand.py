"""The coordinators of a node that may never need them: made when a client or a topic asks for one.

They are needed from the start if an internal topic exists; else as soon as such a topic is made, or
a client sends a request that only a coordinator can answer. Their modules, a fifth of all that a
node with groups imports, are imported then: off the loop, which they would hold for a tenth of a
second. Knows nothing of what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.coordinator.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.env.executor import Executor, run
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataDelta, MetadataImage
from ottla.pending import Pending, pending_of

if TYPE_CHECKING:
    from ottla.coordinator.group.coordinator import GroupCoordinator
    from ottla.coordinator.making import Coordinators
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator

logger = logging.getLogger(__name__)

_TOPICS = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))


class CoordinatorsOnDemand:
    """The coordinators of one node, made at the first use."""

    def __init__(
        self,
        image: MetadataImage,
        executor: Executor,
        *,
        load: Callable[[], object],
        make: Callable[[], Coordinators],
    ) -> None:
        """``load`` imports what ``make`` needs, in any thread; it need not be called before."""
        self._image = image
        self._executor = executor
        self._load = load
        self._make = make
        self._made: Coordinators | None = None
        self._is_loading = False
        """Use: a topic has asked, and its modules are being imported."""
        self._has_stopped = False

    @property
    def made(self) -> Coordinators | None:
        """The coordinators; None: nobody has asked for them yet."""
        return self._made

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of groups."""
        return self._get().groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self._get().transactions

    def ready(self) -> Pending[None]:
        """Make the coordinators, and import what they need off the loop. Call it when one waits."""
        if self._made is not None:
            pending: Pending[None] = Pending()
            pending.resolve(None)
            return pending
        return pending_of(self._make_ready())

    async def _make_ready(self) -> None:
        await run(self._executor, self._load)
        if not self._has_stopped:
            self._get()

    def start(self) -> None:
        """Load the partitions of internal topics that this node leads already."""
        if any(self._image.topic(name) is not None for name in _TOPICS):
            self._get()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow changes of leadership. Call this after the ReplicaManager has followed them."""
        if self._made is not None:
            self._made.apply(image, delta)
        elif any(change.topic in _TOPICS for change in delta.partitions):
            self._begin()

    def hosted(self, where: TopicPartition) -> None:
        """Load a partition whose log was made after the image named its leader."""
        if self._made is not None:
            self._made.hosted(where)
        elif where.topic in _TOPICS:
            self._begin()

    def stop(self) -> None:
        """Close all shards of both coordinators."""
        self._has_stopped = True
        if self._made is not None:
            self._made.stop()

    def _begin(self) -> None:
        """Make them soon: what they load then is what the image says then."""
        if not self._is_loading and not self._has_stopped:
            self._is_loading = True
            self.ready().on_done(self._begun)

    def _begun(self, ready: Pending[None]) -> None:
        self._is_loading = False
        if ready.error is not None and not self._has_stopped:
            # The first client that asks for a coordinator has it made all the same.
            logger.error("the coordinators cannot be loaded: %r", ready.error)

    def _get(self) -> Coordinators:
        if self._made is None:
            self._made = self._make()
            if not self._has_stopped:
                self._made.start()
        return self._made
