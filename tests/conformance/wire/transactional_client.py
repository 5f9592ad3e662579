"""A transactional producer that sends its requests one by one, any version, with any fault."""

import time
import uuid

from tools.wire_client import batch

NOT_READY = (14, 15, 16, 51)


TRANSACTIONAL = 0x10


class Client:
    """A transactional producer, byte by byte."""

    def __init__(self, wire, name=None):
        self.wire = wire
        self.name = name or f"x-{uuid.uuid4().hex[:12]}"
        self.producer_id = self.epoch = -1
        self.produced = {}
        """What the last Produce was answered for its partition."""
        self.patiently(self.find, lambda code: code)

    def patiently(self, ask, code_of, codes=NOT_READY):
        deadline = time.monotonic() + 60
        while True:
            answer = ask()
            if code_of(answer) not in codes:
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.025)

    def find(self):
        asked = {"key_type": 1, "coordinator_keys": [self.name]}
        return self.wire.call("find_coordinator", 4, **asked)["coordinators"][0]["error_code"]

    def init(self, version=5, wait=True, timeout=60_000, **fields):
        asked = {"transactional_id": self.name, "transaction_timeout": timeout}
        if version >= 3:
            asked |= {"producer_id": -1, "producer_epoch": -1}
        answer = self.patiently(
            lambda: self.wire.call("init_producer_id", version, **asked | fields),
            lambda answer: answer["error_code"],
            NOT_READY if wait else (14, 15, 16),
        )
        if answer["error_code"] == 0:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer["error_code"]

    def add(self, *partitions, version=3, epoch=0, producer_id=0, name=None):
        asked = {
            "v3_and_below_transactional_id": self.name if name is None else name,
            "v3_and_below_producer_id": self.producer_id + producer_id,
            "v3_and_below_producer_epoch": self.epoch + epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": [index]} for topic, index in partitions
            ],
        }
        answer = self.wire.call("add_partitions_to_txn", version, **asked)
        return {
            (topic["name"], part["partition_index"]): part["partition_error_code"]
            for topic in answer["results_by_topic_v3_and_below"]
            for part in topic["results_by_partition"]
        }

    def produce(self, topic, sequence=0, version=12, *, epoch=0, producer_id=0, **fields):
        records = batch(
            producer_id=self.producer_id + producer_id,
            producer_epoch=self.epoch + epoch,
            base_sequence=sequence,
            attributes=fields.pop("attributes", TRANSACTIONAL),
            base_timestamp=int(time.time() * 1000),
        )
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        asked = {"transactional_id": self.name, "acks": -1, "timeout": 10_000, "topic_data": data}

        def ask():
            answer = self.wire.call("produce", version, **asked | fields)
            self.produced = answer["responses"][0]["partition_responses"][0]
            return self.produced["error_code"]

        return self.patiently(ask, lambda code: code)

    def end(self, commit=True, version=5, *, wait=True, epoch=0, producer_id=0, name=None):
        """Return the code and, from version 5 on, how far the epoch rose."""
        asked = {
            "transactional_id": self.name if name is None else name,
            "producer_id": self.producer_id + producer_id,
            "producer_epoch": self.epoch + epoch,
            "committed": commit,
        }
        answer = self.patiently(
            lambda: self.wire.call("end_txn", version, **asked),
            lambda answer: answer["error_code"],
            NOT_READY if wait else (),
        )
        if version < 5 or answer["error_code"]:
            return answer["error_code"]
        assert answer["producer_id"] == self.producer_id
        return answer["error_code"], answer["producer_epoch"] - self.epoch

    def describe(self):
        """State, epoch and partitions, once the transaction does not end any more."""

        def ask():
            asked = {"transactional_ids": [self.name]}
            return self.wire.call("describe_transactions", 0, **asked)["transaction_states"][0]

        found = self.patiently(
            ask, lambda found: found["transaction_state"][:7], codes=("Prepare",)
        )
        assert (found["error_code"], found["producer_id"]) == (0, self.producer_id)
        partitions = {
            (topic["topic"], index) for topic in found["topics"] for index in topic["partitions"]
        }
        return found["transaction_state"], found["producer_epoch"], partitions
