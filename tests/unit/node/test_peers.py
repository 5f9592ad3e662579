"""What is asked of other nodes is answered, whatever keeps the question from them."""

from types import SimpleNamespace

import pytest

from ottla.coordinator.transaction.peers import UNREACHABLE, Marker, Producer
from ottla.env.clock import ManualClock
from ottla.errors import KafkaError
from ottla.ids import NodeId, TopicPartition
from ottla.node.peers import NodePeers
from ottla.pending import outcome_of
from ottla.protocol.messages.fetch import FetchRequest

NODE = NodeId(2)
WHERE = TopicPartition("t", 0)


async def no_thread(*_, **__):
    raise RuntimeError("can't start new thread")


async def test_a_node_that_cannot_be_looked_up_for_want_of_threads_is_one_that_is_away(caplog):
    """Markers were not sent again, offsets written unasked, and a follower followed no more."""
    peers = NodePeers(SimpleNamespace(address_of=lambda node: None, open=no_thread), ManualClock())
    marker, producer = Marker(7, 0, True, 0, 2), Producer("x", 7, 0)
    assert await outcome_of(peers.write_markers(NODE, marker, [WHERE])) == [UNREACHABLE]
    adding = peers.add_partitions(NODE, producer, [WHERE], verify_only=False)
    assert await outcome_of(adding) == {WHERE: UNREACHABLE}
    with pytest.raises(KafkaError):
        await peers.fetch(NODE, FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]))
    assert "can't start new thread" in caplog.text
