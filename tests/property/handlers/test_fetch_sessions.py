"""A client that follows incremental answers sees what one with complete answers sees."""

import importlib.util
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.env.rng import SeededRng
from ottla.handlers.apis.fetch import Fetch
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.handlers.fetch_session import FetchSessionCache
from ottla.metadata.image import PartitionChange
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

path = Path(__file__).parents[2] / "unit" / "replication" / "conftest.py"
spec = importlib.util.spec_from_file_location("replication_doubles", path)
doubles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(doubles)

COUNT = 4
SIZE_BYTES = len(doubles.batch(b"0"))
indexes = st.integers(0, COUNT - 1)


class FollowingSessions(RuleBasedStateMachine):
    """Rules change the partitions and let the client fetch; ``catch_up`` compares."""

    @initialize(ends_early=st.booleans())
    def begin(self, ends_early):
        self.node = doubles.Node(flush_messages=doubles.ASYNC_FLUSH, partitions=COUNT)
        self.sessions = FetchSessionCache(
            SeededRng(1), slots=2, partitions_max=3 if ends_early else 100
        )
        self.handler = Fetch(
            self.node.replica_manager,
            None,
            None,
            self.sessions,
            self.node.clock,
            response_bytes_max=10**9,
            wait_ms_max=0,
        )
        self.session_id, self.epoch = 0, 0
        self.positions = {0: 0}  # What the client wants: offset by partition.
        self.unsent = set()
        self.dropped = set()  # Not wanted any more, and the broker not told yet.
        self.seen = {}  # By partition: code, high watermark, log start.

    def send(self, indexes, forgotten=(), max_bytes=10**9, **fields):
        wanted = [
            FetchPartition(
                partition=index, fetch_offset=self.positions[index], partition_max_bytes=10**6
            )
            for index in indexes
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))],
            **fields,
        )
        answer = self.handler.handle(request, Call(12, None, Client("h", 1, "h", 2)))
        parts = {p.partition_index: p for topic in answer.responses for p in topic.partitions}
        return answer, parts

    @rule(index=indexes)
    def produce(self, index):
        self.node.append((index, doubles.batch(b"0")))

    @rule(index=indexes)
    def raise_log_start(self, index):
        self.catch_up()  # Then nothing but the log start is news.
        partition = self.node.partition(index)
        if partition is not None:
            partition.log.log_start_offset = partition.high_watermark

    @rule(index=indexes)
    def delete_or_make(self, index):
        partition = self.node.partition(index)
        if partition is None:
            self.node.change(self.node.led(index))
        else:
            gone = PartitionChange("t", doubles.TOPIC_ID, index, partition.state, None)
            self.node.change(gone)

    @rule(index=indexes, offset=st.integers(0, 5))
    def want(self, index, offset):
        self.positions[index] = offset
        self.unsent.add(index)

    @rule(index=indexes)
    def forget(self, index):
        if self.positions.pop(index, None) is not None:
            self.unsent.discard(index)
            self.dropped.add(index)

    @rule()
    def lose_the_session(self):
        self.sessions.remove(self.session_id)

    @rule(max_bytes=st.sampled_from([1, SIZE_BYTES, 10**9]))
    def fetch(self, max_bytes):
        if self.epoch == 0:
            answer, parts = self.send(self.positions, max_bytes=max_bytes, session_epoch=0)
            assert set(parts) == set(self.positions), "complete"
            self.session_id = answer.session_id
            self.seen.clear()
        else:
            answer, parts = self.send(
                self.unsent,
                self.dropped - set(self.positions),
                max_bytes,
                session_id=self.session_id,
                session_epoch=self.epoch,
            )
        if answer.error_code or answer.session_id == 0:
            # Unknown, or ended because nothing is wanted; or there is no room.
            self.epoch = 0
        else:
            self.epoch += 1
        if answer.error_code:
            assert not parts
            return
        self.unsent.clear()
        for index in self.dropped - set(self.positions):
            self.seen.pop(index, None)
        self.dropped.clear()
        for index, part in parts.items():
            self.seen[index] = (part.error_code, part.high_watermark, part.log_start_offset)
            if part.records:
                count = part.records.length_bytes // SIZE_BYTES
                self.positions[index] += count
                self.unsent.add(index)

    @rule()
    def catch_up(self):
        """As often as needed, a partition at a time; then all that is known must be right."""
        wanted = 2 + sum(
            max(self.node.partition(i).high_watermark - offset, 0)
            for i, offset in self.positions.items()
            if self.node.partition(i) is not None
        )
        for _ in range(wanted):
            self.fetch(1)
        self.fetch(10**9)
        _, parts = self.send(self.positions, session_epoch=-1)
        expected = {
            index: (part.error_code, part.high_watermark, part.log_start_offset)
            for index, part in parts.items()
        }
        assert self.seen == expected
        assert not any(part.records for part in parts.values()), "nothing is left unread"

    @invariant()
    def the_count_of_partitions_is_right(self):
        if hasattr(self, "sessions"):
            counted = sum(session.counted for session in self.sessions._sessions.values())
            assert self.sessions.partition_count == counted


TestFollowingSessions = FollowingSessions.TestCase
