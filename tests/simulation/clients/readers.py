"""Consumers without a group's assignment: they read by topic id, and commit offsets."""

import uuid

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.campaigns.administering.history import BY_NAME, Call, Commit, Outcome, Verdict
from tests.campaigns.administering.records import committed, parse
from tests.simulation.clients.base import NO_SUCH_TOPIC, NOT_THE_COORDINATOR, Client

EARLIEST, LATEST = -2, -1
GROUP = 0
"""The type of coordinator."""
OFFSET_OUT_OF_RANGE = 1
PARTITIONS_AT_ONCE = 6
FEW_BYTES = (1, 300, 1500)
FEW_CHANCE = 0.15
"""Of a Fetch, that it is for few bytes."""
NOTHING_COMMITTED = -1
GROUP_ID_NOT_FOUND = 69


def commit_request(group, place, offset, *, member_id="", epoch=-1):
    """Return the request to commit one offset; ``place``: a topic's id and a partition."""
    topic_id, partition = place
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(topic_id=topic_id.bytes, partitions=[one])],
    )


async def list_offset(client, topic, partition, timestamp, isolation=0):
    """Return a code and an offset."""
    one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic.name, partitions=[one])],
    )
    answer = await client.call(request, ListOffsetsResponse)
    told = answer.topics[0].partitions[0]
    return told.error_code, told.offset


def fetch_request(wanted, *, isolation, wait_ms, max_bytes=1 << 20, part_bytes=1 << 16):
    """Return a Fetch without a session; ``wanted``: (topic id, partition, offset) of each."""
    topics = [
        FetchTopic(
            topic_id=topic_id.bytes,
            partitions=[
                FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=part_bytes
                )
            ],
        )
        for topic_id, partition, offset in wanted
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=topics,
    )


def first_size(records):
    """Return the size of the first batch."""
    return int.from_bytes(records[8:12], "big") + 12


def read_of(told):
    """Return the batches and the aborted transactions of one partition of an answer."""
    aborted = [(one.first_offset, one.producer_id) for one in told.aborted_transactions or ()]
    records = None if told.records is None else bytes(told.records)
    return parse(records), aborted


