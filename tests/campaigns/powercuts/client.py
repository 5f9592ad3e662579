"""The client of the campaign: does things to a node and writes into the ledger what it was told.

Owns the one rule that makes the ledger true: what is asked for is written down before it is sent,
what is promised after the answer came. A connection that ends means that the node is gone; the
node's last words decide whether that was the planned cut.
"""

import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from powercuts.ledger import Ledger, PartitionLedger, SentBatch, TopicLedger, TopicState
from powercuts.node import CuttableNode
from tools.wire_client import BATCH_HEADER, Closed, WireClient, batch, batches

FETCH_BYTES = 8 << 20
IN_FLIGHT_MAX = 5
HOUR_AGO_MS = int(time.time() * 1000) - 3_600_000
SMALL_SEGMENTS = {"internal_segment_bytes": "2048"}
HIDDEN_CONFIG = {"internal.segment.bytes": "2048"}
"""Set like others, and never told. Small segments: a campaign wants many rolls."""
TOPIC_CONFIG = {"index.interval.bytes": "256"}
TOPIC_SOURCE = 1
COORDINATOR_COMES = (14, 15, 16)
"""It loads, its topic is being made, or it was not found yet."""
KEYS = 12
TOMBSTONES = 0.2


class WrongAnswer(Exception):
    """The node refused what it must do, while nothing was wrong with its disk."""


