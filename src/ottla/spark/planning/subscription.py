"""Which partitions a stream's options mean now, while topics come and go under it.

The planner's side. ``tracker`` uses it and decides what a missing partition means. One answer that
leaves a topic out proves nothing: a broker may lag behind, or an ACL was away for a moment. To call
a topic gone by mistake is dear (rows are lost, or read again), so it is asked for by its name, for
as long as planning outlasts trouble. A stream waits so for a topic once. Blocks.
"""

import logging
from collections.abc import Collection, Iterable

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.backoff import MISSING
from ottla.client.wire.view import ClusterView
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.spark.lookup import named_by
from ottla.spark.options import SourceOptions

LOG = logging.getLogger("ottla.spark")


class Subscription:
    """The topics or partitions that the options name, or their pattern."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._named = set(options.topics) | {topic for topic, _ in options.partitions}
        self._gone: set[str] = set()
        """Named topics that were missed in vain: not waited for again. They may come back."""

    def named(
        self, client: BlockingClient, known: Collection[str], *, may_be_gone: bool
    ) -> list[TopicPartition]:
        """Return the partitions that are named and there, in order; the client's view has them.

        ``known``: topics that the stream has offsets of. One that is gone is left out, as is any
        other with ``may_be_gone``. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION for one that was
        never there, and what the cluster says to one that is there and may not be read.
        """
        there = self._there(client, self._named)
        for name in sorted(self._named - there - set(known)):
            if not may_be_gone:
                raise _unknown(name)
        if not self._options.partitions:
            return _all_of(client.view, there)
        return self._assigned(client.view, known, may_be_gone=may_be_gone)

    def completed(
        self, client: BlockingClient, found: list[TopicPartition], known: Collection[str]
    ) -> list[TopicPartition]:
        """Return what one answer has ``found`` for the pattern, and what it has left out.

        Raises KafkaError for a topic that is there and may not be read.
        """
        matches = named_by(self._options.pattern)
        topics = {topic for topic, _ in found}
        missing = {name for name in known if matches(name)} - topics
        if not missing:
            return found
        back = self._there(client, missing)
        return _all_of(client.refresh(topics | back), topics | back)

    def _assigned(
        self, view: ClusterView, known: Collection[str], *, may_be_gone: bool
    ) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for topic, partition in sorted(self._options.partitions):
            there = view.topics[topic].partitions if topic in view.topics else {}
            if partition in there:
                found.append(TopicPartition(topic, partition))
            elif not may_be_gone and topic not in known:
                why = f"{topic}-{partition}: the topic has {len(there)} partitions, numbered from 0"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        return found

    def _there(self, client: BlockingClient, names: Collection[str]) -> set[str]:
        """Return those of ``names`` that exist, waiting for those that were not called gone."""
        missing: set[str] = set(names)

        def attempt() -> None:
            nonlocal missing
            view = client.look_up(sorted(names))
            for name in sorted(names):
                error = view.topics[name].error if name in view.topics else ErrorCode.NONE
                if error and error not in MISSING:
                    raise KafkaError(error, f"topic {name}: {error.text}")
            missing = {name for name in names if name not in view.topics or view.topics[name].error}
            for name in sorted(missing - self._gone):
                raise _unknown(name)

        try:
            client.retrying(attempt)
        except KafkaError as error:
            if error.code not in MISSING:
                raise
        for name in sorted(missing - self._gone):
            LOG.warning("topic %s is not there, or not any more", name)
        self._gone = (self._gone | missing) - (set(names) - missing)
        return set(names) - missing


def _unknown(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")


def _all_of(view: ClusterView, topics: Iterable[str]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic, partition)
        for topic in topics
        for partition in view.topic(topic).partitions
    )
