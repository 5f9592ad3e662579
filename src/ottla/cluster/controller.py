"""Creates, grows and deletes topics: plans, commits to the metadata store, waits for the node.

Only this module writes topics. A topic becomes visible by one commit, that of its own key. The keys
of its partitions are written before that or with it, so a crash in between leaves only invisible
keys. A deleted topic leaves a mark until its logs are deleted, so a crash never brings it back. The
client is answered when this node serves what was created. Source: ADR 5; KIP-516, KIP-464.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from ottla.cluster.census import TopicCensus
from ottla.cluster.claims import Claims
from ottla.cluster.deleted_topics import add_to_mark, clear_mark
from ottla.cluster.in_time import Patience, each_in_time
from ottla.cluster.placement import Assignment
from ottla.cluster.topics import (
    NOT_TOPICS,
    NewPartitions,
    NewTopic,
    Placement,
    TopicPlan,
    first_state,
    given_configs,
    new_topic_id,
    plan_assignments,
    plan_more_partitions,
    topic_name_error,
)
from ottla.config.config import Config
from ottla.config.option import InvalidConfig
from ottla.env.rng import Rng
from ottla.env.tasks import begin_task
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import NodeId, TopicId
from ottla.metadata.answering import store_answers
from ottla.metadata.image import ImageFollower, TopicImage
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import (
    ABSENT,
    OPS_MAX,
    VALUE_BYTES_MAX,
    Delete,
    Guard,
    GuardFailed,
    MetadataStore,
    Op,
    Put,
    in_commits,
)
from ottla.metadata.values import (
    TopicValue,
    decode_topic,
    encode_config,
    encode_deleted,
    encode_name,
    encode_partition,
    encode_topic,
)
from ottla.pending import Pending, outcome_of

logger = logging.getLogger(__name__)

_IS_THERE = ErrorCode.TOPIC_ALREADY_EXISTS
Made = TypeVar("Made")
Take = Callable[[int], None]
"""Counts partitions before they are created or deleted, or checked for that. Raises KafkaError if
they must not be."""


def take_any(count: int) -> None:
    """Count none, and let all be done."""


class TopicOutcome(NamedTuple):
    """A topic that was created, or would be if the request were not to validate only."""

    topic_id: TopicId
    partition_count: int
    replication_factor: int
    config: Config | None
    """None: the caller did not ask for it."""


class Hosted(NamedTuple):
    """How far this node has carried out what its image says, by topic name."""

    node_id: NodeId
    done: Callable[[str], Pending[None]]
    """Returns a Pending that is done when the topic's directories match the image, durably."""
    has_directory_left: Callable[[str], bool]
    """Whether a directory of the deleted topic may still have its name."""


