"""A broker of a few lines, in memory: what a client's tests script and look at."""

import asyncio
from collections import defaultdict

import pytest

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.settings import Address, ClientSettings
from ottla.env.memory_net import MemoryNet
from ottla.errors import ErrorCode
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import decode_request_header, encode_response_header
from ottla.protocol.messages import (
    api_versions,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from ottla.records.batch import patch_offsets, read_header

TOPIC_ID = bytes(range(16))
SERVED = (
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
)  # fmt: skip


class ScriptedBroker:
    """Keeps batches per partition. ``faults[key]`` are error codes to answer with, one per call."""

    def __init__(self, net):
        self.net = net
        self.port = 0
        self.partition_count = 2
        self.topics = []
        self.leaderless = set()
        self.logs = defaultdict(list)
        self.ends = defaultdict(int)
        self.faults = defaultdict(list)
        self.requests = []
        self.connections = []
        self.next_producer_id = 100
        self.versions = {key: API_TABLE[key].versions for key in SERVED}
        self.is_silent = False

    async def start(self):
        listening = await self.net.listen(
            lambda: _BrokerSide(self), host="localhost", port=0, backlog=50
        )
        self.port = listening.address[1]

    def fault(self, key):
        return self.faults[key].pop(0) if self.faults[key] else ErrorCode.NONE

    def calls(self, key):
        return [message for api_key, message in self.requests if api_key == key]

    def answer(self, key, request):
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
        }[key](request)

    def api_versions(self):
        return api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersion(api_key=key, min_version=v.first, max_version=v.last)
                for key, v in self.versions.items()
            ]
        )

    def metadata(self, request):
        error = self.fault(ApiKey.METADATA)
        names = self.topics
        if request.topics is not None:
            names = [each.name for each in request.topics]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="localhost", port=self.port)],
            controller_id=1,
            cluster_id="memory",
            topics=[
                metadata.MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=TOPIC_ID,
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition_index=index,
                            leader_id=-1 if index in self.leaderless else 1,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for index in range(self.partition_count if not error else 0)
                    ],
                )
                for name in names
            ],
        )

    def init_producer_id(self, request):
        self.next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            error_code=self.fault(ApiKey.INIT_PRODUCER_ID),
            producer_id=self.next_producer_id,
            producer_epoch=0,
        )

    def produce(self, request):
        if request.acks == 0:
            answers = None
        responses = []
        for topic in request.topic_data:
            answers = []
            for each in topic.partition_data:
                error = self.fault(ApiKey.PRODUCE)
                base = self.ends[each.index]
                if not error:
                    batch = bytearray(each.records)
                    patch_offsets(batch, base)
                    self.logs[each.index].append(batch)
                    self.ends[each.index] = read_header(batch).next_offset
                answers.append(
                    produce.PartitionProduceResponse(
                        index=each.index, error_code=error, base_offset=-1 if error else base
                    )
                )
            responses.append(
                produce.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return None if request.acks == 0 else produce.ProduceResponse(responses=responses)

    def list_offsets(self, request):
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        list_offsets.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self.fault(ApiKey.LIST_OFFSETS),
                            offset=0 if each.timestamp == -2 else self.ends[each.partition_index],
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def fetch(self, request):
        return fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[self.fetched(each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def fetched(self, asked):
        error = self.fault(ApiKey.FETCH)
        batches = [
            batch
            for batch in self.logs[asked.partition]
            if read_header(batch).next_offset > asked.fetch_offset
        ]
        return fetch.PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=self.ends[asked.partition],
            records=None if error else b"".join(batches),
        )


class _BrokerSide(asyncio.Protocol):
    def __init__(self, broker):
        self.broker = broker
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport
        self.broker.connections.append(transport)

    def data_received(self, data):
        self.data += data
        while len(self.data) >= 4:
            size = int.from_bytes(self.data[:4], "big")
            if len(self.data) < 4 + size:
                return
            frame, self.data = memoryview(self.data[4 : 4 + size]), self.data[4 + size :]
            self.frame(frame)

    def frame(self, frame):
        if self.broker.is_silent:
            return
        key, version, correlation_id, _, position = decode_request_header(frame, 0, len(frame))
        if key == ApiKey.API_VERSIONS:
            self.answer_versions(version, correlation_id)
            return
        api = API_TABLE[ApiKey(key)]
        request = api.request.decode(bytes(frame[position:]), version)
        self.broker.requests.append((key, request))
        answer = self.broker.answer(key, request)
        if answer is not None:
            head = encode_response_header(key, version, correlation_id)
            self.send(head + answer.encode(version))

    def answer_versions(self, version, correlation_id):
        answer = self.broker.api_versions()
        if version not in self.broker.versions[ApiKey.API_VERSIONS]:
            last = self.broker.versions[ApiKey.API_VERSIONS].last
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            answer.api_keys = [api_versions.ApiVersion(api_key=18, min_version=0, max_version=last)]
            version = 0
        self.send(correlation_id.to_bytes(4, "big") + answer.encode(version))

    def send(self, body):
        self.transport.write(len(body).to_bytes(4, "big") + body)


@pytest.fixture
async def broker():
    broker = ScriptedBroker(MemoryNet())
    await broker.start()
    return broker


@pytest.fixture
def settings(broker):
    return ClientSettings(
        bootstrap=(Address("localhost", broker.port),),
        connect_timeout_ms=200,
        request_timeout_ms=500,
        retry_timeout_ms=1000,
        retry_backoff_ms=1,
        retry_backoff_max_ms=4,
    )


@pytest.fixture
async def cluster(broker, settings):
    async with Cluster(settings, broker.net) as cluster:
        yield cluster
