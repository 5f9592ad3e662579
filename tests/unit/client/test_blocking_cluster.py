"""What the blocking client makes of answers that are right and have nothing in them."""

from ottla.client.blocking import cluster as blocking
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.settings import Address, ClientSettings
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

HERE = Address("127.0.0.1", 9)
LED = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
VIEW = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host=HERE.host, port=HERE.port)],
    topics=[MetadataResponseTopic(name="t", partitions=[LED])],
)
RECORDS = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="t", partitions=[PartitionData(partition_index=0, high_watermark=7)]
        )
    ]
)


def test_a_fetch_is_made_again_when_a_quota_was_used_up(monkeypatch):
    """Kafka's answer has no partition at all then: it was a KeyError of the caller's."""
    answers = [FetchResponse(throttle_time_ms=5, responses=[])] * 2 + [RECORDS]

    class Connection:
        def call(self, request, answer, *, highest=None):
            return VIEW if answer is MetadataResponse else answers.pop(0)

    monkeypatch.setattr(blocking, "BlockingConnection", lambda *_, **__: Connection())
    client = BlockingClient(ClientSettings(bootstrap=(HERE,), retry_backoff_ms=1))
    (partition, fetched) = client.fetch({TopicPartition("t", 0): 0}).popitem()
    assert (partition, fetched.high_watermark) == (TopicPartition("t", 0), 7)
