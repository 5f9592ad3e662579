"""The client without asyncio: one thread, one connection per broker, plain blocking calls.

For Spark's planner and executors and other short-lived processes: imports little, starts at once.
Owns connections and retries; shares requests and answers with the asyncio client (``view``,
``offsets``, ``fetching``). Every call blocks. Not for use from two threads at once.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Self, TypeVar

from ottla.client.blocking.connection import BlockingConnection
from ottla.client.wire.backoff import MISSING, Backoff
from ottla.client.wire.epochs import EpochEnd, epoch_end_request, read_epoch_ends
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.fetching import (
    FetchedPartition,
    FetchLimits,
    fetch_request,
    fetch_version_limit,
    read_fetch,
)
from ottla.client.wire.offsets import (
    EARLIEST,
    LATEST,
    FoundOffset,
    list_offsets_request,
    read_list_offsets,
)
from ottla.client.wire.settings import Address, ClientSettings
from ottla.client.wire.view import ClusterView, metadata_request, read_metadata
from ottla.env.blocking import BlockingClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId, TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

Result = TypeVar("Result")


class BlockingClient:
    """A cluster, seen and read by blocking calls. Use as a context manager, or ``close`` it.

    Methods retry what the error codes and lost connections allow, within
    ``settings.retry_timeout_ms``; then they raise what the last try met.
    """

    def __init__(self, settings: ClientSettings, clock: BlockingClock | None = None) -> None:
        self.view = ClusterView()
        self.settings = settings
        self.clock = clock or BlockingClock()
        self._connections: dict[Address, BlockingConnection] = {}
        self._has_answered = False
        """Whether a connection was open: addresses and credentials are right."""
        self._is_doubtful = False
        """Use: the last connection was closed before it was served: is a login wanted?"""
        self._is_retrying = False
        self._viewed_at = -inf
        """Use: when the view was asked for, by the monotonic clock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def refresh(self, topics: Iterable[str] | None) -> ClusterView:
        """Ask for these topics (None: all), keep the view and return it.

        Raises KafkaError when a topic does not exist or has no leaders after all retries.
        """
        names = None if topics is None else list(topics)

        def attempt() -> ClusterView:
            answer = self.any().call(metadata_request(names), MetadataResponse)
            view = read_metadata(answer)
            for name in names or ():
                for partition in view.topic(name).partitions:
                    view.partition(name, partition)
            self._see(view)
            return view

        return self.retrying(attempt)

    def _see(self, view: ClusterView) -> None:
        self.view = view
        self._viewed_at = self.clock.monotonic()

    def look_up(self, topics: Iterable[str], *, create: bool = False) -> ClusterView:
        """Ask for these topics once, keep the view and return it; a topic's errors stand in it.

        ``create``: the broker may create them, if it is set to. Raises ConnectionFailed.
        """
        request = metadata_request(topics, create=create)
        self._see(read_metadata(self.any().call(request, MetadataResponse)))
        return self.view

    def knows(
        self,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[str, TopicId],
        within_seconds: float,
    ) -> bool:
        """Tell whether Fetches for these partitions need no look-up before them.

        They need none where the view is so new and has the topics with these ids, and where an open
        connection to each leader fetches by id: what has changed since is an error in an answer
        then, never another topic's records.
        """
        if self.clock.monotonic() - self._viewed_at > within_seconds:
            return False
        for name, partition in partitions:
            topic = self.view.topics.get(name)
            if topic is None or topic.error or not topic.has_id:
                return False
            if topic.topic_id != topic_ids.get(name) or partition not in topic.partitions:
                return False
            address = self.view.brokers.get(topic.partitions[partition].leader)
            connection = None if address is None else self._connections.get(address)
            if connection is None or not connection.fetches_by_id:
                return False
        return True

    def existing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those of ``partitions`` that the cluster has, asked for by their topics' names.

        Raises KafkaError for a topic that it has and may not be asked for, ConnectionFailed.
        """
        wanted = list(partitions)

        def attempt() -> set[TopicPartition]:
            view = self.look_up({each.topic for each in wanted})
            for topic in view.topics.values():
                if topic.error and topic.error not in MISSING:
                    raise KafkaError(topic.error, f"topic {topic.name}: {topic.error.text}")
            return {
                each
                for each in wanted
                if each.topic in view.topics
                and each.partition in view.topics[each.topic].partitions
            }

        return self.retrying(attempt)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions, in order. Raises KafkaError for an unknown topic."""
        view = self.refresh([topic])
        return [TopicPartition(topic, number) for number in view.topic(topic).partitions]

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets for timestamps in ms, or for ``EARLIEST`` or ``LATEST``."""

        def attempt() -> dict[TopicPartition, FoundOffset]:
            self._ensure(timestamps)
            found: dict[TopicPartition, FoundOffset] = {}
            for leader, partitions in self.view.by_leader(timestamps).items():
                asked = {each: timestamps[each] for each in partitions}
                request = list_offsets_request(asked, read_committed=read_committed)
                answer = self.connection(leader).call(request, ListOffsetsResponse)
                found.update(read_list_offsets(answer))
            for each, offset in found.items():
                if offset.error:
                    raise KafkaError(offset.error, str(each))
            return found

        return self.retrying(attempt)

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        found = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {each: offset.offset for each, offset in found.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Return where these leader epochs ended in the logs as they are now."""

        def attempt() -> dict[TopicPartition, EpochEnd]:
            self._ensure(epochs)
            found: dict[TopicPartition, EpochEnd] = {}
            for leader, partitions in self.view.by_leader(epochs).items():
                request = epoch_end_request({each: epochs[each] for each in partitions})
                answer = self.connection(leader).call(request, OffsetForLeaderEpochResponse)
                found.update(read_epoch_ends(answer))
            for each, end in found.items():
                if end.error:
                    raise KafkaError(end.error, str(each))
            return found

        return self.retrying(attempt)

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that the next readable records will have."""
        found = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return {each: offset.offset for each, offset in found.items()}

    def fetch(
        self, offsets: Mapping[TopicPartition, int], limits: FetchLimits | None = None
    ) -> dict[TopicPartition, FetchedPartition]:
        """Return record batches from these offsets on, one Fetch per leader.

        Retriable errors are retried; others (OFFSET_OUT_OF_RANGE) stand in the result. The records
        are views into buffers of their own, which live as long as the views do.
        """
        limits = limits or FetchLimits()

        def attempt() -> dict[TopicPartition, FetchedPartition]:
            self._ensure(offsets)
            fetched: dict[TopicPartition, FetchedPartition] = {}
            for leader, partitions in self.view.by_leader(offsets).items():
                asked = {each: offsets[each] for each in partitions}
                answer = self.connection(leader).call(
                    fetch_request(self.view, asked, limits),
                    FetchResponse,
                    highest=fetch_version_limit(self.view, asked),
                )
                fetched.update(read_fetch(self.view, answer))
            for each in offsets.keys() - fetched.keys():  # KIP-219: the answer has nothing then
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(each))
            for each, partition in fetched.items():
                if partition.error.retriable:
                    raise KafkaError(partition.error, str(each))
            return fetched

        return self.retrying(attempt)

    def _ensure(self, partitions: Iterable[TopicPartition]) -> None:
        """Have a view of these topics, and of those known before: an answer replaces the view."""
        missing = {topic for topic, _ in partitions} - self.view.topics.keys()
        if missing:
            self.refresh(missing | self.view.topics.keys())

    def retrying(self, attempt: Callable[[], Result], *, timeout_ms: int | None = None) -> Result:
        """Run ``attempt`` until it returns, as long as its errors and the time allow.

        ``timeout_ms`` None: the settings'. Raises what the last try raised. Within an attempt of
        another call there is one try: that call's time counts, and it tries again.
        """
        if self._is_retrying:
            return attempt()
        backoff = Backoff(self.settings, self.clock.monotonic(), timeout_ms)
        while True:
            self._is_retrying = True
            try:
                return attempt()
            except (KafkaError, ConnectionFailed) as error:
                self._is_doubtful = isinstance(error, ConnectionFailed) and error.unserved
                if self._has_answered:  # perhaps in this very attempt
                    backoff.connected()
                pause = backoff.pause_seconds(error, self.clock.monotonic())
                if pause is None:
                    raise
                self.forget(error)
            finally:
                self._is_retrying = False
            self.clock.sleep(pause)

    def forget(self, error: KafkaError | ConnectionFailed) -> None:
        """Drop what an error makes doubtful: the leaders, and the connection that failed."""
        self.view = ClusterView(brokers=self.view.brokers)
        if isinstance(error, ConnectionFailed):
            self._connections.pop(Address(error.host, error.port), None)

    def any(self) -> BlockingConnection:
        """Return a connection to some broker, an open one if there is. Raises ConnectionFailed."""
        addresses = dict.fromkeys((*self.settings.bootstrap, *self.view.brokers.values()))
        for address in addresses:
            if address in self._connections:
                return self._connections[address]
        failure: ConnectionFailed | None = None
        for address in addresses:
            try:
                return self._open(address)
            except ConnectionFailed as error:
                failure = failure or error
        raise failure or ConnectionFailed("", 0, "no bootstrap address")

    def connection(self, node_id: int) -> BlockingConnection:
        """Return the connection to a broker of the view. Raises ConnectionFailed, KafkaError."""
        address = self.view.brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not alive")
        return self._connections.get(address) or self._open(address)

    def disconnect(self, node_id: int) -> None:
        """Close the connection to a broker, if there is one: its answers will not be taken."""
        address = self.view.brokers.get(node_id)
        connection = self._connections.pop(address, None) if address is not None else None
        if connection is not None:
            connection.close()

    def drop_ended(self) -> bool:
        """Close the connections that the brokers have ended. No answer may be due on any.

        Tells whether there was one.
        """
        ended = [address for address, each in self._connections.items() if each.has_answer]
        for address in ended:
            self._connections.pop(address).close()
        return bool(ended)

    def _open(self, address: Address) -> BlockingConnection:
        connection = BlockingConnection(address, self.settings, is_doubtful=self._is_doubtful)
        self._connections[address] = connection
        self._has_answered = True
        return connection
