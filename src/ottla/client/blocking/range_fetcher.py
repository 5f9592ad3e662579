"""Ranges of partitions, fetched by blocking calls with the next answer always on its way.

Over ``blocking``, for Spark's tasks: while the caller works on one answer, the broker has the next
request already, and the system's buffers fill with what it sends. One Fetch asks a leader for
every partition it leads. Owns the positions, which move as answers come, and so what is asked again
when a leader moves or a broker restarts: nothing is given twice, nothing is left out. Does not open
batches (their headers tell how far they go). Not for use from two threads at once.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.backoff import MISSING, Backoff
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.fetching import (
    FetchedPartition,
    FetchLimits,
    fetch_request,
    fetch_version_limit,
    read_fetch,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NULL_TOPIC_ID, TopicId, TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.records.batch_walk import next_offset

ESTIMATE_SLACK_BYTES = 64 << 10
"""Asked for beyond the estimate of what a range still holds."""

VIEW_SECONDS_MAX = 30.0
"""How old the client's view may be when reading begins: a topic of 2,000 partitions is described in
20 ms of the broker's time, and each of its 2,000 tasks asked for that."""

THROTTLED_SECONDS_MAX = 600.0
"""So long without anything but word that a quota is used up, and the caller is told."""
THROTTLE_SECONDS_MAX = 60.0
"""The longest pause that a broker may ask for at once."""


class Fetched(NamedTuple):
    """What one partition gave for the request at ``offset``: records, or an error.

    Without either, nothing came from any partition in ``max_wait_ms``: the logs end here. The
    records are views that end with the next step of the iterator.
    """

    partition: TopicPartition
    offset: int
    answer: FetchedPartition


class _NotMoved(KafkaError):
    """A partition's error that was looked at, and is to be asked for again all the same."""

    def __init__(self, fetched: Fetched) -> None:
        code = fetched.answer.error
        super().__init__(code, f"{fetched.partition} at offset {fetched.offset}: {code.text}")


def _error(partition: TopicPartition, offset: int, code: ErrorCode) -> Fetched:
    return Fetched(partition, offset, FetchedPartition(code, -1, -1, -1, memoryview(b""), ()))


def _pause(backoff: Backoff, error: KafkaError | ConnectionFailed, now: float) -> float | None:
    if isinstance(error, _NotMoved):
        return backoff.pause_for_any(now)
    return backoff.pause_seconds(error, now)


