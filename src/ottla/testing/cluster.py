"""A Kafka cluster as a test sees it: make a topic, write, read, ask for the lag. No client needed.

Works on any cluster, so that the same tests run against Ottla and against Kafka. Every call blocks
and may come from any thread. Built on ``ottla.client.blocking``; knows nothing of brokers' insides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.wire.errors import ConnectionFailed, error_code
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.partitioner import partition_of_key
from ottla.client.wire.reading import DECOMPRESSED_MAX_BYTES, read_records
from ottla.client.wire.sending import produce_request, produce_version_limit, read_produce
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.config.human import parse_duration_ms
from ottla.env.clock import SystemClock
from ottla.env.executor import new_lock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import NULL_TOPIC_ID, TopicPartition
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.schema import Message
from ottla.records.batch import MAGIC_V2, read_header
from ottla.records.builder import build_batch
from ottla.records.decode import decode_entry, whole_batches
from ottla.records.record import Record
from ottla.testing.names import CLIENT_ID, fresh_name

NEW_TOPIC_SECONDS = 10.0
"""How long a cluster may take to let a new topic be used."""
PAUSE_MS = 20
"""How long a read waits for records before it looks at the time again."""

Answer = TypeVar("Answer", bound=Message)
Headers = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
BATCH_BYTES = 512 << 10
"""About as much goes into a batch: less than what a topic takes."""


class Received(NamedTuple):
    """A record that is in a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Written(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


class NotThereInTime(OttlaError, TimeoutError):
    """What a call waited for did not come."""


class ProduceUnknown(OttlaError):
    """The connection ended before the answer: nobody knows whether the records were written."""


class Cluster:
    """The cluster at ``bootstrap`` (``host:port,...``). A context manager; else ``close`` it."""

    is_ottla = False
    """Whether the clock and faults are there."""

    def __init__(self, bootstrap: str = "") -> None:
        self._bootstrap = bootstrap
        self._client: BlockingClient | None = None
        self._lock = new_lock()
        """Held by every call: a BlockingClient is for one thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Where clients connect: their ``bootstrap.servers``."""
        return self._bootstrap

    def close(self) -> None:
        """Close the connections. Harmless when closed; the next call connects again."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Make a topic, and return its name when it can be used. ``name`` None: a fresh one.

        ``replication_factor`` -1: the cluster's default. Raises KafkaError.
        """
        topic = name or fresh_name("topic")
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (config or {}).items()
                    ],
                )
            ],
            timeout_ms=round(NEW_TOPIC_SECONDS * 1000),
        )
        with self._lock:
            answer, tries = self._answered(request, CreateTopicsResponse)
            for each in answer.topics:
                if tries == 1 or each.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    _check(each.error_code, each.error_message, f"topic {topic}")
            if not self.is_ottla:  # Its own topics are there when the answer is.
                self._connected().refresh([topic])
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NULL_TOPIC_ID)],
            topic_names=[name],
            timeout_ms=10_000,
        )
        with self._lock:
            answer, tries = self._answered(request, DeleteTopicsResponse)
            for each in answer.responses:
                if tries == 1 or each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    _check(each.error_code, each.error_message, f"topic {name}")

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Written:
        """Write one record, and return where it is when it is durable. A text goes as UTF-8.

        ``value`` None: a tombstone. ``partition`` None: by the key as Java's client does, else 0.
        ``timestamp`` in ms since 1970; None: now. The topic is made if the cluster makes topics.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        record = Record(
            key=_bytes(key),
            value=_bytes(value),
            headers=tuple((name, _bytes(data)) for name, data in pairs),
            timestamp=SystemClock().wall_ms() if timestamp is None else timestamp,
        )
        return self.produce_records(topic, [record], partition=partition)[0]

    def produce_values(self, topic: str, values: Iterable[bytes | str]) -> list[Written]:
        """Write a record without a key for each value, all to partition 0, in their order."""
        now = SystemClock().wall_ms()
        return self.produce_records(
            topic, [Record(value=_bytes(value), timestamp=now) for value in values]
        )

    def produce_records(
        self, topic: str, records: Iterable[Record], *, partition: int | None = None
    ) -> list[Written]:
        """Write records, and return where each is. Raises KafkaError, ProduceUnknown."""
        wanted = list(records)
        with self._lock:
            client = self._connected()
            count = client.retrying(lambda: _partition_count(client, topic))
            batches: dict[int, list[int]] = {}
            for index, record in enumerate(wanted):
                batches.setdefault(_choose(record.key, count, partition), []).append(index)
            places: dict[int, Written] = {}
            for number, indexes in batches.items():
                for part in _parts(wanted, indexes):
                    batch = build_batch([wanted[index] for index in part])
                    base = self._write(client, TopicPartition(topic, number), batch)
                    for delta, index in enumerate(part):
                        places[index] = Written(topic, number, base + delta)
        return [places[index] for index in range(len(wanted))]

    def records(
        self,
        topic: str,
        *,
        at_least: int = 0,
        timeout: str | float = "10s",
        committed: bool = True,
    ) -> list[Received]:
        """Return all records of a topic, partition after partition, each in its order.

        ``at_least``: wait until there are so many, for ``timeout`` (``"10s"``, or seconds); raises
        NotThereInTime. ``committed``: leave open and aborted transactions out. Raises KafkaError.
        """
        clock = SystemClock()
        until = clock.monotonic() + seconds_of(timeout)
        while True:
            with self._lock:
                found = self._read(self._connected(), topic, committed=committed)
            if len(found) >= at_least:
                return found
            if clock.monotonic() >= until:
                raise NotThereInTime(
                    f"{topic} has {len(found)} records after {timeout}, not {at_least}"
                )
            self._pause()

    def lag(self, group: str, topic: str) -> int:
        """Return how many records of ``topic`` the group has not committed, all partitions.

        A partition that it never committed counts in full. Raises KafkaError.
        """
        with self._lock:
            client = self._connected()
            partitions = client.partitions(topic)
            committed = BlockingCoordinators(client).committed(group, partitions)
            starts = client.earliest_offsets(partitions)
            ends = client.latest_offsets(partitions)
        return sum(
            ends[each] - (committed[each].offset if each in committed else starts[each])
            for each in partitions
        )

    def wait_until_read(self, group: str, topic: str, *, timeout: str | float = "10s") -> None:
        """Return when the group has committed all of the topic. Raises NotThereInTime."""
        clock = SystemClock()
        until = clock.monotonic() + seconds_of(timeout)
        while (lag := self.lag(group, topic)) > 0:
            if clock.monotonic() >= until:
                raise NotThereInTime(f"{group} lags {lag} records in {topic} after {timeout}")
            self._pause()

    def _answered(self, request: Message, answer: type[Answer]) -> tuple[Answer, int]:
        """Return the answer, and how many tries it took: a lost one may have done the work."""
        tries = 0

        def attempt() -> Answer:
            nonlocal tries
            tries += 1
            return self._connected().any().call(request, answer)

        return self._connected().retrying(attempt), tries

    def _connected(self) -> BlockingClient:
        if self._client is None:
            settings = ClientSettings(
                bootstrap=parse_bootstrap(self.bootstrap),
                client_id=CLIENT_ID,
                connect_timeout_ms=5_000,
                retry_timeout_ms=10_000,
                retry_backoff_ms=5,
                retry_backoff_max_ms=100,
                awaits_cluster=True,
                missing_topic_ms=300 if self.is_ottla else 5_000,
            )
            self._client = BlockingClient(settings)
        return self._client

    def _pause(self) -> None:
        with self._lock:
            self._connected().clock.sleep(PAUSE_MS / 1000)

    def _write(self, client: BlockingClient, where: TopicPartition, batch: bytearray) -> int:
        """Return the base offset that the batch got."""

        def attempt() -> int:
            if where.topic not in client.view.topics:
                client.refresh([where.topic])
            leader = client.view.partition(*where).leader
            request = produce_request(client.view, {where: batch}, -1, 10_000)
            connection = client.connection(leader)
            if connection.has_answer:  # None is due: the broker has closed it meanwhile.
                raise ConnectionFailed(*connection.address, "the connection was closed")
            limit = produce_version_limit(client.view, [where])
            try:
                answer = connection.call(request, ProduceResponse, highest=limit)
            except ConnectionFailed as error:
                client.forget(error)
                raise ProduceUnknown(f"{where}: {error}") from error
            appended = read_produce(client.view, answer)[where]
            if appended.error:
                raise KafkaError(appended.error, appended.message or str(where))
            return appended.base_offset

        return client.retrying(attempt)

    def _read(self, client: BlockingClient, topic: str, *, committed: bool) -> list[Received]:
        partitions = client.partitions(topic)
        limits = FetchLimits(max_wait_ms=PAUSE_MS, read_committed=committed)
        offsets = client.earliest_offsets(partitions)
        found = client.list_offsets(dict.fromkeys(partitions, -1), read_committed=committed)
        received: list[Received] = []
        for each in partitions:
            offset, end = offsets[each], found[each].offset
            while offset < end:
                fetched = client.fetch({each: offset}, limits)[each]
                if fetched.error:
                    raise KafkaError(fetched.error, str(each))
                following = _end_of(fetched.records, offset)
                received += (
                    Received(*each, one.offset, one.timestamp, one.key, one.value, one.headers)
                    for one in read_records(fetched.records, offset, fetched.aborted)
                    if one.offset < end
                )
                offset = max(following, fetched.log_start_offset)
        return received


def seconds_of(text: str | float) -> float:
    """Return the seconds of ``"1h30m"``, ``"200ms"``, or of a number of seconds."""
    return parse_duration_ms(text) / 1000 if isinstance(text, str) else float(text)


def _partition_count(client: BlockingClient, topic: str) -> int:
    """Return the topic's number of partitions; made now if the cluster makes topics."""
    view = client.view
    if topic not in view.topics or view.topics[topic].error:
        view = client.look_up([topic], create=True)
    return len(view.topic(topic).partitions)


def _choose(key: bytes | None, count: int, partition: int | None) -> int:
    if partition is not None:
        return partition
    return 0 if key is None else partition_of_key(key, count)


def _parts(records: Sequence[Record], indexes: Iterable[int]) -> Iterator[list[int]]:
    """Yield the indexes of records that go into one batch each."""
    part: list[int] = []
    size_bytes = 0
    for index in indexes:
        one = records[index]
        of_headers = sum(len(name) + len(data or b"") for name, data in one.headers)
        more = len(one.key or b"") + len(one.value or b"") + of_headers
        if part and size_bytes + more > BATCH_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(index)
        size_bytes += more
    if part:
        yield part


def _end_of(records: memoryview, offset: int) -> int:
    """Return the offset behind the last whole batch; ``offset`` when there is none."""
    end = offset
    for magic, entry in whole_batches(records):
        if magic == MAGIC_V2:
            end = max(end, read_header(entry).last_offset + 1)
        else:
            end = max(
                end, decode_entry(magic, entry, DECOMPRESSED_MAX_BYTES).header.last_offset + 1
            )
    return end


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _check(code: int, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code), f"{what}: {message or error_code(code).text}")
