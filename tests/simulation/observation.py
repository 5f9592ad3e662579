"""Looks at a quiet node by its clients' way, and has all of it judged.

The judge is the campaign's (``tests/campaigns/administering/judge.py``): what was acknowledged or
seen stands where it stood, unless somebody asked for its end.
"""

import uuid

from ottla.client.wire.errors import ConnectionFailed
from ottla.protocol.messages.create_topics import CreateTopicsResponse
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.campaigns.administering.administrators import TOPIC
from tests.campaigns.administering.history import Verdict
from tests.campaigns.administering.judge import Observation, PartitionJudge, judge_commits
from tests.campaigns.administering.records import committed
from tests.simulation.clients.administrators import create_request
from tests.simulation.clients.base import NO_SUCH_TOPIC, Client
from tests.simulation.clients.readers import EARLIEST, LATEST, fetch_request, list_offset, read_of
from tests.simulation.stamps import misstamped
from tests.simulation.upkeep import Upkeep

SERVICE_SECONDS_MAX = 30.0
"""Until a node whose doors are open is in Metadata and coordinates."""
SETTLE_SECONDS_MAX = 90.0
"""Until partitions are led and transactions that were ended, or forgotten, are decided."""
EMPTY_MAX = 20
"""Fetches of half a second that may bring nothing while a log moves to another directory."""
TOPIC_SOURCE = 1
EXISTS = 36
FETCH_BYTES = 8 << 20
DEAD_ASKED = 3
CONSUMER_SESSION_SECONDS = 45.0
"""After this time of silence the coordinator gives up a member of a KIP-848 group."""
FORGETS_SECONDS = 10.0
"""By so much less than its option says an offset may be kept, as clients see it."""


class NotServed(Exception):
    """The node does not do what it must."""