class Reader(Client):
    """A consumer that commits for a group whose members nobody counts."""

    kind = "reader"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._group = f"readers-{number}"
        self._is_committed = self.random.random() < 0.6
        self._positions = {}

    async def step(self):
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
            return
        count = min(len(places), PARTITIONS_AT_ONCE)
        await self._read(topics, self.random.sample(places, count))
        if self.random.random() < 0.3:
            await self._commit(topics, self.random.choice(places))
        elif self.random.random() < 0.03:
            await self._forget(self.random.choice(list(topics.values())))

    async def _forget(self, topic):
        """Have the group's offsets of a topic deleted: by its name, whoever has that then."""
        asked = []
        for partition in range(topic.partition_count):
            commit = Commit(NOTHING_COMMITTED, Call())
            commits = self.history.commits[self._group, topic.topic_id, partition]
            commits.append(commit)
            asked.append((commits, commit))
        partitions = [
            OffsetDeleteRequestPartition(partition_index=index) for index in range(len(asked))
        ]
        request = OffsetDeleteRequest(
            group_id=self._group,
            topics=[OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)],
        )
        answer = await self.call(request, OffsetDeleteResponse)
        self.world.coverage.answered("OffsetDelete", answer.error_code)
        codes = {}
        if not answer.error_code:
            codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
        for index, (commits, commit) in enumerate(asked):
            if codes.get(index, answer.error_code) == 0:
                commit.call.answer(Verdict.OK)
            elif answer.error_code == GROUP_ID_NOT_FOUND:
                commits.remove(commit)

    async def _read(self, topics, places):
        wanted = []
        for place in places:
            position = self._positions.get(place)
            if position is None:
                code, offset = await list_offset(self, topics[place[0]], place[1], EARLIEST)
                position = 0 if code else offset
            self._positions[place] = position
            wanted.append((*place, position))
        few = {}
        if self.random.random() < FEW_CHANCE:
            few = {
                "max_bytes": self.random.choice((*FEW_BYTES, 1 << 20)),
                "part_bytes": self.random.choice(FEW_BYTES),
            }
        request = fetch_request(
            wanted,
            isolation=int(self._is_committed),
            wait_ms=self.random.choice([0, 50, 500]),
            **few,
        )
        answer = await self.call(request, FetchResponse)
        if few:
            self._judge_size(answer, **few)
        for topic in answer.responses:
            for told in topic.partitions:
                self._take(topics[uuid.UUID(bytes=topic.topic_id)], told)

    def _judge_size(self, answer, max_bytes, part_bytes):
        """An answer keeps its request's limits, but for the batch that was read first (KIP-74).

        That need not be the first one of the answer, which goes by topics.
        """
        sizes = [
            (len(told.records), first_size(bytes(told.records)))
            for topic in answer.responses
            for told in topic.partitions
            if told.records
        ]
        total = sum(size for size, _ in sizes)
        large = [(size, first) for size, first in sizes if size > min(part_bytes, max_bytes)]
        is_one_batch = all(size == first for size, first in large)
        if len(large) > 1 or not is_one_batch or (total > max_bytes and len(sizes) > 1):
            text = f"{sizes} bytes for limits of {max_bytes} and {part_bytes}"
            self.world.problem(f"{self.name}: Fetch: {text}")

    def _take(self, topic, told):
        partition = told.partition_index
        place = (topic.topic_id, partition)
        where = f"{self.name}: {topic.name}-{partition} ({topic.topic_id})"
        self.world.coverage.answered("Fetch", told.error_code)
        if told.error_code:
            self._positions.pop(place, None)
            if told.error_code not in {OFFSET_OUT_OF_RANGE, *NO_SUCH_TOPIC}:
                self.history.count(f"fetch: error {told.error_code}")
            return
        read, aborted = read_of(told)
        found = [one for each in read for one in each.records]
        if self._is_committed:
            found = committed(read, aborted)
        position = self._positions[place]
        state = topic.partitions[partition]
        before = -1
        for one in found:
            if one.offset < position:
                continue
            if one.offset <= before:
                self.world.problem(f"{where}: offset {one.offset} follows {before}")
            before = one.offset
            self._see(where, topic, one)
            if state.seen.setdefault(one.offset, one.record) != one.record:
                was = state.seen[one.offset]
                self.world.problem(f"{where}: {one.record} at {one.offset}, where {was} was seen")
        end = read[-1].end_offset if read else position
        bound = told.last_stable_offset if self._is_committed else told.high_watermark
        if found and found[-1].offset >= bound:
            self.world.problem(f"{where}: {found[-1].offset} was told, the bound is {bound}")
        self._positions[place] = max(position, end)

    def _see(self, where, topic, one):
        if one.topic_id not in (topic.topic_id, BY_NAME):
            self.world.problem(f"{where}: {one.record} is of the dead topic {one.topic_id}")
        if not one.is_whole:
            self.world.problem(f"{where}: {one.record} at {one.offset} is altered")
        batch = self.history.sent.get(one.record)
        if batch is None or batch.transaction is None or not self._is_committed:
            return
        transaction = batch.transaction
        if transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            how = transaction.outcome.value
            self.world.problem(f"{where}: {one.record} of {transaction.name}, {how}, is visible")
        elif transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.COMMITTED

    async def _commit(self, topics, place):
        topic_id, partition = place
        offset = self._positions.get(place, 0)
        commit = Commit(offset, Call())
        self.history.commits[self._group, topic_id, partition].append(commit)
        request = commit_request(self._group, place, offset)
        answer = await self.call(request, OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        self.world.coverage.answered("OffsetCommit", code)
        if code == 0:
            commit.call.answer(Verdict.OK)
            self.history.count("offsets committed")
        elif code in NOT_THE_COORDINATOR:
            await self.find_coordinator(GROUP, self._group)
