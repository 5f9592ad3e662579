"""Looks at a broker while nobody else asks it anything, and has all of it judged."""

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from tests.campaigns.administering.administrators import TOPIC
from tests.campaigns.administering.clients import NO_SUCH_TOPIC
from tests.campaigns.administering.history import Creation, History, Topic, Verdict
from tests.campaigns.administering.judge import Observation, PartitionJudge, judge_commits
from tests.campaigns.administering.readers import NO_EPOCH, OFFSET_OUT_OF_RANGE
from tests.campaigns.administering.records import Found, committed, parse
from tools.wire_client import Closed, WireClient

SERVICE_SECONDS_MAX = 20.0
"""Until a broker that listens, or goes on, is in Metadata and coordinates."""
SETTLE_SECONDS_MAX = 30.0
"""Until partitions are led and transactions that were ended are decided."""
TOPIC_SOURCE = 1
EXISTS = 36
FETCH_BYTES = 8 << 20
DEAD_ASKED = 3


class NotServed(Exception):
    """The broker does not do what it must."""


class Observer:
    """Looks once; problems go into the history."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._wire: WireClient | None = None
        self.checked = 0
        self.service_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._wire is not None:
            self._wire.close()

    def call(self, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Ask. Raises NotServed when there is no answer."""
        try:
            if self._wire is None:
                self._wire = WireClient(self._bootstrap, timeout_seconds=60, client_id="observer")
            return self._wire.call(api, version, **fields)
        except (OSError, Closed) as error:
            raise NotServed(f"{api}: {type(error).__name__} {error}") from error

    def _until(self, seconds: float, ask: Callable[[], str]) -> float:
        """Ask until nothing is missing; return the seconds. Raises NotServed with what is."""
        begin = time.monotonic()
        while True:
            missing = ask()
            waited = time.monotonic() - begin
            if not missing:
                return waited
            if waited > seconds:
                raise NotServed(f"after {waited:.0f} s: {missing}")
            time.sleep(0.1)

    # -- is it served -------------------------------------------------------------------------

    def look_at_service(self) -> None:
        """It is in Metadata, controls, and coordinates."""
        try:
            self.service_seconds = self._until(SERVICE_SECONDS_MAX, self._missing_service)
        except NotServed as error:
            self._history.problem(f"service: {error}")

    def _missing_service(self) -> str:
        answer = self._metadata()
        if not answer["brokers"] or answer["controller_id"] < 0:
            return f"Metadata has brokers {answer['brokers']}, {answer['controller_id']}"
        for key_type, key in ((0, "group-0"), (1, "transactional-0")):
            found = self.call("find_coordinator", 4, key_type=key_type, coordinator_keys=[key])
            code = found["coordinators"][0]["error_code"]
            if code:
                return f"FindCoordinator of {key}: error {code}"
        return ""

    def _metadata(self) -> dict[str, Any]:
        return self.call(
            "metadata",
            12,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )

    # -- all of it ----------------------------------------------------------------------------

    def look_at_all(self) -> None:
        """Look at topics, options, records, committed offsets and directories."""
        try:
            self._resolve_doubts()
            self._look_at_topics()
            for topic in self._history.living():
                self._look_at_configs(topic)
                for partition in range(topic.partition_count):
                    self._look_at_partition(topic, partition)
            self._look_at_dead()
            self._look_at_commits()
            self._look_at_directories()
        except NotServed as error:
            self._history.problem(f"service: {error}")

    def _resolve_doubts(self) -> None:
        """Ask again for what was not answered: what is still under way comes to its end by that."""
        history = self._history
        for topic in history.topics.values():
            if topic.deletion is not None and not topic.is_gone:
                named = {"name": None, "topic_id": topic.topic_id}
                self._until(SETTLE_SECONDS_MAX, partial(self._delete, named))
                topic.deletion.answer(Verdict.OK)
        for creation in history.creations.values():
            self._until(SETTLE_SECONDS_MAX, partial(self._create, creation))

    def _delete(self, named: dict[str, Any]) -> str:
        answer = self.call("delete_topics", 6, topics=[named], timeout=30_000)["responses"][0]
        code = answer["error_code"]
        return "" if code in (0, *NO_SUCH_TOPIC) else f"DeleteTopics of {named}: error {code}"

    def _create(self, creation: Creation) -> str:
        answer = self.call("create_topics", 7, topics=[creation.request()], timeout=30_000)[
            "topics"
        ][0]
        code = answer["error_code"]
        return "" if code in (0, EXISTS) else f"CreateTopics of {creation.name}: error {code}"

    def _look_at_topics(self) -> None:
        def missing() -> str:
            for topic in self._metadata()["topics"]:
                for partition in topic["partitions"]:
                    if topic["error_code"] or partition["error_code"]:
                        index, code = partition["partition_index"], partition["error_code"]
                        return f"{topic['name']}-{index} has error {code} in Metadata"
            return ""

        self._until(SETTLE_SECONDS_MAX, missing)
        history = self._history
        found = {
            uuid.UUID(str(topic["topic_id"])): topic
            for topic in self._metadata()["topics"]
            if not topic["is_internal"]
        }
        for topic_id, told in found.items():
            self._adopt(topic_id, told)
        for topic in list(history.topics.values()):
            if topic.topic_id in found:
                continue
            if topic.is_living:
                history.problem(f"topic {topic.name} ({topic.topic_id}) is gone, deleted by nobody")
        history.creations.clear()

    def _adopt(self, topic_id: uuid.UUID, told: dict[str, Any]) -> None:
        """Hold a topic that is there against what is known; or get to know it."""
        history, name = self._history, told["name"]
        topic = history.topics.get(topic_id)
        if topic is None:
            creation = history.creations.pop(name, None)
            if creation is None:
                history.problem(f"topic {name} ({topic_id}) was made by nobody")
                return
            creation.call.answer(Verdict.OK)
            topic = history.topics[topic_id] = creation.topic(topic_id)
        elif topic.is_gone:
            history.problem(f"topic {name} ({topic_id}) was deleted, and is there")
            return
        count = len(told["partitions"])
        least, most = history.partition_bounds(topic)
        if not least <= count <= most:
            history.problem(f"{name} ({topic_id}) has {count} partitions, not {least} to {most}")
        topic.partition_count = count

    def _look_at_configs(self, topic: Topic) -> None:
        expected: dict[str, str] = dict(topic.configs)
        in_doubt: set[str] = {"internal.segment.bytes"}
        for one in self._history.altered:
            if topic.is_meant(one):
                expected |= one.configs
                in_doubt -= one.configs.keys() - {"internal.segment.bytes"}
            elif topic.may_be_meant(one):
                in_doubt |= one.configs.keys()
        resource = {"resource_type": TOPIC, "resource_name": topic.name, "configuration_keys": None}
        answer = self.call(
            "describe_configs",
            4,
            resources=[resource],
            include_synonyms=False,
            include_documentation=False,
        )["results"][0]
        found = {
            entry["name"]: entry["value"]
            for entry in answer["configs"]
            if entry["config_source"] == TOPIC_SOURCE
        }
        for key in (expected.keys() | found.keys()) - in_doubt:
            if expected.get(key) != found.get(key):
                text = f"{key} is {found.get(key)}, set was {expected.get(key)}"
                self._history.problem(f"{topic.name} ({topic.topic_id}): {text}")

    # -- records ------------------------------------------------------------------------------

    def _look_at_partition(self, topic: Topic, partition: int) -> None:
        def open_transactions() -> str:
            stable, end = (self._offset(topic, partition, -1, isolation=level) for level in (1, 0))
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            return "" if stable == end else f"{where}: last stable offset {stable}, end {end}"

        try:
            self._until(SETTLE_SECONDS_MAX, open_transactions)
            end = self._offset(topic, partition, -1)
            visible, _ = self._read(topic, partition, end, isolation=1)
            records, controls = self._read(topic, partition, end, isolation=0)
            start = self._offset(topic, partition, -2)
        except NotServed as error:
            self._history.problem(str(error))
            return
        there = {one.offset for one in records}  # Some may have been compacted in between.
        seen = {one.offset for one in visible if one.offset in there}
        observed = Observation(start, end, records, controls, seen, time.time())
        judge = PartitionJudge(self._history, topic, partition, observed)
        with self._history.lock:
            for problem in judge.judge():
                self._history.problem(problem)
        self.checked += judge.checked

    def _offset(self, topic: Topic, partition: int, timestamp: int, *, isolation: int = 0) -> int:
        asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        answer = self.call(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": topic.name, "partitions": [asked]}],
        )["topics"][0]["partitions"][0]
        if answer["error_code"]:
            code = answer["error_code"]
            raise NotServed(f"ListOffsets {topic.name}-{partition}: error {code}")
        return int(answer["offset"])

    def _read(
        self, topic: Topic, partition: int, end: int, *, isolation: int
    ) -> tuple[list[Found], list[int]]:
        """Read all from the log start to ``end``."""
        records: list[Found] = []
        controls: list[int] = []
        offset = self._offset(topic, partition, -2)
        while offset < end:
            answer = self._fetch(topic.topic_id, partition, offset, isolation)
            if answer["error_code"] == OFFSET_OUT_OF_RANGE:
                start = self._offset(topic, partition, -2)
                if start > offset:  # Retention was faster.
                    offset = start
                    continue
            where = f"{topic.name}-{partition} ({topic.topic_id})@{offset}"
            if answer["error_code"]:
                raise NotServed(f"Fetch {where}: error {answer['error_code']}")
            read = parse(answer["records"])
            if not read:
                start = self._offset(topic, partition, -2)
                if start > offset:
                    offset = start
                    continue
                raise NotServed(f"Fetch {where}: nothing, the log is [{start}, {end})")
            aborted = [
                (one["first_offset"], one["producer_id"])
                for one in answer["aborted_transactions"] or ()
            ]
            found = [one for each in read for one in each.records]
            if isolation:
                found = committed(read, aborted)
            records += [one for one in found if one.offset >= offset]
            for each in read:
                if each.is_control:
                    controls += range(each.base_offset, each.end_offset)
            offset = max(offset + 1, read[-1].end_offset)
        return records, controls

    def _fetch(
        self, topic_id: uuid.UUID, partition: int, offset: int, isolation: int
    ) -> dict[str, Any]:
        one = {"partition": partition, "fetch_offset": offset, "current_leader_epoch": -1}
        one |= {"partition_max_bytes": FETCH_BYTES} | NO_EPOCH
        answer = self.call(
            "fetch",
            13,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": [one]}],
        )
        return dict(answer["responses"][0]["partitions"][0])

    # -- the rest -----------------------------------------------------------------------------

    def _look_at_dead(self) -> None:
        gone = [topic for topic in self._history.topics.values() if topic.is_gone]
        for topic in gone[-DEAD_ASKED:]:
            answer = self._fetch(topic.topic_id, 0, 0, 0)
            if answer["error_code"] not in NO_SUCH_TOPIC or answer["records"]:
                text = f"the dead topic {topic.name} ({topic.topic_id}) answers {answer}"
                self._history.problem(text[:500])

    def _look_at_commits(self) -> None:
        history = self._history
        groups = {group for group, _, _ in history.commits}
        living = {topic.topic_id: topic for topic in history.living()}
        for group in sorted(groups):
            if not living:
                return
            asked = [
                {"topic_id": one.topic_id, "partition_indexes": list(range(one.partition_count))}
                for one in living.values()
            ]
            named = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": asked}
            answer: dict[str, Any] = {}

            def ask(named: dict[str, Any] = named, answer: dict[str, Any] = answer) -> str:
                answer |= self.call("offset_fetch", 10, groups=[named], require_stable=False)
                code = answer["groups"][0]["error_code"]
                return f"OffsetFetch of {named['group_id']}: error {code}" if code else ""

            self._until(SERVICE_SECONDS_MAX, ask)
            for told in answer["groups"][0]["topics"]:
                topic = living[told["topic_id"]]
                for one in told["partitions"]:
                    place = (group, topic.topic_id, one["partition_index"])
                    where = f"{group} of {topic.name}-{place[2]} ({topic.topic_id})"
                    if one["error_code"]:
                        history.problem(f"{where}: error {one['error_code']}")
                        continue
                    commits = history.commits.get(place, ())
                    for problem in judge_commits(where, commits, one["committed_offset"]):
                        history.problem(problem)

    def _look_at_directories(self) -> None:
        for one in self.call("describe_log_dirs", 4, topics=None)["results"]:
            if one["error_code"]:
                self._history.problem(f"{one['log_dir']}: error {one['error_code']}")
