"""Administrators: some make and delete topics under the same names, one meddles with all of them.

The life of a name is in the hands of one of them, so that its topics are known one after the other;
what the others ask by name may reach any topic that has the name then.
"""

import time
import uuid
from typing import Any

from tests.campaigns.administering.clients import Client, Service
from tests.campaigns.administering.history import (
    Altered,
    Call,
    Creation,
    Deleted,
    Grown,
    History,
    Topic,
    Verdict,
)

TOPIC, BROKER = 2, 4
PARTITIONS_MAX = 4
AUTOMATIC_PARTITIONS = 2
"""``num.partitions`` of the brokers."""
POLICIES = ["delete", "delete", "compact", "compact,delete", "compact,delete"]
TOPIC_OPTIONS = {
    "cleanup.policy": POLICIES,
    "retention.ms": ["-1", "600000", "600000", "4000", "1500"],
    "retention.bytes": ["-1", "-1", "30000", "8000"],
    "internal.segment.bytes": ["2500", "4000", "12000", "1000000"],
    "segment.bytes": ["1048576", "2097152"],
    "segment.ms": ["100", "800", "604800000"],
    "delete.retention.ms": ["86400000", "1000", "0"],
    "min.cleanable.dirty.ratio": ["0.01", "0.5"],
    "file.delete.delay.ms": ["0", "20", "500"],
    "index.interval.bytes": ["100", "4096"],
}
UNSYNCED_OPTIONS = {"flush.messages": ["1", "5", "9223372036854775807"], "flush.ms": ["20", "1000"]}
"""Where no power is cut."""
BROKER_OPTIONS = {
    "log.cleaner.backoff.ms": ["5", "30", "300"],
    "log.segment.delete.delay.ms": ["0", "20", "500"],
    "log.cleaner.io.max.bytes.per.second": ["20000", "1000000", "1000000000"],
    "log.cleaner.min.cleanable.ratio": ["0.01", "0.5"],
}


class Landlord(Client):
    """Makes, deletes and makes anew the topics of some names."""

    def __init__(self, service: Service, history: History, seed: str, names: list[str]) -> None:
        super().__init__(service, history, seed)
        self._names = names

    def step(self) -> None:
        """Do one thing to one name, unless it is in doubt."""
        name = self.random.choice(self._names)
        topic = self.history.by_name(name)
        if name in self.history.creations or self._is_going(name):
            time.sleep(0.02)
        elif topic is None:
            self._create(name)
        elif time.time() - topic.created.over > self.random.choice([0.1, 0.5, 3.0, 10.0, 20.0]):
            self._replace(topic)
        time.sleep(self.random.choice([0.02, 0.3, 0.8]))

    def _replace(self, topic: Topic) -> None:
        """Delete a topic and, mostly, make another one of its name at once."""
        if self._delete(topic) and self.random.random() < 0.85:
            self._create(topic.name)

    def _is_going(self, name: str) -> bool:
        return any(
            topic.name == name and not topic.is_living and not topic.is_gone
            for topic in self.history.topics.values()
        )

    def _create(self, name: str) -> None:
        if self.random.random() < 0.2:
            creation = Creation(name, Call(), {}, AUTOMATIC_PARTITIONS)
            ask = self._create_by_metadata
        else:
            configs = {
                key: self.random.choice(values)
                for key, values in TOPIC_OPTIONS.items()
                if key in ("cleanup.policy", "internal.segment.bytes", "min.cleanable.dirty.ratio")
                or self.random.random() < 0.5
            }
            creation = Creation(name, Call(), configs, self.random.randint(1, 3))
            ask = self._create_by_request
        with self.history.lock:
            self.history.creations[name] = creation
        topic_id = ask(creation)
        if topic_id is None:
            return
        with self.history.lock:
            creation.call.answer(Verdict.OK)
            self.history.creations.pop(name, None)
            self.history.topics[topic_id] = creation.topic(topic_id)
        self.history.count("topics created")

    def _create_by_request(self, creation: Creation) -> uuid.UUID | None:
        answer = self.call("create_topics", 7, topics=[creation.request()], timeout=30_000)
        answer = answer["topics"][0]
        if answer["error_code"]:
            text = f"CreateTopics {creation.name}: {answer['error_code']} {answer['error_message']}"
            self._refused(creation, text, answer["error_code"])
            return None
        return uuid.UUID(str(answer["topic_id"]))

    def _create_by_metadata(self, creation: Creation) -> uuid.UUID | None:
        begin = time.monotonic()
        while True:
            answer = self.call(
                "metadata",
                12,
                topics=[{"topic_id": None, "name": creation.name}],
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=False,
            )["topics"][0]
            if answer["error_code"] == 0:
                return uuid.UUID(str(answer["topic_id"]))
            text = f"automatic creation of {creation.name}: error {answer['error_code']}"
            self.be_patient(begin, text)
            time.sleep(0.02)

    def _refused(self, creation: Creation, text: str, code: int) -> None:
        """A creation that was refused must pass by itself, but for one under way."""
        self.history.count(f"CreateTopics: error {code}")
        if code not in (7, 36, 41):
            self.history.problem(text)

    def _delete(self, topic: Topic) -> bool:
        call = Call()
        with self.history.lock:
            topic.deletion = call
        is_by_name = self.random.random() < 0.5
        asked: dict[str, Any] = {"name": topic.name, "topic_id": None}
        if not is_by_name:
            asked = {"name": None, "topic_id": topic.topic_id}
        answer = self.call("delete_topics", 6, topics=[asked], timeout=30_000)["responses"][0]
        if answer["error_code"]:
            self.history.count(f"DeleteTopics: error {answer['error_code']}")
            if answer["error_code"] not in (7, 41):
                self.history.problem(f"DeleteTopics {topic.name}: {answer}")
            return False
        call.answer(Verdict.OK)
        self.history.count("topics deleted")
        return True


