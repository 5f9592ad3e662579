"""Adopts or deletes partition directories that the metadata does not know.

Such a directory has one of two causes. Its topic was deleted, and the deletion was interrupted: a
mark in the store says so, and the directory is deleted. Or it came from elsewhere (it was copied
from a Kafka broker, or the store was lost): then its topic is added to the metadata, with the topic
id that the directory carries, so data is never locked in. A directory whose topic has another id in
the store is left alone and reported. Runs once, at a start, before anything is served. What is in
an old copy of a log directory is not taken in: ``old_copies``.

Nodes of one host do so together: the newest copy of each partition is served (``copies``). Source:
design D5; ADR 5.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cluster.deleted_topics import clear_mark
from ottla.cluster.producer_ids import id_of_now
from ottla.cluster.topics import NOT_TOPICS
from ottla.cluster.unsettled import Unsettled
from ottla.env.clock import Clock
from ottla.env.rng import Rng
from ottla.ids import NodeId, TopicId, TopicPartition
from ottla.log.directories.duplicates import settle_duplicates
from ottla.log.directories.manager import LogManager
from ottla.log.log import Log
from ottla.metadata.image import MetadataImage, TopicImage, state_of
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import Entry, MetadataStore
from ottla.metadata.values import (
    decode_name,
    decode_number,
    encode_number,
)

if TYPE_CHECKING:
    from ottla.cluster.copies import Held
    from ottla.cluster.taking_in import InternalConfigs, TakeIn

logger = logging.getLogger(__name__)

IDS_LEFT_OUT = 1_000_000
"""So many ids above those that are known may have been given, where the clock does not tell."""
MADE_UP_ABOVE = 1 << 40
"""How far above the next one that is free a producer id may be to be believed."""


async def adopt(  # noqa: PLR0913 - what a start knows, most of it keyword-only
    store: MetadataStore,
    keys: Keys,
    topics: Mapping[str, TopicImage],
    log_manager: LogManager,
    *,
    node_id: NodeId,
    rng: Rng,
    internal_configs: "InternalConfigs" = lambda _: None,
    may_adopt: bool = True,
    is_alone: bool = True,
    take_in: "TakeIn | None" = None,
    unsettled: Unsettled | None = None,
    old_copies: Collection[str] = (),
    may_lack: bool = False,
) -> int:
    """Make store and directories agree; return the store's revision after that.

    ``topics``: all that the store has, by name, as they were before this call. A topic that another
    node deletes meanwhile is not taken for a stranger; see ``finish_late_deletions``.
    ``may_adopt``: False: what nobody knows is left alone; this node has not all that others know.
    ``is_alone``: no other node has this store. ``take_in``: hears what this node has, and takes it
    in beside what others have; None: this node does so by itself, with ``internal_configs``.
    ``unsettled``: why the store is. ``old_copies``: log directories that are older than the store.
    ``may_lack``: some are, or they are not those of the last start. Raises what the store raises.
    """
    marks, revision = await store.scan(keys.deleted_topics)
    deleted = {keys.place(mark.key).topic_id for mark in marks}
    names = {decode_name(mark.value) for mark in marks}
    is_newer = unsettled is not Unsettled.METADATA
    if is_newer and old_copies:
        _settle_old_copies(log_manager, old_copies, topics, deleted=deleted, node_id=node_id)
    settle_duplicates(log_manager, deleted, rng)
    _tell_of_deleted(log_manager, keys, marks)
    if not is_newer:
        _keep_the_newest(log_manager)
    strangers: dict[str, dict[int, Log]] = defaultdict(dict)
    unfinished: list[TopicPartition] = []
    for where, found in list(log_manager.logs.items()):
        if where.topic in NOT_TOPICS:
            continue
        if found.topic_id in deleted or _was_cut_short(found, where, names, topics):
            unfinished.append(where)
        elif _is_to_be_told(found, where, topics, node_id, unsettled):
            strangers[where.topic][where.partition] = found
    _finish_deletions(log_manager, unfinished)
    logs = list(log_manager.logs.values())
    has_data = bool(strangers or (unsettled is not None and (logs or log_manager.offline)))
    gave_more = has_data and unsettled is not Unsettled.COPIES  # Than the store knows, perhaps.
    reserved = await _reserve_producer_ids(
        store, keys, logs, log_manager.clock, gave_more=gave_more
    )
    revision = max(revision, reserved)
    if may_adopt:
        if take_in is not None or strangers or unsettled is not None:
            by_itself = _by_itself(store, keys, rng, internal_configs, node_id, is_alone=is_alone)
            taken_in = await (take_in or by_itself)(
                _held(strangers, log_manager, may_lack=may_lack)
            )
            revision = max(revision, taken_in)
    else:
        for name in sorted(strangers):
            logger.error("%s: the cluster has no such topic; its directories stay", name)
    return max(revision, await _clear_marks(store, keys, marks, log_manager, node_id))


def finish_late_deletions(
    log_manager: LogManager, topics: Mapping[str, TopicImage], image: MetadataImage
) -> list[TopicImage]:
    """Delete the directories of topics that were deleted since ``adopt`` was given ``topics``.

    Returns these topics. Blocks. Who hosts partitions by ``image`` hears of later deletions.
    """
    deleted = [one for one in topics.values() if image.topic_by_id(one.topic_id) is None]
    unfinished = []
    for topic in deleted:
        for index in range(len(topic.partitions)):
            where = TopicPartition(topic.name, index)
            log_manager.maker.deleted_unopened(where, topic.topic_id)
            found = log_manager.get(where)
            if found is not None and found.topic_id in (None, topic.topic_id):
                unfinished.append(where)
    _finish_deletions(log_manager, unfinished)
    return deleted


def _settle_old_copies(
    log_manager: LogManager,
    paths: Collection[str],
    topics: Mapping[str, TopicImage],
    *,
    deleted: Collection[TopicId | None],
    node_id: NodeId,
) -> None:
    from ottla.cluster.old_copies import OldCopies  # noqa: PLC0415 - few starts need it

    OldCopies(paths, topics, deleted, node_id).settle(log_manager)


def _keep_the_newest(log_manager: LogManager) -> None:
    if not log_manager.offline:
        return
    from ottla.cluster.old_copies import keep_the_newest  # noqa: PLC0415 - as above

    keep_the_newest(log_manager)


def _by_itself(
    store: MetadataStore,
    keys: Keys,
    rng: Rng,
    internal_configs: "InternalConfigs",
    node_id: NodeId,
    *,
    is_alone: bool,
) -> "TakeIn":
    from ottla.cluster.taking_in import TakingIn  # noqa: PLC0415 - few starts need it

    alone = node_id if is_alone else None
    return TakingIn(store, keys, rng, internal_configs, alone).of(node_id)


def _held(
    strangers: Mapping[str, Mapping[int, Log]], log_manager: LogManager, *, may_lack: bool
) -> "Held":
    from ottla.cluster.copies import Held, copy_of  # noqa: PLC0415 - few starts need it

    copies = {
        name: {index: copy_of(found) for index, found in partitions.items()}
        for name, partitions in strangers.items()
    }
    return Held(copies, _unreadable(log_manager), may_lack)


def _unreadable(log_manager: LogManager) -> tuple[str, ...]:
    """Return what may hold copies and cannot be read: path, or partition, and reason."""
    directories = [
        f"{directory.path} ({directory.failure})"
        for directory in log_manager.directories.values()
        if not directory.is_online
    ]
    partitions = [
        f"{log_manager.offline.place_of(where) or 'a directory'}/{where} ({fault})"
        for where, fault in log_manager.offline.items()
        if where.topic not in NOT_TOPICS
    ]
    return (*directories, *partitions)


def _is_strange(
    found: Log, where: TopicPartition, topics: Mapping[str, TopicImage], node_id: NodeId
) -> bool:
    """Tell whether the store does not know a directory.

    It may know the topic, and not this partition, or not what is in it: it is an older copy, or
    another node has added the topic.
    """
    topic = topics.get(where.topic)
    if topic is None:
        return True
    if found.topic_id not in (None, topic.topic_id):
        logger.error("%s: the directory %s is of another topic", where, found.directory)
        return False
    if where.partition >= len(topic.partitions):
        return not found.is_bare  # What a creation left is no reason for one partition more.
    state = topic.partitions[where.partition]
    if not state.replicas:
        return True
    return node_id not in state.may_have_it and found.latest_epoch >= state.leader_epoch


def _is_to_be_told(
    found: Log,
    where: TopicPartition,
    topics: Mapping[str, TopicImage],
    node_id: NodeId,
    unsettled: Unsettled | None,
) -> bool:
    """Tell whether somebody is to decide about a directory: strange ones, or what is unsettled."""
    if unsettled is Unsettled.METADATA or _is_strange(found, where, topics, node_id):
        return True
    state = state_of(topics, where)
    if unsettled is None or state is None:
        return False
    is_of_it = found.topic_id in (None, topics[where.topic].topic_id)
    return is_of_it and node_id in state.replicas


def _tell_of_deleted(log_manager: LogManager, keys: Keys, marks: Sequence[Entry]) -> None:
    """Let directories of deleted topics make way when they can be opened at last.

    The process that was told of the deletion may have ended since.
    """
    for mark in marks:
        topic_id = keys.place(mark.key).topic_id
        for where in log_manager.offline:
            if topic_id is not None and where.topic == decode_name(mark.value):
                log_manager.maker.deleted_unopened(where, topic_id)


async def _clear_marks(
    store: MetadataStore,
    keys: Keys,
    marks: Sequence[Entry],
    log_manager: LogManager,
    node_id: NodeId,
) -> int:
    """Say of deleted topics that this node has nothing of them; return the revision, or 0."""
    revision = 0
    for mark in marks:
        topic_id = keys.place(mark.key).topic_id
        if topic_id is not None and not log_manager.may_have_left(decode_name(mark.value)):
            revision = max(revision, await clear_mark(store, keys, topic_id, node_id))
    return revision


def _was_cut_short(
    found: Log, where: TopicPartition, deleted: set[str], topics: Mapping[str, TopicImage]
) -> bool:
    """Whether an interrupted creation left this directory, and its topic was deleted since.

    A topic of that name that was made anew may have fewer partitions.
    """
    return found.is_bare and where.topic in deleted and state_of(topics, where) is None


def _finish_deletions(log_manager: LogManager, names: list[TopicPartition]) -> None:
    """Delete these partitions' directories, with one sync of each log directory for all."""
    job = log_manager.maker.removal_job(names)
    job.run()
    for where, error in log_manager.maker.removed(job).items():
        logger.error("%s is deleted but its directory stays: %s", where, error)


