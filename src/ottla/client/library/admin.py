"""``Admin``: topics, configs, groups, offsets, users, ACLs and quotas, for programs that block.

The methods of ``async_admin``, which does the work, with the same arguments.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.asyncio.admin import CLUSTER_DEFAULT, ClusterDescription, CreatedTopic
from ottla.client.asyncio.groups import ListedGroup
from ottla.client.library.async_admin import AsyncAdmin
from ottla.client.library.core import Core
from ottla.client.library.waiting import Waiter
from ottla.client.wire.group_description import GroupDescription
from ottla.client.wire.view import TopicView
from ottla.ids import QuotaEntity, TopicPartition

if TYPE_CHECKING:
    from ottla.client.asyncio.quotas import ClientQuota
    from ottla.client.asyncio.users import UserCredential
    from ottla.security.acl import Acl
    from ottla.security.acl_filter import AclFilter


class Admin:
    """What an administrator asks and changes. Every call raises ClientError."""

    client: object = None
    """Use: only kept: a client that nobody holds ends."""

    def __init__(self, core: Core, waiter: Waiter) -> None:
        self._admin = AsyncAdmin(core)
        self._waiter = waiter

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CreatedTopic:
        """Create a topic; -1: as many partitions or replicas as the broker is set to."""
        return self._waiter.wait(
            "create topic",
            lambda: self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            ),
            timeout,
        )

    def delete_topics(self, *names: str, timeout: float | None = None) -> None:
        """Delete topics. Raises for the first that was not; others may be gone by then."""
        self._waiter.wait("delete topics", lambda: self._admin.delete_topics(*names), timeout)

    def add_partitions(self, topic: str, total: int, *, timeout: float | None = None) -> None:
        """Raise the number of a topic's partitions to ``total``."""
        self._waiter.wait(
            "add partitions", lambda: self._admin.add_partitions(topic, total), timeout
        )

    def list_topics(self, *, timeout: float | None = None) -> list[TopicView]:
        """Return all topics, internal ones included, by name."""
        return self._waiter.wait("list topics", self._admin.list_topics, timeout)

    def describe_topic(self, name: str, *, timeout: float | None = None) -> TopicView:
        """Return one topic."""
        return self._waiter.wait(
            "describe topic", lambda: self._admin.describe_topic(name), timeout
        )

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id and brokers."""
        return self._waiter.wait("describe cluster", self._admin.describe_cluster, timeout)

    def offsets(
        self, topic: str, at: int | str = "latest", *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset in each partition that is "earliest", "latest", or at a time in ms.

        Of a time later than all records: -1.
        """
        return self._waiter.wait("offsets", lambda: self._admin.offsets(topic, at), timeout)

    def configs(
        self, kind: str, name: str, *, timeout: float | None = None
    ) -> dict[str, str | None]:
        """Return the configs in force of a "topic", a "broker" or a "group"; secrets are None."""
        return self._waiter.wait("configs", lambda: self._admin.configs(kind, name), timeout)

    def set_configs(
        self,
        kind: str,
        name: str,
        configs: Mapping[str, str | None],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set configs; None takes one back to its default. The others stay."""
        self._waiter.wait(
            "set configs", lambda: self._admin.set_configs(kind, name, configs), timeout
        )

    def list_groups(self, *, timeout: float | None = None) -> list[ListedGroup]:
        """Return the groups of all brokers, by name."""
        return self._waiter.wait("list groups", self._admin.list_groups, timeout)

    def describe_group(self, group: str, *, timeout: float | None = None) -> GroupDescription:
        """Return a group with its members."""
        return self._waiter.wait(
            "describe group", lambda: self._admin.describe_group(group), timeout
        )

    def delete_group(self, group: str, *, timeout: float | None = None) -> None:
        """Delete a group without members, and its offsets."""
        self._waiter.wait("delete group", lambda: self._admin.delete_group(group), timeout)

    def committed(self, group: str, *, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Return all offsets that a group has committed."""
        return self._waiter.wait("committed", lambda: self._admin.committed(group), timeout)

    def set_committed(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Set a group's committed offsets; it must have no members."""
        self._waiter.wait(
            "set committed", lambda: self._admin.set_committed(group, offsets), timeout
        )

    def delete_committed(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Delete committed offsets of topics that no member reads."""
        self._waiter.wait(
            "delete committed", lambda: self._admin.delete_committed(group, partitions), timeout
        )

    def list_users(self, *, timeout: float | None = None) -> "list[UserCredential]":
        """Return the SCRAM credentials of all users; of passwords nothing is told."""
        return self._waiter.wait("list users", self._admin.list_users, timeout)

    def list_acls(
        self, wanted: "AclFilter | None" = None, *, timeout: float | None = None
    ) -> "list[Acl]":
        """Return the ACLs that a filter wants; None: all."""
        return self._waiter.wait("list acls", lambda: self._admin.list_acls(wanted), timeout)

    def create_acls(self, acls: "Sequence[Acl]", *, timeout: float | None = None) -> None:
        """Add ACLs."""
        self._waiter.wait("create acls", lambda: self._admin.create_acls(acls), timeout)

    def delete_acls(self, acls: "Sequence[Acl]", *, timeout: float | None = None) -> None:
        """Delete ACLs."""
        self._waiter.wait("delete acls", lambda: self._admin.delete_acls(acls), timeout)

    def list_quotas(
        self, wanted: QuotaEntity | None = None, *, timeout: float | None = None
    ) -> "list[ClientQuota]":
        """Return the quotas of the entities that have the parts of ``wanted``; None: of all."""
        return self._waiter.wait("list quotas", lambda: self._admin.list_quotas(wanted), timeout)

    def set_quota(
        self,
        entity: QuotaEntity,
        bounds: Mapping[str, float | None],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set the bounds of an entity; None removes one. The others stay."""
        self._waiter.wait("set quota", lambda: self._admin.set_quota(entity, bounds), timeout)