class Meddler(Client):
    """Deletes records, alters options, adds partitions, moves replicas."""

    def __init__(
        self,
        service: Service,
        history: History,
        seed: str,
        *,
        log_dirs: list[str],
        may_lose_power: bool,
    ) -> None:
        super().__init__(service, history, seed)
        self._log_dirs = log_dirs
        self._options = TOPIC_OPTIONS | ({} if may_lose_power else UNSYNCED_OPTIONS)

    def step(self) -> None:
        """Do one thing to one topic."""
        topics = self.history.living()
        if topics:
            topic = self.random.choice(topics)
            work = [self._delete_records, self._alter, self._grow, self._move, self._alter_broker]
            self.random.choices(work, [5, 4, 1, 3, 2])[0](topic)
        time.sleep(self.random.choice([0.01, 0.05, 0.3]))

    def _delete_records(self, topic: Topic) -> None:
        partition = self.random.randrange(topic.partition_count)
        ((code, end),) = self.wire.list_offsets(topic.name, [partition], -1)
        if code or end <= 0:
            return
        offset = end if self.random.random() < 0.2 else self.random.randint(0, end * 2 // 3)
        asked = Deleted(topic.name, Call(), partition, offset)
        with self.history.lock:
            self.history.deleted.append(asked)
        answer = self.call(
            "delete_records",
            2,
            topics=[
                {
                    "name": topic.name,
                    "partitions": [{"partition_index": partition, "offset": offset}],
                }
            ],
            timeout=30_000,
        )["topics"][0]["partitions"][0]
        self._note("DeleteRecords", asked.call, answer["error_code"])

    def _alter(self, topic: Topic) -> None:
        key = self.random.choice(list(self._options))
        configs = {key: self.random.choice(self._options[key])}
        asked = Altered(topic.name, Call(), configs)
        with self.history.lock:
            self.history.altered.append(asked)
        code = self._set(TOPIC, topic.name, configs)
        self._note("IncrementalAlterConfigs", asked.call, code)

    def _alter_broker(self, _: Topic) -> None:
        key = self.random.choice(list(BROKER_OPTIONS))
        configs = {key: self.random.choice(BROKER_OPTIONS[key])}
        self._note("broker's options", Call(), self._set(BROKER, "", configs))

    def _set(self, resource_type: int, name: str, configs: dict[str, str]) -> int:
        entries = [
            {"name": key, "config_operation": 0, "value": value} for key, value in configs.items()
        ]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": entries}
        answer = self.call(
            "incremental_alter_configs", 1, resources=[resource], validate_only=False
        )
        return int(answer["responses"][0]["error_code"])

    def _grow(self, topic: Topic) -> None:
        count = topic.partition_count + 1
        if count > PARTITIONS_MAX:
            return
        asked = Grown(topic.name, Call(), count)
        with self.history.lock:
            self.history.grown.append(asked)
        wanted = {"name": topic.name, "count": count, "assignments": None}
        answer = self.call(
            "create_partitions", 3, topics=[wanted], timeout=30_000, validate_only=False
        )["results"][0]
        self._note("CreatePartitions", asked.call, answer["error_code"])
        if topic.is_meant(asked):
            topic.partition_count = max(topic.partition_count, count)

    def _move(self, topic: Topic) -> None:
        partition = self.random.randrange(topic.partition_count)
        asked = [{"name": topic.name, "partitions": [partition]}]
        dirs = [{"path": self.random.choice(self._log_dirs), "topics": asked}]
        answer = self.call("alter_replica_log_dirs", 2, dirs=dirs)["results"][0]["partitions"][0]
        self._note("AlterReplicaLogDirs", Call(), answer["error_code"])

    def _note(self, what: str, call: Call, code: int) -> None:
        """Any refusal leaves it open: a topic may have gone in the middle of the work."""
        if code == 0:
            call.answer(Verdict.OK)
        self.history.count(what if code == 0 else f"{what}: error {code}")