async def _reserve_producer_ids(
    store: MetadataStore, keys: Keys, logs: list[Log], clock: Clock, *, gave_more: bool
) -> int:
    """Reserve ids that producers may have already; return the revision after that, 0: it is so.

    The store gave them out, unless it is new, or an older copy, or the logs came from elsewhere. If
    a new producer got such an id, its first batches would be taken for resends: acknowledged, but
    not stored. Logs know the ids that have written to them, so long as their states last. All
    others are below the id of now, or where the clock is behind, probably among the next ones. Ids
    far above were given by nobody: a client has made them up. ``gave_more``: the store may have
    given more than it knows, although no log tells.
    """
    entry = await store.get(keys.producer_id_block)
    block = 0 if entry is None else decode_number(entry.value)
    end = block + MADE_UP_ABOVE
    known = (one for log in logs for one, _ in log.producers.states if block <= one < end)
    first_free = max(known, default=block - 1) + 1
    if first_free == block and not gave_more:
        return 0
    now = id_of_now(clock)
    first_free = now if now >= first_free else first_free + IDS_LEFT_OUT
    logger.warning("producer ids below %d may have been given: they are reserved", first_free)

    def raised(value: bytes | None) -> bytes:
        return encode_number(max(first_free, 0 if value is None else decode_number(value)))

    raised_entry = await update(store, keys.producer_id_block, raised)
    return 0 if raised_entry is None else raised_entry.mod_rev
