"""A cluster as a client holds it: the newest view, the open connections, the retries. On asyncio.

Owns which broker is asked, and when a call is tried again. Admin, producer and fetcher stand on it.
Knows no record and no handler.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Self, TypeVar

from ottla.client.asyncio.connection import Connection
from ottla.client.asyncio.trouble import QUIET, Trouble
from ottla.client.wire.backoff import Backoff
from ottla.client.wire.errors import ConnectionFailed, Unsendable, error_code
from ottla.client.wire.offsets import FoundOffset, list_offsets_request, read_list_offsets
from ottla.client.wire.settings import Address, ClientSettings
from ottla.client.wire.view import ClusterView, metadata_request, read_metadata
from ottla.env.net import Net
from ottla.env.real_net import AsyncioNet
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.list_offsets import ListOffsetsResponse
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.schema import Message

Result = TypeVar("Result")
Listing = TypeVar("Listing", ListGroupsResponse, ListTransactionsResponse)
"""What a broker answers for itself only."""

CREATION_SECONDS = 5.0
"""How long a topic that the broker may create is asked for."""


class Cluster:
    """Connections are opened on first use and kept; ``async with`` closes them."""

    def __init__(
        self,
        settings: ClientSettings | None = None,
        net: Net | None = None,
        *,
        trouble: Trouble = QUIET,
    ) -> None:
        self.settings = settings or ClientSettings()
        self.trouble = trouble
        self.view = ClusterView()
        self._in_use: set[str] = set()
        """Use: topics of the view that somebody has named: they are asked for with the others."""
        self.last_failure: OttlaError | None = None
        """Why the last call that is tried again failed; None since one succeeded."""
        self._net = net or AsyncioNet()
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Lock] = {}
        self._has_answered = False
        self._is_doubtful = False
        """Use: the last connection was closed before it was served: is a login wanted?"""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; answers that are due fail."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> ClusterView:
        """Ask for these topics beside those in use (None: all), and return the new view.

        ``create``: the broker may create them, if it is set to. A topic's errors stand in the view;
        ``view.topic`` raises them.
        """
        names = None
        asked = () if topics is None else tuple(topics)
        if topics is not None:  # Of a list of all topics few are in use.
            self._in_use.update(asked)
            names = self._in_use
        connection = await self.any()
        try:
            answer = await connection.call(metadata_request(names, create=create), MetadataResponse)
        except Unsendable:
            self._in_use.difference_update(asked)  # Else nothing is ever found again.
            raise
        self.view = read_metadata(answer)
        return self.view

    async def ensure(
        self, topics: Iterable[str], *, create: bool = False, led: bool = True
    ) -> ClusterView:
        """Return a view in which all of ``topics`` have leaders, asking as often as it takes.

        ``led`` False: that they are there is enough. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION
        and whatever else stays wrong. A topic that is unknown is asked for again only with
        ``create``, and only for some seconds.
        """
        wanted = list(topics)

        async def attempt() -> ClusterView:
            self._in_use.update(wanted)
            if not self._are_led(wanted):
                await self.refresh(wanted, create=create)
            for name in wanted:
                partitions = self.view.topic(name).partitions
                for partition in partitions if led else ():
                    self.view.partition(name, partition)
            return self.view

        loop = asyncio.get_running_loop()
        patience = loop.time() + (CREATION_SECONDS if create else 0.0)

        def gives_up(error: KafkaError) -> bool:
            return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and loop.time() >= patience

        return await self.retrying(attempt, gives_up=gives_up)

    async def ensure_led(self, partitions: Iterable[TopicPartition]) -> ClusterView:
        """Return a view in which these partitions are led; others of their topics need not be.

        Raises KafkaError, as ``ensure`` does.
        """
        wanted = list(partitions)

        async def attempt() -> ClusterView:
            self._in_use.update(name for name, _ in wanted)
            if not all(self._is_led(each) for each in wanted):
                await self.refresh({name for name, _ in wanted})
            for each in wanted:
                self.view.partition(*each)
            return self.view

        return await self.retrying(attempt, gives_up=_is_unknown_topic)

    async def look(self, partitions: Iterable[TopicPartition]) -> ClusterView:
        """Return a view, a new one if one of these has no leader in it; perhaps not all have.

        ``view.partition`` raises what is wrong with one. Raises ConnectionFailed.
        """
        wanted = list(partitions)
        self._in_use.update(name for name, _ in wanted)
        if not all(self._is_led(each) for each in wanted):
            await self.retrying(lambda: self.refresh({name for name, _ in wanted}))
        return self.view

    async def any(self) -> Connection:
        """Return a connection to some broker, an open one if there is. Raises ConnectionFailed."""
        addresses = dict.fromkeys((*self.settings.bootstrap, *self.view.brokers.values()))
        for address in addresses:
            found = self._connections.get((address, ""))
            if found is not None and not found.is_closed:
                return found
        failure: ConnectionFailed | None = None
        for address in addresses:
            try:
                return await self._connect(address, "")
            except ConnectionFailed as error:
                failure = failure or error
        raise failure or ConnectionFailed("", 0, "no bootstrap address")

    async def connection(self, node_id: int, purpose: str = "") -> Connection:
        """Return the connection to a broker; each ``purpose`` has its own (a Fetch may wait)."""
        address = self.view.brokers.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not alive")
        return await self._connect(address, purpose)

    async def controller(self) -> Connection:
        """Return a connection to the broker that takes changes."""
        if not self.view.brokers:
            await self.refresh([])
        if self.view.controller_id in self.view.brokers:
            return await self.connection(self.view.controller_id)
        return await self.any()

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets for timestamps in ms, or ``offsets.EARLIEST`` or ``offsets.LATEST``."""

        async def attempt() -> dict[TopicPartition, FoundOffset]:
            await self.ensure_led(timestamps)
            found: dict[TopicPartition, FoundOffset] = {}
            for leader, partitions in self.view.by_leader(timestamps).items():
                asked = {each: timestamps[each] for each in partitions}
                request = list_offsets_request(asked, read_committed=read_committed)
                connection = await self.connection(leader)
                found.update(read_list_offsets(await connection.call(request, ListOffsetsResponse)))
            for each, offset in found.items():
                if offset.error:
                    raise KafkaError(offset.error, str(each))
            return found

        return await self.retrying(attempt)

    async def ask_every_broker(self, request: Message, listing: type[Listing]) -> list[Listing]:
        """Send ``request`` to each broker and return the answers, which belong together.

        Raises KafkaError when one of them refuses.
        """

        async def attempt() -> list[Listing]:
            answers = []
            for node_id in (await self.refresh([])).brokers:
                connection = await self.connection(node_id)
                answer = await connection.call(request, listing)
                if answer.error_code != ErrorCode.NONE:
                    raise KafkaError(error_code(answer.error_code))
                answers.append(answer)
            return answers

        return await self.retrying(attempt)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        gives_up: Callable[[KafkaError], bool] | None = None,
    ) -> Result:
        """Run ``attempt`` until it returns, as long as its errors and the settings allow.

        The view is dropped between tries. Raises what the last try raised.
        """
        loop = asyncio.get_running_loop()
        backoff = Backoff(self.settings, loop.time())
        of, is_retried = object(), False
        while True:
            try:
                result = await attempt()
            except (KafkaError, ConnectionFailed) as error:
                self._is_doubtful = isinstance(error, ConnectionFailed) and error.unserved
                if self._has_answered:  # perhaps in this very attempt
                    backoff.connected()
                is_final = (
                    isinstance(error, KafkaError) and gives_up is not None and gives_up(error)
                )
                pause = None if is_final else backoff.pause_seconds(error, loop.time())
                if pause is None:
                    if is_retried and isinstance(error, KafkaError) and not error.code.retriable:
                        self.trouble.answered(of)  # A refusal is an answer.
                    self.trouble.gave_up(of)
                    raise
                self.last_failure = error
                self.trouble.retrying(error, of)
                is_retried = True
            else:
                self.last_failure = None
                if is_retried:
                    self.trouble.answered(of)
                return result
            self.forget_leaders()
            await asyncio.sleep(pause)

    def forget_leaders(self) -> None:
        """Make the next ``ensure`` ask again."""
        self._in_use.clear()
        self.view = ClusterView(
            cluster_id=self.view.cluster_id,
            controller_id=self.view.controller_id,
            brokers=self.view.brokers,
        )

    def _are_led(self, topics: Iterable[str]) -> bool:
        known = self.view.topics
        return all(
            name in known
            and known[name].error is ErrorCode.NONE
            and all(each.leader >= 0 for each in known[name].partitions.values())
            for name in topics
        )

    def _is_led(self, partition: TopicPartition) -> bool:
        topic = self.view.topics.get(partition.topic)
        if topic is None or topic.error is not ErrorCode.NONE:
            return False
        there = topic.partitions.get(partition.partition)
        return there is not None and there.leader >= 0

    async def _connect(self, address: Address, purpose: str) -> Connection:
        key = (address, purpose)
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.is_closed:
                connection = await Connection.open(
                    self._net, address, self.settings, is_doubtful=self._is_doubtful
                )
                self._connections[key] = connection
                self._has_answered = True
            return connection


def _is_unknown_topic(error: KafkaError) -> bool:
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
