"""What outlasts a task of the sink: Spark gives a Python worker one task after the other.

The executor's side. A task takes over what the one before it left: open connections, with versions
agreed on and, with SASL or TLS, handshakes done, and the id that its batches are numbered under. A
stream of small batches would spend more on these than on its rows. Which partitions a topic has is
asked anew by each task. One that fails leaves nothing behind.

Each task numbers its batches from 0 in an epoch of its own, as a leader expects that has lost what
it knew of a producer (KIP-360). So nothing has to be known of what earlier tasks wrote, and what
one of them may have left on its way is refused, not written late.
An id is kept as long as connections are: another cluster, at the same address, has given it to
somebody else.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.lanes import EPOCH_MAX
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.settings import Address, ClientSettings
from ottla.spark.lending import Key, lend

KEPT_MAX = 4
"""Clusters."""
_KEPT: dict[Key, "Standing"] = {}


class Standing:
    """A cluster, reached, and an id to write under. One task has it at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        """Connect when first asked."""
        self.client = BlockingClient(settings)
        self.identity: ProducerIdentity | None = None
        """Use: what the next producer numbers its batches under; None: it asks for an id."""
        self._connections: dict[Address, BlockingConnection] = {}
        """Use: to leaders, from earlier producers. Invariant: no answer is due on them."""

    def connect(self, address: Address, settings: ClientSettings) -> BlockingConnection:
        """Return a connection to a leader: one that is open, or a new one.

        Raises as ``BlockingConnection``.
        """
        kept = self._connections.pop(address, None)
        if kept is None:
            return BlockingConnection(address, settings)
        if kept.has_answer:  # to nothing: the broker has ended it
            kept.close()
            return BlockingConnection(address, settings)
        return kept

    def take_over(self, producer: BlockingProducer) -> None:
        """Keep what a producer, which has written everything, has of connections and epochs."""
        connections, used = producer.hand_over()
        for each in connections:
            self._connections[each.address] = each
        if used is not None:
            is_last = used.epoch >= EPOCH_MAX
            self.identity = None if is_last else used._replace(epoch=used.epoch + 1)

    def close(self) -> None:
        """Close all connections."""
        self.client.close()
        for each in self._connections.values():
            each.close()
        self._connections.clear()


@contextmanager
def kept_standing(settings: ClientSettings) -> Iterator[Standing]:
    """Lend what stands for these settings; it is kept for the next task unless this one fails."""
    with lend(_KEPT, settings, Standing, count_max=KEPT_MAX) as standing:
        if standing.client.drop_ended():  # there may be another cluster behind the address now
            standing.identity = None
        yield standing
