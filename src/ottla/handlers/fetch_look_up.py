"""Looks up, for each Fetch of a session, what its client may read and what this node hosts.

Stands between ``apis.fetch`` and the session (``fetch_session``), which asks neither ACLs nor logs.
Works in slices: after a change of an ACL all topics of a session are asked about, and a denial that
somebody hears of costs ten times as much as a topic that is hosted.

Several clients may use one session, and what one may read must not be read by another. Each request
makes the session expect the next epoch before it looks up. If the session expects another one after
a slice, another request uses it, and this one changes nothing any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.handlers.fetch_session import FetchSession, SessionPartition
from ottla.ids import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.replication.replica_manager import ReplicaManager
from ottla.sliced import STRIDE, Steps

if TYPE_CHECKING:
    from ottla.security.access import Access


class LookUp:
    """Looks the partitions of sessions up."""

    def __init__(self, replica_manager: ReplicaManager, image: MetadataImage) -> None:
        self._replica_manager = replica_manager
        self._image = image

    def look_up(self, session: FetchSession, access: Access | None) -> Steps[bool]:
        """Refuse what the client may not read, and look again for what could not be read so far.

        ``access``: None if everything is allowed. Returns False if another request uses the session
        meanwhile.
        """
        epoch, plan = session.epoch, session.plan()
        partitions = plan.refused
        acls = None
        if access is not None and not session.is_allowed_for(access):
            acls = access.authorizer.epoch
            session.allow_nobody()  # Until the end: it may never come.
            partitions = plan.partitions + plan.refused
        for count, partition in enumerate(partitions, 1):
            if partition.refusal is not None:
                self._look_again(session, partition, access)
            elif access is not None and not access.may_fetch(partition.spec.topic_partition.topic):
                session.forbid(partition)
            if not count % STRIDE:
                yield None
                if session.epoch != epoch:
                    return False
        if access is not None and acls is not None:
            session.allow(access, acls)
        return True

    def _look_again(
        self, session: FetchSession, partition: SessionPartition, access: Access | None
    ) -> None:
        name, topic_id, index = partition.key
        if session.uses_topic_ids:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                partition.refusal = self._why_unknown(partition)
                return
            name = topic.name
        if access is not None and not access.may_fetch(name):
            partition.refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return
        where = TopicPartition(name, index)
        hosted = self._replica_manager.topic_id_anywhere(where)
        if hosted is None:
            partition.refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            session.found(partition, where, hosted)

    def _why_unknown(self, partition: SessionPartition) -> ErrorCode:
        """Return the code of a topic id that does not exist, or no longer, as Kafka does."""
        if partition.spec.topic_id is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._replica_manager.get(partition.spec.topic_partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INCONSISTENT_TOPIC_ID  # A newer topic has its name.