class Controller:
    """Serves the admin requests that create, grow and delete topics."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        rng: Rng,
        placement: Callable[[], Placement],
        check_config: Callable[[dict[str, str]], Config],
        partitions_max: int,
        may_delete: bool,
        hosted: "Hosted",
        internal_topics: Sequence[NewTopic] = (),
    ) -> None:
        """Build it; ``internal_topics``: how to create these when a client asks for them."""
        self.warn: Callable[[str], None] = logger.warning
        """Use: logs what clients may bring about as often as they like."""
        self._hosted = hosted
        self._node_id = hosted.node_id
        self._deleting: dict[TopicId, TopicImage | None] = {}
        """Use: topics that a client of this node deletes, as they were at last; None: still are."""
        self._store = store
        self._keys = keys
        self._follower = follower
        self._image = follower.image
        self._census = TopicCensus(follower.image)
        follower.add_listener(self._census.apply)
        follower.add_listener(lambda _, delta: self.carry_out_deletions(delta.topics_deleted))
        self._claims = Claims()
        self._rng = rng
        self._placement = placement
        self._check_config = check_config
        self._partitions_max = partitions_max
        self._may_delete = may_delete
        self._internal_topics = {topic.name: topic for topic in internal_topics}
        self._auto_creating: set[str] = set()

    # Create.

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        patience: Patience | None = None,
        configs_max: int | None = None,
        take: Take = take_any,
    ) -> Pending[list[TopicOutcome | KafkaError]]:
        """Create topics; the Pending gets one outcome per topic, in order.

        ``take`` counts the partitions of each that may be created, with ``validate_only``, too.
        ``validate_only``: check, but create nothing. ``patience``: see ``each_in_time``.
        ``configs_max``: how many outcomes hold the topic's config; None: all.
        """
        told = 0

        async def create(topic: NewTopic) -> TopicOutcome:
            nonlocal told
            made = await self._create(topic, validate_only, take)
            told += 1
            is_told = configs_max is None or told <= configs_max
            return made if is_told else made._replace(config=None)

        return each_in_time(topics, create, patience, first=self._catch_up)

    def auto_create(self, names: Sequence[str], take: Take = take_any) -> None:
        """Begin to create topics that a client asked for. Does not wait; failures are logged."""
        wanted = [
            self._internal_topics.get(name) or NewTopic(name)
            for name in names
            if name not in self._auto_creating
        ]
        if not wanted:
            return
        self._auto_creating.update(topic.name for topic in wanted)

        def done(created: Pending[list[TopicOutcome | KafkaError]]) -> None:
            self._auto_creating.difference_update(topic.name for topic in wanted)
            for topic, outcome in zip(wanted, created.value or (), strict=False):
                if isinstance(outcome, KafkaError) and outcome.code is not _IS_THERE:
                    self.warn(f"cannot create the topic {topic.name} asked for: {outcome}")

        self.create_topics(wanted, take=take).on_done(done)

    async def _create(self, topic: NewTopic, validate_only: bool, take: Take) -> TopicOutcome:
        if validate_only:
            plan, config = self._plan(topic)
            take(len(plan.assignments))
        else:
            async with self._claims.name(topic.name):
                plan, config = self._plan(topic)
                take(len(plan.assignments))
                with self._claims.partitions(plan.assignments):
                    await self._write_topic(plan)
            await outcome_of(self._hosted.done(plan.name))
        return TopicOutcome(
            topic_id=plan.topic_id,
            partition_count=len(plan.assignments),
            replication_factor=len(plan.assignments[0]),
            config=config,
        )

    def _plan(self, topic: NewTopic) -> tuple[TopicPlan, Config]:
        problem = topic_name_error(topic.name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic.name in NOT_TOPICS:  # A start would ignore its directories.
            why = f"Creation of internal topic {topic.name} is prohibited."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        image = self._image
        if topic.name in image.topics:
            why = f"Topic '{topic.name}' already exists."
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, why)
        twin = self._census.twin(topic.name)
        if twin is not None:
            why = f"Topic {topic.name} collides with existing topic: {twin}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        given = given_configs(topic)
        try:
            config = self._check_config(given)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        size_bytes = len(encode_config(given))
        if size_bytes > VALUE_BYTES_MAX:
            why = f"{size_bytes} bytes of configs; at most {VALUE_BYTES_MAX} can be kept"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        assignments = plan_assignments(topic, self._placement_now())
        self._check_room(len(assignments))
        return TopicPlan(topic.name, new_topic_id(self._rng), assignments, given), config

    def _placement_now(self) -> Placement:
        """Return where replicas may go, and who leads how many, with what is being written."""
        return self._placement()._replace(leads=self._census.leads + self._claims.leads)

    def _check_room(self, added: int) -> None:
        present = self._census.partition_count + self._claims.partition_count
        if present + added > self._partitions_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{present} partitions exist and {added} more are asked for; ottla.max.partitions "
                f"is {self._partitions_max}",
            )

    async def _write_topic(self, plan: TopicPlan) -> None:
        topic_key = self._keys.topic(plan.name)
        ops: list[Op] = [
            Put(topic_key, encode_topic(TopicValue(plan.topic_id, len(plan.assignments)))),
            Put(self._keys.topic_id(plan.topic_id), encode_name(plan.name)),
        ]
        if plan.configs:
            config_key = self._keys.config(ConfigType.TOPIC, plan.name)
            ops.append(Put(config_key, encode_config(plan.configs)))
        parts = self._partition_ops(plan.topic_id, 0, plan.assignments)
        try:
            await self._commit_last([Guard(topic_key, mod_rev=ABSENT)], parts, ops)
        except GuardFailed as error:
            why = f"Topic '{plan.name}' already exists."
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, why) from error

    def _partition_ops(
        self, topic_id: TopicId, first: int, assignments: Sequence[Assignment]
    ) -> Iterator[Op]:
        """Yield the operations that write new partitions, from index ``first`` on.

        The partitions stay invisible until the topic's own key counts them.
        """
        live = {*self._placement().live_nodes}
        for index, replicas in enumerate(assignments, first):
            key = self._keys.partition(topic_id, index)
            yield Put(key, encode_partition(first_state(replicas, live)))

    async def _commit_last(self, guards: list[Guard], before: Iterator[Op], last: list[Op]) -> None:
        """Commit ``before``, in several commits if they are many, and ``last`` in the last one.

        Each is guarded: when another node has done the same meanwhile, what this one has left to
        write is in use there.
        """
        ops = list(islice(before, OPS_MAX))
        while len(ops) == OPS_MAX:
            await self._commit(guards, ops)
            ops = list(islice(before, OPS_MAX))
        if len(ops) + len(last) > OPS_MAX:
            await self._commit(guards, ops)
            ops = []
        await self._commit(guards, ops + last)

    # Partitions.

    def create_partitions(
        self,
        wanted: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        patience: Patience | None = None,
        take: Take = take_any,
    ) -> Pending[list[KafkaError | None]]:
        """Add partitions to topics; the Pending gets one outcome per topic: None is success.

        ``validate_only``: check, but add nothing. ``patience``: see ``each_in_time``.
        """

        def add(more: NewPartitions) -> Awaitable[None]:
            return self._add(more, validate_only, take)

        return each_in_time(wanted, add, patience, first=self._catch_up)

    async def _add(self, wanted: NewPartitions, validate_only: bool, take: Take) -> None:
        if validate_only:
            take(len(self._plan_more(wanted)[1]))
            return
        counted = False

        async def attempt() -> None:
            nonlocal counted
            topic, added = self._plan_more(wanted)
            if not counted:
                take(len(added))
                counted = True
            with self._claims.partitions(added):
                await self._write_more(topic, added)

        async with self._claims.name(wanted.name):
            await self._won(wanted.name, attempt)
        await outcome_of(self._hosted.done(wanted.name))

    def _plan_more(self, wanted: NewPartitions) -> tuple[TopicImage, list[Assignment]]:
        topic = self._image.topics.get(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        present = len(topic.partitions)
        # While it moves, those that go are listed, too. None: its node is yet to come (adoption).
        factor = len(topic.partitions[0].replicas) - len(topic.partitions[0].removing) or 1
        added = plan_more_partitions(wanted, present, factor, self._placement_now())
        self._check_room(len(added))
        return topic, added

    async def _write_more(self, topic: TopicImage, added: Sequence[Assignment]) -> None:
        key, present = self._keys.topic(topic.name), len(topic.partitions)
        with store_answers():
            entry = await self._store.get(key)
        value = None if entry is None else decode_topic(entry.value)
        if entry is None or value is None or value[:2] != (topic.topic_id, present):
            raise GuardFailed(Guard(key), entry)  # The image does not have the last change yet.
        grown = TopicValue(topic.topic_id, present + len(added), value.grown_from or present)
        await self._commit_last(
            [Guard(key, mod_rev=entry.mod_rev)],
            self._partition_ops(topic.topic_id, present, added),
            [Put(key, encode_topic(grown))],
        )

    # Delete.

    def delete_topics(
        self,
        wanted: Sequence[tuple[str | None, TopicId]],
        *,
        patience: Patience | None = None,
        take: Take = take_any,
        may_delete: Callable[[str], bool] | None = None,
    ) -> Pending[list[tuple[str, TopicId] | KafkaError]]:
        """Delete topics, each by name or (name None) by id; the Pending gets outcomes, in order.

        ``patience``: see ``each_in_time``. ``may_delete`` is asked about a topic when it is found:
        others may have created it since the request came in. None: all may be deleted.
        """

        def delete(named: tuple[str | None, TopicId]) -> Awaitable[tuple[str, TopicId]]:
            return self._delete(*named, take, may_delete)

        return each_in_time(wanted, delete, patience, first=self._catch_up)

    async def _delete(
        self,
        name: str | None,
        topic_id: TopicId,
        take: Take,
        may_delete: Callable[[str], bool] | None,
    ) -> tuple[str, TopicId]:
        if not self._may_delete:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        gone = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = self._image.topic_by_id(topic_id) if name is None else self._image.topic(name)
        if asked is None:
            raise KafkaError(gone)
        if may_delete is not None and not may_delete(asked.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        take(len(asked.partitions))
        async with self._claims.name(asked.name):
            topic = await self._won(asked.name, lambda: self._delete_once(asked))
        if topic is None:
            raise KafkaError(gone)
        await outcome_of(self._hosted.done(topic.name))
        await self._forget(topic)
        return topic.name, topic.topic_id

    async def _delete_once(self, asked: TopicImage) -> TopicImage | None:
        """Do as ``_mark_deleted``; carry out what another node, which was faster, has deleted."""
        self._deleting[asked.topic_id] = topic = None
        try:
            topic = await self._mark_deleted(asked)
        finally:
            last = self._deleting.pop(asked.topic_id)
            if topic is None and last is not None:
                self.carry_out_deletions([last])
        return topic

    async def _mark_deleted(self, asked: TopicImage) -> TopicImage | None:
        """Delete the topic's keys, leave the mark, and return the topic as it was then.

        None: it does not exist any more. Raises GuardFailed when it changed in between; KafkaError.
        """
        key = self._keys.topic(asked.name)
        with store_answers():
            entry = await self._store.get(key)
            if entry is None or decode_topic(entry.value).topic_id != asked.topic_id:
                return None
            await self._follower.reached(entry.mod_rev)
        topic = self._image.topic_by_id(asked.topic_id)
        if topic is None:
            return None
        nodes = sorted(_nodes_of(topic))
        await self._commit(
            [Guard(key, mod_rev=entry.mod_rev)],
            [
                Put(self._keys.deleted_topic(topic.topic_id), encode_deleted(topic.name, nodes)),
                Delete(key),
                Delete(self._keys.topic_id(topic.topic_id)),
                Delete(self._keys.config(ConfigType.TOPIC, topic.name)),
            ],
        )
        last = self._deleting.get(topic.topic_id) or topic
        if added := _nodes_of(last).difference(nodes):  # By a reassignment just before.
            with store_answers():
                await add_to_mark(self._store, self._keys, last, added)
        return topic

    async def _forget(self, topic: TopicImage) -> None:
        """Remove the deleted topic's partitions from the store, and this node from its mark."""
        keys = (self._keys.partition(topic.topic_id, at) for at in range(len(topic.partitions)))
        for ops in in_commits(map(Delete, keys)):
            await self._commit([], ops)
        await self._clear_mark(topic)

    async def _clear_mark(self, topic: TopicImage) -> None:
        """Take this node from the mark, which goes with the last node.

        Its directories are deleted by now, unless one could not be opened: then it stays, so that
        no later start adopts that directory. So does a node that is away.
        """
        if self._hosted.has_directory_left(topic.name):
            return
        with store_answers():
            await clear_mark(self._store, self._keys, topic.topic_id, self._node_id)

    def carry_out_deletions(self, topics: Iterable[TopicImage]) -> None:
        """Take this node from the marks of topics that another node was asked to delete."""
        for topic in topics:
            if topic.topic_id in self._deleting:
                self._deleting[topic.topic_id] = topic
            elif self._node_id in _nodes_of(topic):
                begin_task(
                    self._carry_out_deletion(topic), name="delete a topic", ended=_deletion_ended
                )

    async def _carry_out_deletion(self, topic: TopicImage) -> None:
        await asyncio.sleep(0)  # Hosting hears of it in this turn.
        await outcome_of(self._hosted.done(topic.name))
        await self._clear_mark(topic)

    # Common.

    async def _catch_up(self) -> None:
        """Hear of what was done by way of other nodes before. Raises KafkaError."""
        with store_answers():
            await self._follower.catch_up()

    async def _won(self, topic: str, attempt: Callable[[], Awaitable[Made]]) -> Made:
        """Have ``attempt`` change a topic before others do. Raises KafkaError."""
        with store_answers():
            return await self._follower.mirror.contests.won(f"the topic {topic}", attempt)

    async def _commit(self, guards: list[Guard], ops: list[Op]) -> None:
        """Commit, and wait until this node's image has it. Raises GuardFailed, KafkaError."""
        with store_answers():
            await self._follower.reached(await self._store.commit(guards, ops))


def _nodes_of(topic: TopicImage) -> set[NodeId]:
    return {node for state in topic.partitions for node in state.may_have_it}


def _deletion_ended(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, KafkaError):
        logger.info("the next start forgets a deleted topic: %s", error)
    elif error is not None:
        logger.error("a deleted topic could not be forgotten", exc_info=error)
