"""Consumers: they read by topic id, from the earliest offset on, all the time, and commit offsets.

What a consumer got is written down as seen: it has to stay. What it must never get is told at once.
"""

import time
import uuid
from typing import Any

from tests.campaigns.administering.clients import NO_SUCH_TOPIC, Client, Service
from tests.campaigns.administering.history import (
    BY_NAME,
    Call,
    Commit,
    History,
    Outcome,
    Topic,
    Verdict,
)
from tests.campaigns.administering.records import Found, committed, parse

READ_COMMITTED = 1
OFFSET_OUT_OF_RANGE = 1
PARTITIONS_AT_ONCE = 6

Place = tuple[uuid.UUID, int]


class Reader(Client):
    """A consumer without a group's assignment that commits for a group."""

    def __init__(
        self, service: Service, history: History, seed: str, *, group: str, is_committed: bool
    ) -> None:
        super().__init__(service, history, seed)
        self._group = group
        self._is_committed = is_committed
        self._positions: dict[Place, int] = {}

    def step(self) -> None:
        """Read a bit; commit now and then; begin anew now and then."""
        topics = {topic.topic_id: topic for topic in self.history.living()}
        if self.random.random() < 0.05:
            self._positions.clear()
        places = [
            (topic.topic_id, partition)
            for topic in topics.values()
            for partition in range(topic.partition_count)
        ]
        if not places:
            time.sleep(0.02)
            return
        self._read(topics, self.random.sample(places, min(len(places), PARTITIONS_AT_ONCE)))
        if self.random.random() < 0.3:
            self._commit(topics, self.random.choice(places))
        time.sleep(0.02)

    def _read(self, topics: dict[uuid.UUID, Topic], places: list[Place]) -> None:
        asked = []
        for topic_id, partition in places:
            position = self._positions.get((topic_id, partition))
            if position is None:
                position = self._earliest(topics[topic_id], partition)
            self._positions[topic_id, partition] = position
            one = {"partition": partition, "fetch_offset": position}
            one |= {"partition_max_bytes": 1 << 16, "current_leader_epoch": -1}
            asked.append({"topic_id": topic_id, "partitions": [one | NO_EPOCH]})
        answer = self.call(
            "fetch",
            13,
            replica_id=-1,
            max_wait=50,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(self._is_committed),
            session_id=0,
            session_epoch=-1,
            topics=asked,
        )
        for topic in answer["responses"]:
            for partition in topic["partitions"]:
                self._take(topics[topic["topic_id"]], partition)

    def _earliest(self, topic: Topic, partition: int) -> int:
        ((code, offset),) = self.wire.list_offsets(topic.name, [partition], -2)
        return 0 if code else offset

    def _take(self, topic: Topic, answer: dict[str, Any]) -> None:
        partition = answer["partition_index"]
        place = (topic.topic_id, partition)
        where = f"{self.name}: {topic.name}-{partition} ({topic.topic_id})"
        if answer["error_code"]:
            self._positions.pop(place, None)
            if answer["error_code"] not in {OFFSET_OUT_OF_RANGE, *NO_SUCH_TOPIC}:
                self.history.count(f"fetch: error {answer['error_code']}")
            return
        read = parse(answer["records"])
        aborted = [
            (one["first_offset"], one["producer_id"])
            for one in answer["aborted_transactions"] or ()
        ]
        found = [one for each in read for one in each.records]
        if self._is_committed:
            found = committed(read, aborted)
        position = self._positions[place]
        before = -1
        with self.history.lock:
            state = topic.partitions[partition]
            for one in found:
                if one.offset < position:
                    continue
                if one.offset <= before:
                    self.history.problem(f"{where}: offset {one.offset} follows {before}")
                before = one.offset
                self._see(where, topic, one)
                if state.seen.setdefault(one.offset, one.record) != one.record:
                    was = state.seen[one.offset]
                    text = f"{where}: {one.record} at {one.offset}, where {was} was seen"
                    self.history.problem(text)
        if read:
            self._positions[place] = max(position, read[-1].end_offset)

    def _see(self, where: str, topic: Topic, one: Found) -> None:
        if one.topic_id not in (topic.topic_id, BY_NAME):
            self.history.problem(f"{where}: {one.record} is of the dead topic {one.topic_id}")
        if not one.is_whole:
            self.history.problem(f"{where}: {one.record} at {one.offset} is altered")
        batch = self.history.sent.get(one.record)
        if batch is None or batch.transaction is None or not self._is_committed:
            return
        transaction = batch.transaction
        if transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            how = transaction.outcome.value
            self.history.problem(f"{where}: {one.record} of {transaction.name}, {how}, is visible")
        elif transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.COMMITTED

    def _commit(self, topics: dict[uuid.UUID, Topic], place: Place) -> None:
        topic_id, partition = place
        offset = self._positions.get(place, 0)
        commit = Commit(offset, Call())
        with self.history.lock:
            self.history.commits[self._group, topic_id, partition].append(commit)
        one = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = self.call(
            "offset_commit",
            10,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"topic_id": topic_id, "partitions": [one]}],
        )
        code = answer["topics"][0]["partitions"][0]["error_code"]
        if code == 0:
            commit.call.answer(Verdict.OK)
            self.history.count("offsets committed")
        else:
            self.history.count(f"commit: error {code}")


NO_EPOCH = {"last_fetched_epoch": -1, "log_start_offset": -1}
