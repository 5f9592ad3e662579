"""Where a producer's records go: the topics, how many partitions they have, and who leads them.

Owns when a topic is looked at: at its first record, when a partition is named that is not known,
and from time to time, since partitions are added. ``gathering`` has the lanes, ``sending`` sends.
On asyncio. Source: Kafka's documentation of metadata.max.age.ms.
"""

from collections.abc import Iterable

from ottla.client.asyncio.cluster import Cluster
from ottla.client.library.failures import check_names, translated
from ottla.client.library.gathering import Gatherer, Topic
from ottla.client.wire.view import ClusterView
from ottla.env.clock import Clock
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition

REFRESH_SECONDS = 300.0
"""How often topics are looked at for further partitions; Kafka's metadata.max.age.ms."""


class Targets:
    """For one producer."""

    def __init__(self, cluster: Cluster, gatherer: Gatherer, clock: Clock) -> None:
        self._cluster = cluster
        self._gatherer = gatherer
        self._clock = clock
        self._next_refresh = clock.monotonic() + REFRESH_SECONDS

    async def topic(self, name: str) -> Topic:
        """Return what is known of a topic, asking for it if it is new. Raises ClientError."""
        check_names("send", (name,))
        may_create = self._gatherer.settings.may_create_topics
        with translated(f"send to {name}"):
            view = await self._cluster.ensure([name], create=may_create, led=False)
        return self._gatherer.know(name, len(view.topics[name].partitions))

    async def look_again(self, name: str) -> None:
        """Ask how many partitions a topic has by now: perhaps more than it had."""
        with translated(f"send to {name}"):
            view = await self._cluster.retrying(lambda: self._cluster.refresh([name]))
        self._note(view, {name})

    async def view(self, partitions: Iterable[TopicPartition]) -> ClusterView:
        """Return who leads these; perhaps not all are led. Raises ConnectionFailed, KafkaError."""
        wanted = list(partitions)
        now = self._clock.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            self._cluster.forget_leaders()
        view = await self._cluster.look(wanted)
        self._note(view, {topic for topic, _ in wanted})
        return view

    def _note(self, view: ClusterView, names: set[str]) -> None:
        for name in names & view.topics.keys():
            if view.topics[name].error is ErrorCode.NONE:
                self._gatherer.know(name, len(view.topics[name].partitions))