class Observer(Client):
    """Looks when it is told to; never a step of its own."""

    kind = "observer"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._timeout_ms = 60_000
        self.checked = 0
        self._upkeep = Upkeep(self)

    async def ask(self, request, answer):
        """Ask. Raises NotServed when there is no answer."""
        try:
            return await self.call(request, answer)
        except (OSError, ConnectionFailed):
            self.hang_up()
        try:  # A connection of before the last fault may have gone unnoticed.
            return await self.call(request, answer)
        except (OSError, ConnectionFailed) as error:
            self.hang_up()
            name = type(request).__name__
            raise NotServed(f"{name}: {type(error).__name__} {error}") from error

    async def until(self, seconds, ask):
        begin = self.world.loop.now
        while True:
            missing = await ask()
            waited = self.world.loop.now - begin
            if not missing:
                return
            if waited > seconds:
                raise NotServed(f"after {waited:.0f} s: {missing}")
            await self.world.sleep(0.3)

    async def look_at_all(self):
        """Look at service, topics, options, records and committed offsets."""
        try:
            await self.until(SERVICE_SECONDS_MAX, self._missing_service)
            await self._resolve_doubts()
            await self._look_at_topics()
            for topic in self.history.living():
                await self._look_at_configs(topic)
                for partition in range(topic.partition_count):
                    await self._look_at_partition(topic, partition)
            await self._look_at_dead()
            await self._look_at_commits()
        except NotServed as error:
            self.world.problem(f"not served: {error}")

    @property
    def _skew_seconds(self):
        _, ahead, behind = self.world.nemesis.clock_bounds
        return ahead + behind

    async def _missing_service(self):
        answer = await self._metadata()
        if not answer.brokers or answer.controller_id < 0:
            return f"Metadata has brokers {answer.brokers}, controller {answer.controller_id}"
        for key_type, key in ((0, "group-0"), (1, "transactional-0")):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            found = await self.ask(request, FindCoordinatorResponse)
            code = found.coordinators[0].error_code
            if code:
                return f"FindCoordinator of {key}: error {code}"
        return ""

    async def _metadata(self):
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return await self.ask(request, MetadataResponse)

    async def _resolve_doubts(self):
        """Ask again for what was not answered: what is still under way comes to its end by that."""
        history = self.history
        for topic in history.topics.values():
            if topic.deletion is not None and not topic.is_gone:
                await self.until(SETTLE_SECONDS_MAX, lambda topic=topic: self._delete(topic))
                topic.deletion.answer(Verdict.OK)
        for creation in history.creations.values():
            await self.until(SETTLE_SECONDS_MAX, lambda one=creation: self._create(one))

    async def _delete(self, topic):
        asked = DeleteTopicState(name=None, topic_id=topic.topic_id.bytes)
        request = DeleteTopicsRequest(topics=[asked], timeout_ms=30_000)
        code = (await self.ask(request, DeleteTopicsResponse)).responses[0].error_code
        return "" if code in (0, *NO_SUCH_TOPIC) else f"DeleteTopics {topic.name}: error {code}"

    async def _create(self, creation):
        answer = await self.ask(create_request(creation), CreateTopicsResponse)
        code = answer.topics[0].error_code
        return "" if code in (0, EXISTS) else f"CreateTopics {creation.name}: error {code}"

    async def _look_at_topics(self):
        async def missing():
            for topic in (await self._metadata()).topics:
                for partition in topic.partitions:
                    if topic.error_code or partition.error_code:
                        where = f"{topic.name}-{partition.partition_index}"
                        return f"{where} has error {partition.error_code} in Metadata"
            return ""

        await self.until(SETTLE_SECONDS_MAX, missing)
        found = {
            uuid.UUID(bytes=topic.topic_id): topic
            for topic in (await self._metadata()).topics
            if not topic.is_internal
        }
        for topic_id, told in found.items():
            self._adopt(topic_id, told)
        for topic in list(self.history.topics.values()):
            if topic.topic_id not in found and topic.is_living:
                self.world.problem(f"topic {topic.name} ({topic.topic_id}) is gone by itself")
        self.history.creations.clear()

    def _adopt(self, topic_id, told):
        """Hold a topic that is there against what is known; or get to know it."""
        history, name = self.history, told.name
        topic = history.topics.get(topic_id)
        if topic is None:
            creation = history.creations.pop(name, None)
            if creation is None and self.world.mix.clients.get("hostile"):
                return  # A frame with other bytes in it may well ask for a topic.
            if creation is None:
                self.world.problem(f"topic {name} ({topic_id}) was made by nobody")
                return
            creation.call.answer(Verdict.OK)
            topic = history.topics[topic_id] = creation.topic(topic_id)
        elif topic.is_gone:
            self.world.problem(f"topic {name} ({topic_id}) was deleted, and is there")
            return
        count = len(told.partitions)
        least, most = history.partition_bounds(topic)
        if not least <= count <= most:
            self.world.problem(f"{name} ({topic_id}): {count} partitions, not {least} to {most}")
        topic.partition_count = count

    async def _look_at_configs(self, topic):
        allowed = self.allowed_configs(topic)
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic.name, configuration_keys=None
        )
        answer = await self.ask(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
        )
        found = {
            entry.name: entry.value
            for entry in answer.results[0].configs
            if entry.config_source == TOPIC_SOURCE
        }
        for key in sorted(allowed.keys() | found.keys()):
            values = allowed.get(key, {None})
            if found.get(key) not in values and key != "internal.segment.bytes":
                text = f"{key} is {found.get(key)}, set was {sorted(map(str, values))}"
                self.world.problem(f"{topic.name} ({topic.topic_id}): {text}")

    def allowed_configs(self, topic):
        """Return by option the values that it may have: what was asked side by side has no order.

        None among them: it may be unset.
        """
        allowed = {key: {value} for key, value in topic.configs.items()}
        possible = [one for one in self.history.altered if topic.may_be_meant(one)]
        for key in sorted({key for one in possible for key in one.configs}):
            asked = [one for one in possible if key in one.configs]
            surely = [one.call.sent for one in asked if topic.is_meant(one)]
            last = [one for one in asked if all(sent <= one.call.over for sent in surely)]
            values = {one.configs[key] for one in last}
            allowed[key] = values if surely else values | allowed.get(key, {None})
        return allowed

    # -- records -------------------------------------------------------------------------------

    async def _look_at_partition(self, topic, partition):
        async def open_transactions():
            stable, end = [
                await self.offset(topic, partition, LATEST, isolation=level) for level in (1, 0)
            ]
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            return "" if stable == end else f"{where}: last stable offset {stable}, end {end}"

        try:
            await self.until(SETTLE_SECONDS_MAX, open_transactions)
            end = await self.offset(topic, partition, LATEST)
            visible, _ = await self._read(topic, partition, end, isolation=1)
            records, controls = await self._read(topic, partition, end, isolation=0)
            start = await self._durable_start(topic, partition)
        except NotServed as error:
            self.world.problem(f"not served: {error}")
            return
        there = {one.offset for one in records}  # Some may have been compacted in between.
        seen = {one.offset for one in visible if one.offset in there}
        clock = self.world.nemesis.clock_bounds
        observed = Observation(start, end, records, controls, seen, *clock)
        judge = PartitionJudge(self.history, topic, partition, observed)
        for problem in judge.judge():
            self.world.problem(problem)
        self.checked += judge.checked
        try:
            await self._look_for_returned(topic, partition, judge.returned())
            await self._upkeep.look(topic, partition, records)
        except NotServed as error:
            self.world.problem(f"not served: {error}")

    async def _look_for_returned(self, topic, partition, returned):
        """Tell of old records that are there without the newer ones of their keys, still."""
        if not returned:
            return
        end = await self.offset(topic, partition, LATEST)
        visible, _ = await self._read(topic, partition, end, isolation=1)
        there = {one.offset for one in visible}
        where = f"{topic.name}-{partition} ({topic.topic_id})"
        for offset, newer in sorted(returned.items()):
            if offset in there and newer not in there:
                self.world.problem(f"{where}: came back: {offset}, its key has gone at {newer}")
                return

    async def offset(self, topic, partition, timestamp, *, isolation=0):
        told = None

        async def ask():
            nonlocal told
            try:
                told = await list_offset(self, topic, partition, timestamp, isolation)
            except (OSError, ConnectionFailed) as error:
                self.hang_up()
                return f"ListOffsets: {error}"
            return f"error {told[0]}" if told[0] else ""

        await self.until(SERVICE_SECONDS_MAX, ask)
        return told[1]

    async def _durable_start(self, topic, partition):
        """Return the log start offset, when a checkpoint of it is durable: it may not fall then.

        DeleteRecords, and retention, hide records before they write it.
        """
        start = 0

        async def missing():
            nonlocal start
            start = await self.offset(topic, partition, EARLIEST)
            durable = self.world.device.start_offset(topic.topic_id, partition)
            if not start or (durable is not None and durable >= start):
                return ""
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            return f"{where}: the log start is {start}, on the device it is {durable}"

        await self.until(SETTLE_SECONDS_MAX, missing)
        return start

    async def _read(self, topic, partition, end, *, isolation):
        """Read all from the log start to ``end``."""
        records, controls = [], []
        offset = await self.offset(topic, partition, EARLIEST)
        empty_count = 0
        while offset < end:
            request = fetch_request(
                [(topic.topic_id, partition, offset)],
                isolation=isolation,
                wait_ms=500,
                max_bytes=FETCH_BYTES,
                part_bytes=FETCH_BYTES,
            )
            told = (await self.ask(request, FetchResponse)).responses[0].partitions[0]
            where = f"{topic.name}-{partition} ({topic.topic_id})@{offset}"
            if told.error_code not in (0, 1):
                raise NotServed(f"Fetch {where}: error {told.error_code}")
            read, aborted = ([], []) if told.error_code else read_of(told)
            for wrong in misstamped(self.history, topic, read, self._skew_seconds):
                self.world.problem(f"{topic.name}-{partition} ({topic.topic_id}): {wrong}")
            if not read:
                start = await self.offset(topic, partition, EARLIEST)
                if start > offset:  # Retention was faster.
                    offset = start
                    continue
                empty_count += 1
                if empty_count < EMPTY_MAX:  # Its log moves to another directory just now.
                    continue
                raise NotServed(f"Fetch {where}: nothing, the log is [{start}, {end})")
            found = [one for each in read for one in each.records]
            if isolation:
                found = committed(read, aborted)
            records += [one for one in found if one.offset >= offset]
            for each in read:
                if each.is_control:
                    controls += range(each.base_offset, each.end_offset)
            offset = max(offset + 1, read[-1].end_offset)
        return records, controls

    # -- the rest ------------------------------------------------------------------------------

    async def _look_at_dead(self):
        gone = [topic for topic in self.history.topics.values() if topic.is_gone]
        for topic in gone[-DEAD_ASKED:]:
            request = fetch_request([(topic.topic_id, 0, 0)], isolation=0, wait_ms=0)
            told = (await self.ask(request, FetchResponse)).responses[0].partitions[0]
            if told.error_code not in NO_SUCH_TOPIC or told.records:
                text = f"the dead topic {topic.name} ({topic.topic_id}): {told.error_code}"
                self.world.problem(text)

    def _may_be_forgotten(self, group, commits):
        """Tell whether offsets may be gone by ``offsets.retention.minutes``.

        Not those that were committed since the group has members without a break, who read all.
        Those of a KIP-848 group go by their own age, as soon as it has none.
        """
        minutes = self.world.mix.broker_options.get("offsets.retention.minutes")
        if minutes is None:
            return False
        now, wall = self.world.loop.now, self.world.seconds()
        age = min((wall - one.call.sent for one in commits if one.call.is_ok), default=0.0)
        kept_seconds = float(minutes) * 60 - self._skew_seconds - FORGETS_SECONDS
        if age <= kept_seconds:
            return False
        since, last = self.world.lively.get(group, (now, now))
        without_seconds = now - last
        if group.startswith("consumer"):
            return age >= now - since or without_seconds > CONSUMER_SESSION_SECONDS
        return age >= now - since or without_seconds > kept_seconds

    async def _look_at_commits(self):
        history = self.history
        living = {topic.topic_id: topic for topic in history.living()}
        for group in sorted({group for group, _, _ in history.commits}):
            if not living:
                return
            await self.until(SERVICE_SECONDS_MAX, lambda one=group: self._commits(one, living))

    async def _commits(self, group, living):
        asked = [
            OffsetFetchRequestTopics(
                topic_id=one.topic_id.bytes, partition_indexes=list(range(one.partition_count))
            )
            for one in living.values()
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)])
        answer = (await self.ask(request, OffsetFetchResponse)).groups[0]
        if answer.error_code:
            return f"OffsetFetch of {group}: error {answer.error_code}"
        for told in answer.topics:
            topic = living[uuid.UUID(bytes=told.topic_id)]
            for one in told.partitions:
                place = (group, topic.topic_id, one.partition_index)
                where = f"{group} of {topic.name}-{place[2]} ({topic.topic_id})"
                if one.error_code:
                    self.world.problem(f"{where}: error {one.error_code}")
                    continue
                commits = self.history.commits.get(place, ())
                if one.committed_offset < 0 and self._may_be_forgotten(group, commits):
                    continue
                for problem in judge_commits(where, commits, one.committed_offset):
                    self.world.problem(problem)
        return ""