class RangeFetcher:
    """Gives the batches of ``ranges``, each ``[start, end)``, until all are complete.

    ``topic_ids`` are those of the topics meant, as far as they are known.
    Use as a context manager: what was asked for and not awaited is given up at its end.
    """

    def __init__(
        self,
        client: BlockingClient,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        limits: FetchLimits,
        topic_ids: Mapping[str, TopicId],
    ) -> None:
        self._client = client
        self._limits = limits
        self._topic_ids = dict(topic_ids)
        self._positions = {each: start for each, (start, end) in ranges.items() if start < end}
        self._ends = {each: end for each, (_, end) in ranges.items()}
        self._sizes: dict[TopicPartition, float] = {}
        """Bytes per offset of the last answer, to ask for no more than a range still holds."""
        self._in_flight: dict[int, dict[TopicPartition, int]] = {}
        """By leader, the partitions and offsets that it was asked for."""
        self._throttled_since: float | None = None
        """Use: when a quota was used up, by the monotonic clock; None: something came since."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up()

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Read ``partition`` on from ``offset``: after an error that stands in its answer."""
        if offset < self._ends[partition]:
            self._positions[partition] = offset
        else:
            self._positions.pop(partition, None)

    def answers(self) -> Iterator[Fetched]:
        """Yield what comes, in the order of the offsets of each partition. Blocks.

        What may pass by itself is retried for the settings' time since records came last. Other
        errors of a partition stand in its answer, and while it is looked at nothing is under way,
        so the client may be used; then ``move`` the partition, or stop. One that is not moved is
        asked for again, after a pause, as long as what may pass by itself. Among these errors are
        INCONSISTENT_TOPIC_ID (the topic was made anew) and UNKNOWN_TOPIC_OR_PARTITION (it is gone,
        and has been for the settings' time). Raises KafkaError, ConnectionFailed.
        """
        clock, client = self._client.clock, self._client
        backoff: Backoff | None = None
        while self._positions:
            before = dict(self._positions)
            failure: KafkaError | ConnectionFailed | None = None
            try:
                self._look()
            except (KafkaError, ConnectionFailed) as error:
                failure = error
            else:
                yield from self._other_topics()
                try:
                    yield from self._stream()
                except (KafkaError, ConnectionFailed) as error:
                    failure = error
            if failure is None:
                continue
            self._give_up()
            if backoff is None or self._positions != before:
                backoff = Backoff(client.settings, clock.monotonic())
                backoff.connected()
            pause = _pause(backoff, failure, clock.monotonic())
            if pause is not None:
                client.forget(failure)
                clock.sleep(pause)
                continue
            gone = self._gone(failure)
            if not gone:
                raise failure
            yield from gone
            if any(self._positions.get(each.partition) == each.offset for each in gone):
                raise failure

    def _look(self) -> None:
        """See to it that the client's view has what is to be read, as new as it must be."""
        if not self._client.knows(self._positions, self._topic_ids, VIEW_SECONDS_MAX):
            self._client.look_up({topic for topic, _ in self._positions})

    def _other_topics(self) -> Iterator[Fetched]:
        """Yield an error for each partition whose topic is not the one that was meant."""
        code = ErrorCode.INCONSISTENT_TOPIC_ID
        for each, offset in list(self._positions.items()):
            topic = self._client.view.topics.get(each.topic)
            if topic is None or topic.error:
                continue  # which is told when it is asked for
            found = topic.topic_id
            meant = self._topic_ids.setdefault(each.topic, found)
            if NULL_TOPIC_ID in {found, meant} or found == meant:
                continue
            yield _error(each, offset, code)
            if each in self._positions:
                raise KafkaError(code, f"{each}: the topic was deleted and made anew")

    def _stream(self) -> Iterator[Fetched]:
        """Yield answers until all is read or a partition has an error."""
        for leader, partitions in self._client.view.by_leader(self._positions).items():
            self._ask(leader, partitions)
        while self._in_flight:
            leader = self._next_leader()
            asked = self._in_flight[leader]
            fetched = self._receive(leader)
            # Later partitions were asked for first last time, and have had their share.
            told = [each.partition for each in fetched] or asked
            left = [each for each in told if each in self._positions]
            self._ask(leader, left[1:] + left[:1])
            is_idle = all(
                not each.answer.error and not len(each.answer.records) for each in fetched
            )
            for each in fetched:
                if len(each.answer.records) or is_idle:
                    yield each
            faulty = [each for each in fetched if each.answer.error]
            if faulty:
                self._give_up()
                yield from faulty
                for each in faulty:
                    if self._positions.get(each.partition) == each.offset:
                        raise _NotMoved(each)
                return

    def _gone(self, failure: KafkaError | ConnectionFailed) -> list[Fetched]:
        """Return an error for each partition that is not there any more, if it says that."""
        if not isinstance(failure, KafkaError) or failure.code not in MISSING:
            return []
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        there = self._client.existing(self._positions)
        return [
            _error(each, offset, code)
            for each, offset in self._positions.items()
            if each not in there
        ]

    def _next_leader(self) -> int:
        """Return a leader whose answer is there; if none is, the one that was asked first."""
        if len(self._in_flight) > 1:
            for leader in self._in_flight:
                if self._client.connection(leader).has_answer:
                    return leader
        return next(iter(self._in_flight))

    def _ask(self, leader: int, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        asked = {each: self._positions[each] for each in partitions}
        view = self._client.view
        request = fetch_request(view, asked, self._limits)
        for topic in request.topics:
            for each in topic.partitions:
                name = topic.topic
                each.partition_max_bytes = self._bytes_to_ask(TopicPartition(name, each.partition))
        connection = self._client.connection(leader)
        self._in_flight[leader] = asked
        connection.send(request, FetchResponse, highest=fetch_version_limit(view, asked))

    def _bytes_to_ask(self, partition: TopicPartition) -> int:
        size = self._sizes.get(partition)
        limit = self._limits.partition_max_bytes
        if size is None:
            return limit
        left = self._ends[partition] - self._positions[partition]
        return min(limit, int(left * size) + ESTIMATE_SLACK_BYTES)

    def _receive(self, leader: int) -> list[Fetched]:
        connection = self._client.connection(leader)
        answer = connection.receive(reuse_buffer=True)
        asked = self._in_flight.pop(leader)
        assert isinstance(answer, FetchResponse), "nothing else was asked of this connection"
        answers = read_fetch(self._client.view, answer)
        if not answers and answer.throttle_time_ms > 0:
            self._wait_for_quota(asked, answer.throttle_time_ms / 1000)
            return []
        self._throttled_since = None
        if answers.keys() != asked.keys():
            why = f"asked for {', '.join(map(str, asked))}, told of {', '.join(map(str, answers))}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        found: list[Fetched] = []
        for partition, fetched in answers.items():
            offset = asked[partition]
            if self._positions.get(partition) != offset:
                continue  # moved while the answer was under way
            if fetched.error.retriable:
                why = f"{partition.topic}-{partition.partition} at offset {offset}"
                raise KafkaError(fetched.error, f"{why}: {fetched.error.text}")
            if not fetched.error:
                self._advance(partition, offset, fetched.records)
            found.append(Fetched(partition, offset, fetched))
        return found

    def _wait_for_quota(self, asked: Mapping[TopicPartition, int], seconds: float) -> None:
        """Take note of an answer that has nothing since a quota is used up (KIP-219).

        The broker reads nothing more on the connection for so long. Waits where no other leader's
        answer is due. Raises KafkaError after a long time of nothing else.
        """
        clock = self._client.clock
        now = clock.monotonic()
        if self._throttled_since is None:
            self._throttled_since = now
        if now - self._throttled_since > THROTTLED_SECONDS_MAX:
            why = f"{', '.join(map(str, asked))}: nothing came for {THROTTLED_SECONDS_MAX:g} s"
            quotas = "consumer_byte_rate or request_percentage"
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{why}: a quota ({quotas})")
        if not self._in_flight:
            clock.sleep(min(seconds, THROTTLE_SECONDS_MAX))

    def _advance(self, partition: TopicPartition, offset: int, records: memoryview) -> None:
        position = next_offset(records, offset)
        if position > offset:
            self._sizes[partition] = len(records) / (position - offset)
        self.move(partition, position)

    def _give_up(self) -> None:
        """Close the connections on which answers are due: they will not be taken."""
        for leader in self._in_flight:
            self._client.disconnect(leader)
        self._in_flight.clear()
