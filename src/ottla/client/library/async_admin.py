"""``AsyncAdmin``: topics, configs, groups, offsets, users, ACLs and quotas, for asyncio.

Owns the names; ``ottla.client.asyncio`` has the calls. ``admin`` has the same for programs that
block.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.client.asyncio.admin import (
    CLUSTER_DEFAULT,
    Admin,
    ClusterDescription,
    CreatedTopic,
)
from ottla.client.asyncio.configs import Configs, Resource, ResourceType
from ottla.client.asyncio.groups import Groups, ListedGroup
from ottla.client.library.core import Core
from ottla.client.library.failures import BadArgument, check_names, check_offsets, within
from ottla.client.wire.group_description import GroupDescription
from ottla.client.wire.offsets import EARLIEST, LATEST
from ottla.client.wire.view import TopicView
from ottla.ids import QuotaEntity, TopicPartition

if TYPE_CHECKING:
    from ottla.client.asyncio.quotas import ClientQuota
    from ottla.client.asyncio.users import UserCredential
    from ottla.security.acl import Acl
    from ottla.security.acl_filter import AclFilter

Value = TypeVar("Value")
_KINDS = {each.name.lower(): each for each in ResourceType}
_PLACES = {"earliest": EARLIEST, "latest": LATEST}


def _resource(kind: str, name: str) -> Resource:
    if kind not in _KINDS:
        raise BadArgument("configs", f"{kind!r} is none of {', '.join(_KINDS)}")
    return Resource(_KINDS[kind], name)


class AsyncAdmin:
    """What an administrator asks and changes. Every call raises ClientError."""

    client: object = None
    """Use: only kept: a client that nobody holds ends."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CreatedTopic:
        """Create a topic; -1: as many partitions or replicas as the broker is set to."""
        work = self._topics.create_topic(
            name,
            partition_count=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        return await within(f"create topic {name}", work, timeout)

    async def delete_topics(self, *names: str, timeout: float | None = None) -> None:
        """Delete topics. Raises for the first that was not; others may be gone by then."""
        check_names("delete topics", names)
        await within(f"delete {', '.join(names)}", self._topics.delete_topics(names), timeout)

    async def add_partitions(self, topic: str, total: int, *, timeout: float | None = None) -> None:
        """Raise the number of a topic's partitions to ``total``."""
        work = self._topics.create_partitions(topic, total)
        await within(f"add partitions to {topic}", work, timeout)

    async def list_topics(self, *, timeout: float | None = None) -> list[TopicView]:
        """Return all topics, internal ones included, by name."""
        return await within("list topics", self._topics.list_topics(), timeout)

    async def describe_topic(self, name: str, *, timeout: float | None = None) -> TopicView:
        """Return one topic."""
        return await within(f"describe topic {name}", self._topics.describe_topic(name), timeout)

    async def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id and brokers."""
        return await within("describe the cluster", self._topics.describe_cluster(), timeout)

    async def offsets(
        self,
        topic: str,
        at: int | str = "latest",
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the offset in each partition that is "earliest", "latest", or at a time in ms.

        Of a time later than all records: -1.
        """
        stamp = _PLACES.get(at) if isinstance(at, str) else at
        if stamp is None:
            raise BadArgument("ask for offsets", f'{at!r} is no time, "earliest" or "latest"')

        async def work() -> dict[TopicPartition, int]:
            view = await self._topics.describe_topic(topic)
            wanted = {TopicPartition(topic, each): stamp for each in view.partitions}
            found = await self._core.shared_cluster().list_offsets(wanted)
            return {each: one.offset for each, one in found.items()}

        return await within(f"offsets of {topic}", work(), timeout)

    async def configs(
        self, kind: str, name: str, *, timeout: float | None = None
    ) -> dict[str, str | None]:
        """Return the configs in force of a "topic", a "broker" or a "group"; secrets are None."""
        work = Configs(self._core.shared_cluster()).describe(_resource(kind, name))
        found = await within(f"configs of {kind} {name}", work, timeout)
        return {each.key: each.value for each in found}

    async def set_configs(
        self,
        kind: str,
        name: str,
        configs: Mapping[str, str | None],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set configs; None takes one back to its default. The others stay."""
        work = Configs(self._core.shared_cluster()).alter(
            _resource(kind, name),
            configs={key: value for key, value in configs.items() if value is not None},
            deleted=[key for key, value in configs.items() if value is None],
        )
        await within(f"set configs of {kind} {name}", work, timeout)

    async def list_groups(self, *, timeout: float | None = None) -> list[ListedGroup]:
        """Return the groups of all brokers, by name."""
        return await within("list groups", self._groups.list_groups(), timeout)

    async def describe_group(self, group: str, *, timeout: float | None = None) -> GroupDescription:
        """Return a group with its members."""
        return await within(f"describe group {group}", self._groups.describe(group), timeout)

    async def delete_group(self, group: str, *, timeout: float | None = None) -> None:
        """Delete a group without members, and its offsets."""
        await within(f"delete group {group}", self._groups.delete(group), timeout)

    async def committed(
        self, group: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return all offsets that a group has committed."""
        found = await within(f"offsets of group {group}", self._groups.committed(group), timeout)
        return {each: one.offset for each, one in found.items()}

    async def set_committed(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set a group's committed offsets; it must have no members."""
        work = self._groups.commit(group, check_offsets("set committed offsets", offsets))
        await within(f"set offsets of group {group}", work, timeout)

    async def delete_committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> None:
        """Delete committed offsets of topics that no member reads."""
        work = self._groups.delete_offsets(group, partitions)
        await within(f"delete offsets of group {group}", work, timeout)

    async def list_users(self, *, timeout: float | None = None) -> "list[UserCredential]":
        """Return the SCRAM credentials of all users; of passwords nothing is told."""
        from ottla.client.asyncio.users import Users

        work = Users(self._core.shared_cluster()).list_credentials()
        return await within("list users", work, timeout)

    async def list_acls(
        self, wanted: "AclFilter | None" = None, *, timeout: float | None = None
    ) -> "list[Acl]":
        """Return the ACLs that a filter wants; None: all."""
        from ottla.client.asyncio.acls import Acls
        from ottla.security.acl_filter import AclFilter

        work = Acls(self._core.shared_cluster()).find(wanted or AclFilter())
        return await within("list ACLs", work, timeout)

    async def create_acls(self, acls: "Sequence[Acl]", *, timeout: float | None = None) -> None:
        """Add ACLs."""
        from ottla.client.asyncio.acls import Acls

        await within("create ACLs", Acls(self._core.shared_cluster()).create(acls), timeout)

    async def delete_acls(self, acls: "Sequence[Acl]", *, timeout: float | None = None) -> None:
        """Delete ACLs."""
        from ottla.client.asyncio.acls import Acls

        await within("delete ACLs", Acls(self._core.shared_cluster()).delete(acls), timeout)

    async def list_quotas(
        self, wanted: QuotaEntity | None = None, *, timeout: float | None = None
    ) -> "list[ClientQuota]":
        """Return the quotas of the entities that have the parts of ``wanted``; None: of all."""
        from ottla.client.asyncio.quotas import Quotas

        work = Quotas(self._core.shared_cluster()).list_quotas(wanted)
        return await within("list quotas", work, timeout)

    async def set_quota(
        self,
        entity: QuotaEntity,
        bounds: Mapping[str, float | None],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set the bounds of an entity; None removes one. The others stay."""
        from ottla.client.asyncio.quotas import Quotas

        await within(
            "set a quota", Quotas(self._core.shared_cluster()).alter(entity, bounds), timeout
        )

    @property
    def _topics(self) -> Admin:
        self._core.check("administer")
        return Admin(self._core.shared_cluster())

    @property
    def _groups(self) -> Groups:
        self._core.check("administer")
        return Groups(self._core.shared_cluster())
