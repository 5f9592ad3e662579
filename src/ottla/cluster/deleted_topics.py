"""The marks of deleted topics: which nodes may have directories of one, and what goes at last.

A mark is written by the commit that deletes the topic's key, and goes when no node has a directory
any more. Before that the topic's partitions go from the store: the node that was asked to delete
the topic removes them, but it may have ended before. Used by the controller, and at a start.
"""

from collections.abc import Collection

from ottla.ids import NodeId, TopicId
from ottla.metadata.image import TopicImage
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import Delete, MetadataStore, in_commits
from ottla.metadata.values import encode_deleted, with_nodes, without_node


async def clear_mark(store: MetadataStore, keys: Keys, topic_id: TopicId, node: NodeId) -> int:
    """Take ``node`` from a mark, or remove it with its last node; return the mark's revision then.

    0: there is none any more. Raises what the store raises.
    """
    key = keys.deleted_topic(topic_id)
    mark = await store.get(key)
    if mark is not None and without_node(mark.value, node) is None:
        await _forget_partitions(store, keys, topic_id)

    def changed(value: bytes | None) -> bytes | None:
        return None if value is None else without_node(value, node)

    entry = await update(store, key, changed)
    return 0 if entry is None else entry.mod_rev


async def add_to_mark(
    store: MetadataStore, keys: Keys, topic: TopicImage, nodes: Collection[NodeId]
) -> None:
    """Name further nodes in a mark, which is made anew if it has gone. Raises as ``clear_mark``."""

    def changed(value: bytes | None) -> bytes:
        return encode_deleted(topic.name, nodes) if value is None else with_nodes(value, nodes)

    await update(store, keys.deleted_topic(topic.topic_id), changed)


async def _forget_partitions(store: MetadataStore, keys: Keys, topic_id: TopicId) -> None:
    """Remove what there is of the partitions of a topic that is no more: its id never returns."""
    entries, _ = await store.scan(keys.topic_partitions(topic_id))
    for ops in in_commits(Delete(entry.key) for entry in entries):
        await store.commit([], ops)
