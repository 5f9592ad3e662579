"""Clients that read of several nodes what others wrote, and commit how far they are."""

import uuid

from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.offset_commit import OffsetCommitResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.campaigns.administering.records import committed
from tests.simulation.clients.readers import commit_request, fetch_request, read_of
from tests.simulation.cluster.clients import COMES_BACK, GROUP, Client

LATEST, EARLIEST = -1, -2
OUT_OF_RANGE = 1


class Reader(Client):
    """Reads one partition at a time; it never sees what is gone later."""

    kind = "reader"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._is_committed = self.random.random() < 0.5
        self._positions = {}

    async def step(self):
        topic, partition = self.choose()
        if self.random.random() < 0.2:
            await self._ask_for_end(topic, partition)
        if self.random.random() < 0.03:
            self._positions.clear()
        await self._read(topic, partition)

    async def _ask_for_end(self, topic, partition):
        leader = await self.leader(topic, partition)
        before = self.ledger.place((topic.name, partition)).latest
        offset = await self.ask_for_offset(leader, topic, partition, LATEST)
        if offset is not None:
            self.ledger.told_latest((topic.name, partition), offset, before, self.name)

    async def _begin_anew(self, topic, partition):
        """Read on from where the log begins now."""
        leader = await self.leader(topic, partition)
        offset = await self.ask_for_offset(leader, topic, partition, EARLIEST)
        if offset is not None:
            self._positions[topic.name, partition] = offset

    async def _read(self, topic, partition):
        where = topic.name, partition
        position = self._positions.get(where, 0)
        leader = await self.leader(topic, partition)
        request = fetch_request(
            [(topic.topic_id, partition, position)],
            isolation=int(self._is_committed),
            wait_ms=self.random.choice([0, 100, 500]),
        )
        answer = await self.ask(leader, request, FetchResponse)
        for each in answer.responses:
            assert uuid.UUID(bytes=each.topic_id) == topic.topic_id
            for told in each.partitions:
                self._take(where, position, told)
                if told.error_code == OUT_OF_RANGE:
                    await self._begin_anew(topic, partition)

    def _take(self, where, position, told):
        self.ledger.counts[f"Fetch {told.error_code}"] += 1
        place = self.ledger.place(where)
        if told.error_code == OUT_OF_RANGE and not place.may_be_gone(position):
            self.world.problem(f"{self.name}: {where}: {position} was read to, and is out of range")
        if told.error_code:
            self.forget_leaders()
            return
        read, aborted = read_of(told)
        found = [one for each in read for one in each.records]
        for one in found:
            if one.offset >= told.high_watermark:
                text = f"{where}: {one.offset} was told, the bound is {told.high_watermark}"
                self.world.problem(text)
            self.ledger.saw(where, one, self.name)
        if self._is_committed:
            for one in committed(read, aborted):
                if one.offset >= position:
                    self.ledger.saw_committed(where, one, self.name)
        self._positions[where] = max(position, read[-1].end_offset if read else position)


class Committer(Client):
    """Commits rising offsets for a group of its own, and reads them back."""

    kind = "committer"

    def __init__(self, world, number):
        super().__init__(world, number)
        self.group = self.name
        self._offset = 0

    async def step(self):
        topic, partition = self.choose()
        number = await self.coordinator(GROUP, self.name)
        key = topic.name, partition
        promised, _ = self.ledger.commits.get((self.name, key), (-1, -1))
        if self.random.random() < 0.4:
            await self._look(number, topic, partition, promised)
            return
        self._offset += 1
        self.ledger.commits[self.name, key] = promised, self._offset
        request = commit_request(self.name, (topic.topic_id, partition), self._offset)
        answer = await self.ask(number, request, OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        self.ledger.counts[f"OffsetCommit {code}"] += 1
        if code == 0:
            self.ledger.commits[self.name, key] = self._offset, self._offset
        elif code not in COMES_BACK:
            self.world.problem(f"{self.name}: OffsetCommit: error {code}")

    async def look(self, topic, partition):
        """Read an offset back, for the judge."""
        number = await self.coordinator(GROUP, self.group)
        promised, _ = self.ledger.commits.get((self.group, (topic.name, partition)), (-1, -1))
        return await self._look(number, topic, partition, promised)

    async def _look(self, number, topic, partition, promised):
        wanted = OffsetFetchRequestTopics(
            topic_id=topic.topic_id.bytes, partition_indexes=[partition]
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])],
        )
        answer = (await self.ask(number, request, OffsetFetchResponse)).groups[0]
        self.ledger.counts[f"OffsetFetch {answer.error_code}"] += 1
        if answer.error_code:
            if answer.error_code not in COMES_BACK:
                self.world.problem(f"{self.name}: OffsetFetch: error {answer.error_code}")
            return False
        told = answer.topics[0].partitions[0]
        if told.error_code:
            return False
        key = self.group, (topic.name, partition)
        promised_now, asked = self.ledger.commits.get(key, (-1, -1))  # Others may have, meanwhile.
        if not promised <= told.committed_offset <= asked:
            self.world.problem(
                f"{self.name}: {topic.name}-{partition}: the committed offset is "
                f"{told.committed_offset}, {promised} was promised, {asked} asked for"
            )
        # What was shown may not go back.
        self.ledger.commits[key] = max(promised_now, told.committed_offset), asked
        return True
