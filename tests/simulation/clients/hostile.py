"""Clients that nobody wants. One says what no honest one does: honest frames with bytes changed.

Another asks for very much at once. They expect nothing. That others are served all the same, and
that the node lives, is what the others and the world look at; a fault of ours shows as an error
that nobody caught, and work without end as a turn of the loop that takes too long.
"""

from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.simulation.clients.base import Client
from tests.simulation.clients.readers import fetch_request

FLOODS = [30, 200, 1000]
"""How many requests come at once."""
FLOOD_SECONDS = 20.0
"""The mean time between two floods."""


class _Wire:
    """Takes whatever comes."""

    def __init__(self):
        self.is_lost = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        pass

    def eof_received(self):
        return False

    def connection_lost(self, error):
        self.is_lost = True

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


class HostileClient(Client):
    """Sends mutated frames, half frames and nonsense; hangs up in between."""

    kind = "hostile"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._wire = None

    async def step(self):
        if self._wire is None or self._wire.is_lost or self.random.random() < 0.1:
            await self._connect()
        if self.random.random() < 0.1:
            self._usurp()
            return
        frame = bytearray(self._frame(self.random.choice(self._messages())))
        for _ in range(self.random.randint(0, 4)):
            self._mutate(frame)
        if self.random.random() < 0.2:
            frame = frame[: self.random.randrange(len(frame) + 1)]
        self._wire.transport.write(bytes(frame))
        self.world.coverage.asked("mutated frame")

    async def finish(self):
        if self._wire is not None:
            self._wire.transport.abort()
            self._wire = None

    async def _connect(self):
        await self.finish()
        host, port = self.world.node.address
        wire = _Wire()
        await self._net.connect(lambda: wire, host=host, port=port)
        self._wire = wire

    def _usurp(self):
        """Say, as a coordinator of a later epoch would, that somebody's transaction is over."""
        topics = self.history.living()
        if not topics:
            return
        producer_id, epoch = self._overheard()
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[
                WritableTxnMarkerTopic(
                    name=topic.name, partition_indexes=list(range(topic.partition_count))
                )
                for topic in self.random.sample(topics, min(3, len(topics)))
            ],
            coordinator_epoch=1_000_000,
        )
        self._wire.transport.write(self._frame(WriteTxnMarkersRequest(markers=[marker])))
        self.world.coverage.asked("usurping WriteTxnMarkers")

    def _overheard(self):
        """Return a producer's id and epoch: mostly somebody's who is at work."""
        ids = [one.producer for one in self.world.clients if one.kind == "transactional"]
        if ids and self.random.random() < 0.8:
            return self.random.choice(ids)
        return self.random.randrange(20), self.random.randrange(3)

    def _frame(self, message):
        versions = type(message).VERSIONS
        version = self.random.randint(versions.first, versions.last)
        try:
            body = message.encode(version)
        except (TypeError, ValueError, AttributeError):
            body = self.random.randbytes(20)  # It has no such form in that version.
        header = encode_request_header(message.API_KEY, version, 1, self.name)
        data = header + body
        return len(data).to_bytes(4, "big") + data

    def _messages(self):
        topics = [topic.topic_id for topic in self.history.living()]
        messages = [
            ApiVersionsRequest(client_software_name="x", client_software_version="1"),
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="x", topics=None)]),
            DeleteGroupsRequest(groups_names=["x"]),
            FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]),
        ]
        if topics:
            wanted = [(self.random.choice(topics), 0, 0)]
            messages.append(fetch_request(wanted, isolation=0, wait_ms=0))
        return messages

    def _mutate(self, frame):
        if not frame:
            return
        at = self.random.randrange(len(frame))
        if 4 <= at < 8:
            return  # The API and its version stay: a mutated one could be asked to delete topics.
        how = self.random.random()
        if how < 0.5:
            frame[at] = self.random.randrange(256)
        elif how < 0.7:
            frame[at] = self.random.choice([0, 0x7F, 0x80, 0xFF])
        elif how < 0.85:
            del frame[at]
        else:
            frame[at:at] = self.random.randbytes(self.random.randint(1, 9))


class Flooder(HostileClient):
    """Asks honestly, and for very much at once: hundreds of requests in one write."""

    kind = "flooder"

    async def step(self):
        if self._wire is None or self._wire.is_lost or self.random.random() < 0.3:
            await self._connect()
        message = self.random.choice(
            [
                ApiVersionsRequest(client_software_name="x", client_software_version="1"),
                MetadataRequest(topics=[], allow_auto_topic_creation=False),
                FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]),
            ]
        )
        frame = self._frame(message)
        self._wire.transport.write(frame * self.random.choice(FLOODS))
        self.world.coverage.asked("flood")

    async def pause(self):
        await self.world.sleep(self.random.expovariate(1 / FLOOD_SECONDS))