class CampaignClient:
    """One connection, and the ledger of what it did. ``step`` names what is going on."""

    def __init__(self, node: CuttableNode, ledger: Ledger, *, seed: int) -> None:
        self.node = node
        self.ledger = ledger
        self.step = "start"
        self._random = random.Random(seed)
        self._wire: WireClient | None = None

    def connect(self) -> None:
        """Connect to the node, anew after each start."""
        self.close()
        with self._alive():
            self._wire = WireClient(self.node.bootstrap, timeout_seconds=60)

    def close(self) -> None:
        """Hang up."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (Closed, ConnectionError):
            self.node.await_cut()

    @property
    def wire(self) -> WireClient:
        """The connection."""
        assert self._wire is not None, "connected"
        return self._wire

    def call(self, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Ask; raises Cut when the node dies of it."""
        with self._alive():
            return self.wire.call(api, version, **fields)

    def order(self, text: str) -> None:
        """Let the node do housekeeping, named as the step."""
        self.step = text
        self.node.order(text)

    # -- topics -------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 2, **configs: str) -> TopicLedger:
        """Create a topic with small segments; each partition gets a producer of its own."""
        self.step = "create topic"
        wanted = TOPIC_CONFIG | {key.replace("_", "."): value for key, value in configs.items()}
        topic = TopicLedger(
            name,
            [
                PartitionLedger(f"{name}-{index}", self.new_producer_id())
                for index in range(partitions)
            ],
            configs=[wanted],
        )
        for partition in topic.partitions:
            partition.is_synced = "flush.messages" not in wanted
            partition.is_compacted = "compact" in wanted.get("cleanup.policy", "")
        self.ledger.topics.append(topic)
        self.step = "create topic"
        given = HIDDEN_CONFIG | wanted
        asked = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in given.items()],
        }
        answer = self.call("create_topics", 7, topics=[asked], timeout=10_000)["topics"][0]
        expect_success("CreateTopics", answer)
        topic.state, topic.topic_id = TopicState.PRESENT, answer["topic_id"]
        return topic

    def delete_topic(self, topic: TopicLedger) -> None:
        """Delete a topic."""
        self.step = "delete topic"
        topic.state = TopicState.DELETING
        asked = [{"name": topic.name, "topic_id": None}]
        answer = self.call("delete_topics", 6, topics=asked, timeout=10_000)
        expect_success("DeleteTopics", answer["responses"][0])
        topic.state = TopicState.GONE

    def alter_config(self, topic: TopicLedger, **configs: str) -> None:
        """Set options of a topic, leaving the others."""
        self.step = "alter config"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic.configs.append(topic.configs[-1] | named)
        entries = [
            {"name": key, "config_operation": 0, "value": value} for key, value in named.items()
        ]
        resource = {"resource_type": 2, "resource_name": topic.name, "configs": entries}
        answer = self.call(
            "incremental_alter_configs", 1, resources=[resource], validate_only=False
        )
        expect_success("IncrementalAlterConfigs", answer["responses"][0])
        del topic.configs[:-1]

    def topic_configs(self, topic: TopicLedger) -> dict[str, str]:
        """Return what was set for a topic, by DescribeConfigs."""
        resource = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": None}
        answer = self.call(
            "describe_configs",
            4,
            resources=[resource],
            include_synonyms=False,
            include_documentation=False,
        )["results"][0]
        expect_success("DescribeConfigs", answer)
        return {
            entry["name"]: entry["value"]
            for entry in answer["configs"]
            if entry["config_source"] == TOPIC_SOURCE
        }

    def move(self, topic: TopicLedger, partition: int, log_dir: str) -> None:
        """Have a partition moved to another log directory, and begin no more than that."""
        self.step = "move"
        asked = [{"name": topic.name, "partitions": [partition]}]
        dirs = [{"path": log_dir, "topics": asked}]
        answer = self.call("alter_replica_log_dirs", 2, dirs=dirs)
        expect_success("AlterReplicaLogDirs", answer["results"][0]["partitions"][0])

    def places(self, topic: TopicLedger, partition: int) -> dict[str, bool]:
        """Return the log directories that a partition is in, and whether as a copy."""
        answer = self.call("describe_log_dirs", 4, topics=None)
        return {
            found["log_dir"]: one["is_future_key"]
            for found in answer["results"]
            for named in found["topics"]
            for one in named["partitions"]
            if (named["name"], one["partition_index"]) == (topic.name, partition)
        }

    def topics(self) -> dict[str, Any]:
        """Return the names and ids of all topics; each partition must have a leader."""
        answer = self.call(
            "metadata",
            12,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                expect_success(f"Metadata of {topic['name']}", partition)
        return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}

    # -- records ------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """Return a producer id that nobody has had. Raises WrongAnswer for one twice."""
        self.step = "init producer id"
        answer = self.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
        expect_success("InitProducerId", answer)
        if answer["producer_id"] in self.ledger.producer_ids:
            raise WrongAnswer(f"producer id {answer['producer_id']} was given out twice")
        self.ledger.producer_ids.add(answer["producer_id"])
        return int(answer["producer_id"])

    def produce(self, topic: TopicLedger, partition: int, batch_count: int) -> None:
        """Send batches, up to five at a time before the first is answered."""
        self.step = "produce"
        ledger = topic.partitions[partition]
        while batch_count > 0:
            count = min(batch_count, self._random.randint(1, IN_FLIGHT_MAX))
            batch_count -= count
            sent = [self._next_batch(ledger) for _ in range(count)]
            self.send(topic, partition, sent)

    def _next_batch(self, ledger: PartitionLedger) -> SentBatch:
        count = self._random.randint(1, 4)
        base = ledger.sent_end
        records = [self.next_record(ledger, offset) for offset in range(base, base + count)]
        data = batch(
            [value for _, value in records],
            keys=[key for key, _ in records],
            base_timestamp=HOUR_AGO_MS + base,
            producer_id=ledger.producer_id,
            producer_epoch=0,
            base_sequence=ledger.next_sequence,
        )
        (crc,) = struct.unpack_from(">I", data, 17)
        payload = data[BATCH_HEADER.size :]
        sent = SentBatch(base, crc, payload, data, list(records), ledger.producer_id)
        ledger.batches.append(sent)
        ledger.next_sequence += count
        return sent

    def next_record(self, ledger: PartitionLedger, offset: int) -> tuple[bytes, bytes | None]:
        """Return a key of few, and a value that nobody else writes; a tombstone now and then."""
        key = b"key-%d" % self._random.randrange(KEYS)
        if ledger.is_compacted and self._random.random() < TOMBSTONES:
            return key, None
        named = f"{ledger.name}@{offset}:".encode() + self._random.randbytes(4)
        return key, named * (1 + self._random.randint(0, 8))

    def send(self, topic: TopicLedger, partition: int, sent: list[SentBatch]) -> None:
        """Send these batches of the ledger without waiting in between; take all answers."""
        ledger = topic.partitions[partition]
        with self._alive():
            for one in sent:
                records = [{"index": partition, "records": one.data}]
                data = [{"name": topic.name, "partition_data": records}]
                self.wire.send_frame(
                    self.wire.encode("produce", 9, acks=-1, timeout=30_000, topic_data=data)
                )
            for one in sent:
                frame = self.wire.receive_frame()
                answer = self.wire.decode("produce", 9, frame)
                _take(ledger, one, answer["responses"][0]["partition_responses"][0])

    def produce_to_all(self, topic: TopicLedger, request_count: int) -> None:
        """Send requests with a batch for each partition of the topic, one after another."""
        self.step = "produce to all"
        for _ in range(request_count):
            sent = [self._next_batch(ledger) for ledger in topic.partitions]
            parts = [{"index": index, "records": one.data} for index, one in enumerate(sent)]
            data = [{"name": topic.name, "partition_data": parts}]
            answer = self.call("produce", 9, acks=-1, timeout=30_000, topic_data=data)
            told = {one["index"]: one for one in answer["responses"][0]["partition_responses"]}
            for index, one in enumerate(sent):
                _take(topic.partitions[index], one, told[index])

    def bounds(self, topic: TopicLedger, partition: int) -> tuple[int, int]:
        """Return the log start offset and the high watermark."""
        found = []
        for timestamp in (-2, -1):
            with self._alive():
                ((code, offset),) = self.wire.list_offsets(topic.name, [partition], timestamp)
            expect_success(f"ListOffsets {topic.name}-{partition}", {"error_code": code})
            found.append(offset)
        return found[0], found[1]

    def read(self, topic: TopicLedger, partition: int) -> tuple[int, int, list[dict[str, Any]]]:
        """Return the log's bounds and all batches in them."""
        start, end = self.bounds(topic, partition)
        offset, found = start, []
        limits = {"max_bytes": FETCH_BYTES, "partition_max_bytes": FETCH_BYTES}
        while offset < end:
            with self._alive():
                answer = self.wire.fetch(topic.name, offset, partition, **limits)
            expect_success(f"Fetch {topic.name}-{partition}@{offset}", answer)
            headers = batches(answer["records"])
            if not headers:
                raise WrongAnswer(f"nothing at {topic.name}-{partition}@{offset}, end {end}")
            found += headers
            offset = headers[-1]["base_offset"] + headers[-1]["last_offset_delta"] + 1
        return start, end, found

    def consume(self, topic: TopicLedger, partition: int) -> None:
        """Read all as a consumer: what was seen has to stay."""
        self.step = "consume"
        start, end, found = self.read(topic, partition)
        ledger = topic.partitions[partition]
        problems = ledger.judge(start, end, found)
        if problems:
            raise WrongAnswer("; ".join(problems))
        ledger.seen_end = max(ledger.seen_end, end)

    def delete_records(self, topic: TopicLedger, partition: int, offset: int) -> None:
        """Delete below ``offset``."""
        self.step = "delete records"
        ledger = topic.partitions[partition]
        ledger.asked_to = max(ledger.asked_to, offset)
        asked = [{"partition_index": partition, "offset": offset}]
        answer = self.call(
            "delete_records",
            2,
            topics=[{"name": topic.name, "partitions": asked}],
            timeout=10_000,
        )
        expect_success("DeleteRecords", answer["topics"][0]["partitions"][0])
        ledger.deleted_to = max(ledger.deleted_to, offset)

    # -- groups -------------------------------------------------------------------------------

    def make_offsets_topic(self) -> None:
        """Let the node make its topic of committed offsets, with small segments."""
        while True:
            found = self.call("find_coordinator", 4, key_type=0, coordinator_keys=["group-0"])
            if found["coordinators"][0]["error_code"] not in COORDINATOR_COMES:
                break
            time.sleep(0.01)
        expect_success("FindCoordinator", found["coordinators"][0])
        self.alter_config(TopicLedger("__consumer_offsets", [], configs=[{}]), **SMALL_SEGMENTS)

    def commit_offset(self, group: str, topic: TopicLedger, partition: int, offset: int) -> None:
        """Commit an offset for a group without members."""
        self.step = "commit offset"
        may_hold = self.ledger.offsets.setdefault((group, topic.name, partition), [-1])
        may_hold.append(offset)
        asked = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        while True:
            answer = self.call(
                "offset_commit",
                8,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[{"name": topic.name, "partitions": [asked]}],
            )["topics"][0]["partitions"][0]
            if answer["error_code"] not in COORDINATOR_COMES:
                break
            time.sleep(0.005)
        expect_success(f"OffsetCommit of {group}", answer)
        del may_hold[:-1]

    def judge_offsets(self) -> list[str]:
        """Compare all committed offsets with the ledger; what is found must stay then."""
        problems = []
        for (group, topic, partition), may_hold in self.ledger.offsets.items():
            found = self._committed_offset(group, topic, partition)
            if found not in may_hold:
                problems.append(f"{group} has {found} of {topic}-{partition}, not {may_hold}")
            may_hold[:] = [found]
        return problems

    def _committed_offset(self, group: str, topic: str, partition: int) -> int:
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]}
        while True:
            answer = self.call("offset_fetch", 8, groups=[asked], require_stable=True)["groups"][0]
            if answer["error_code"] not in COORDINATOR_COMES:
                break
            time.sleep(0.005)
        expect_success(f"OffsetFetch of {group}", answer)
        found = answer["topics"][0]["partitions"][0]
        expect_success(f"OffsetFetch of {group}", found)
        return int(found["committed_offset"])


def expect_success(what: str, answer: dict[str, Any]) -> None:
    """Raise WrongAnswer for a code that is not 0."""
    if answer["error_code"] != 0:
        raise WrongAnswer(f"{what}: {answer}")


def _take(ledger: PartitionLedger, sent: SentBatch, told: dict[str, Any]) -> None:
    """Take the answer to one batch."""
    expect_success(f"Produce {ledger.name}@{sent.base_offset}", told)
    if told["base_offset"] != sent.base_offset:
        why = f"not at {told['base_offset']}"
        raise WrongAnswer(f"{ledger.name}: batch belongs at {sent.base_offset}, {why}")
    ledger.acked_end = max(ledger.acked_end, sent.end_offset)
