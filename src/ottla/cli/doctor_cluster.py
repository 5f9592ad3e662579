"""``ottla doctor HOST:PORT``: how a cluster is doing, and who might get in. Changes nothing.

Owns the questions: what may be asked with the rights of this user is asked, and what may not is
told as such. ``doctor_findings`` judges. Works on any Kafka; asks each broker at the address that
it tells its clients.
"""

import asyncio
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ottla.cli.doctor_findings import (
    Bound,
    Certificate,
    Disk,
    Facts,
    Finding,
    IdleGroup,
    Rule,
    Severity,
    examine,
)
from ottla.cli.failure import WHY_INDENT, Exit
from ottla.cli.output import Format, Row, RowWriter, chosen, note, write_object
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.settings import Address
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition

GROUPS_MAX = 1_000
"""So many groups without members are looked at."""
TOPICS_MAX = 100
"""Of so many topics that lack replicas min.insync.replicas is asked for."""
AT_A_TIME = 16
COLUMNS = ("severity", "check", "subject", "what", "why", "fix")
_KEYS = (
    *("listeners", "listener.security.protocol.map", "controller.listener.names"),
    *("super.users", "allow.everyone.if.no.acl.found", "auto.create.topics.enable"),
)
_MIN_ISR = "min.insync.replicas"
_OF_EXAMPLES = (
    *(("admin", "admin"), ("admin", "admin-secret"), ("alice", "alice-secret")),
    *(("user", "bitnami"), ("kafka", "kafka")),
)
"""Logins that stand in widely copied examples, Kafka's own among them."""
_NEWEST = -3
"""In ListOffsets: where the newest timestamp is."""
_QUORUM_TOPIC = "__cluster_metadata"


def doctor_of_cluster(options: Namespace) -> None:
    """Examine the cluster. Exits with 1 when something is an error, or odd with --strict."""

    async def command(cluster: Cluster) -> None:
        facts = await _facts(cluster, options)
        findings = examine(facts)
        _show(options, facts, findings)
        sys.stdout.flush()
        failing = (Severity.ERROR, Severity.WARNING) if options.strict else (Severity.ERROR,)
        if any(one.severity in failing for one in findings):
            sys.exit(Exit.FAILED)

    run(options, command)


async def _facts(cluster: Cluster, options: Namespace) -> Facts:
    view = await cluster.refresh(None)
    asked = str(cluster.settings.bootstrap[0])
    facts = Facts(asked=asked, now=_now(), view=view)
    facts.unreachable = await _unreachable(cluster)
    reached = len(facts.unreachable) < len(view.brokers)
    if not reached:
        return facts
    if facts.unreachable:
        left = {node: at for node, at in view.brokers.items() if node not in facts.unreachable}
        cluster.view = replace(view, brokers=left)
    asking: list[tuple[str, Callable[[Cluster, Facts], Awaitable[None]]]] = [
        ("the brokers' configuration", _ask_configs),
        ("min.insync.replicas of topics", _ask_min_isr),
        ("the disks", _ask_disks),
        ("groups", _ask_groups),
        ("ACLs", _ask_acls),
        ("quotas", _ask_quotas),
        ("clocks", _ask_clocks),
    ]
    for what, ask in asking:
        try:
            await ask(cluster, facts)
        except OttlaError as error:
            facts.untold[what] = str(error)
    facts.certificates = await _certificates(cluster, facts)
    if not options.no_logins:
        facts.weak_logins = await _weak_logins(cluster)
    return facts


async def _each(items: Iterable[object], ask: Callable[..., Awaitable[None]]) -> None:
    """Ask about all of them, some at a time."""
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(item: object) -> None:
        async with room:
            await ask(item)

    await asyncio.gather(*map(one, items))


async def _unreachable(cluster: Cluster) -> dict[int, str]:
    """Return why brokers cannot be reached at the addresses that they tell."""
    found: dict[int, str] = {}

    async def reach(broker: int) -> None:
        try:
            await cluster.connection(broker)
        except OttlaError as error:
            found[broker] = str(error)

    await _each(sorted(cluster.view.brokers), reach)
    return dict(sorted(found.items()))


async def _ask_configs(cluster: Cluster, facts: Facts) -> None:
    from ottla.client.asyncio.configs import Configs, Resource, ResourceType

    configs: dict[int, dict[str, str]] = {}
    for broker in sorted(cluster.view.brokers):
        entries = await Configs(cluster).describe(Resource(ResourceType.BROKER, str(broker)), _KEYS)
        configs[broker] = {one.key: one.value for one in entries if one.value is not None}
        for one in entries:
            if one.value is None and one.is_sensitive:
                facts.untold[one.key] = "the broker keeps it to itself"
    facts.configs = configs


async def _ask_min_isr(cluster: Cluster, facts: Facts) -> None:
    from ottla.client.asyncio.configs import Configs, Resource, ResourceType

    lacking = [
        name
        for name, topic in sorted(facts.view.topics.items())
        if any(len(one.isr) < len(one.replicas) for one in topic.partitions.values())
    ]
    found: dict[str, int] = {}

    async def ask(name: str) -> None:
        resource = Resource(ResourceType.TOPIC, name)
        for entry in await Configs(cluster).describe(resource, [_MIN_ISR]):
            found[name] = int(entry.value or 1)

    await _each(lacking[:TOPICS_MAX], ask)
    facts.min_isr = found


async def _ask_disks(cluster: Cluster, facts: Facts) -> None:
    from ottla.client.asyncio.partitions import Partitions

    # Of a partition that is not there: only the directories are wanted, not all their replicas.
    nothing = [TopicPartition("", 0)]
    facts.disks = [
        Disk(
            each.broker_id,
            each.path,
            each.free_bytes,
            each.total_bytes,
            "" if each.error is ErrorCode.NONE else each.error.text,
        )
        for each in await Partitions(cluster).log_dirs(nothing)
    ]


async def _ask_groups(cluster: Cluster, facts: Facts) -> None:
    """Ask how far groups without members are behind."""
    from ottla.client.asyncio.groups import Groups
    from ottla.client.wire.offsets import LATEST

    groups = Groups(cluster)
    listed = await groups.list_groups(states=["Empty"])
    empty = [one.group for one in listed if one.state.lower() == "empty"]
    offsets: dict[str, dict[TopicPartition, int]] = {}

    async def ask(name: str) -> None:
        committed = await groups.committed(name)
        offsets[name] = {where: one.offset for where, one in committed.items()}

    await _each(empty[:GROUPS_MAX], ask)
    wanted = {where for one in offsets.values() for where in one if _is_led(facts, where)}
    ends = await cluster.list_offsets(dict.fromkeys(wanted, LATEST)) if wanted else {}
    facts.groups = [
        IdleGroup(name, lag)
        for name, one in sorted(offsets.items())
        if (lag := sum(max(ends[w].offset - at, 0) for w, at in one.items() if w in ends))
    ]
    if len(empty) > GROUPS_MAX:
        why = f"there are {len(empty):,} without members"
        facts.untold[f"all groups, but {GROUPS_MAX:,}"] = why


def _is_led(facts: Facts, where: TopicPartition) -> bool:
    """Whether somebody who can be reached leads the partition."""
    topic = facts.view.topics.get(where.topic)
    found = None if topic is None else topic.partitions.get(where.partition)
    if found is None or found.leader in facts.unreachable:
        return False
    return found.leader in facts.view.brokers


async def _ask_acls(cluster: Cluster, facts: Facts) -> None:
    from ottla.client.asyncio.acls import Acls
    from ottla.security.acl import EVERYBODY, WILDCARD, Permission
    from ottla.security.acl_filter import AclFilter

    try:
        acls = await Acls(cluster).find(AclFilter(principal=EVERYBODY))
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        facts.has_authorizer = False
        return
    facts.has_authorizer = True
    facts.open_rules = [
        Rule(
            acl.rule.principal,
            f"{acl.rule.operation.name.lower().replace('_', ' ')} "
            f"{acl.resource.type.name.lower().replace('_', ' ')} {acl.resource.name}",
        )
        for acl in acls
        if acl.rule.permission is Permission.ALLOW and acl.rule.host == WILDCARD
    ]


async def _ask_quotas(cluster: Cluster, facts: Facts) -> None:
    from ottla.client.asyncio.quotas import Quotas

    facts.quotas = [
        Bound(
            ", ".join(
                f"{kind} {name or '(default)'}"
                for kind, name in zip(("user", "client", "ip"), one.entity, strict=True)
                if name is not None
            ),
            key,
            value,
        )
        for one in await Quotas(cluster).list_quotas()
        for key, value in one.bounds.items()
    ]


async def _ask_clocks(cluster: Cluster, facts: Facts) -> None:
    """Compare the clocks, as far as a cluster tells its own.

    Kafka's controller does. Else the newest record of a topic that brokers write themselves counts:
    it tells only that they are ahead.
    """
    told = await _time_of_quorum(cluster)
    if told is not None:
        facts.ahead_seconds = told
        return
    internal = [
        TopicPartition(name, number)
        for name, topic in facts.view.topics.items()
        if name in ("__consumer_offsets", "__transaction_state")
        for number in topic.partitions
    ]
    wanted = [where for where in internal if _is_led(facts, where)]
    if not wanted:
        return
    began = _now()
    found = await cluster.list_offsets(dict.fromkeys(wanted, _NEWEST))
    newest = max(one.timestamp for one in found.values()) / 1000
    facts.ahead_seconds = max(newest - began, 0.0) if newest > 0 else None


async def _time_of_quorum(cluster: Cluster) -> float | None:
    """Return how many seconds the leader of the metadata is ahead; None: it does not tell."""
    from ottla.protocol.messages import describe_quorum as quorum

    connection = await cluster.any()
    if quorum.DescribeQuorumRequest.API_KEY not in connection.exchange.versions:
        return None
    topics = [
        quorum.TopicData(
            topic_name=_QUORUM_TOPIC, partitions=[quorum.PartitionData(partition_index=0)]
        )
    ]
    began = _now()
    answer = await connection.call(
        quorum.DescribeQuorumRequest(topics=topics), quorum.DescribeQuorumResponse
    )
    ended = _now()
    for topic in answer.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                told = voter.last_caught_up_timestamp
                if voter.replica_id == partition.leader_id and told > 0:
                    return told / 1000 - (began + ended) / 2
    return None


def _now() -> float:
    return SystemClock().wall_ms() / 1000


async def _certificates(cluster: Cluster, facts: Facts) -> list[Certificate]:
    """Look at the certificate of each address that this client comes by, if it has TLS."""
    files = cluster.settings.security.tls
    if files is None:
        return []
    from ottla.env.tls_probe import look

    seconds = max(cluster.settings.connect_timeout_ms / 1000, 1.0)
    found: list[Certificate] = []

    async def ask(address: Address) -> None:
        try:
            seen = await asyncio.to_thread(look, address.host, address.port, files, seconds)
        except OSError as error:
            facts.untold[f"the certificate of {address}"] = str(error)
            return
        found.append(Certificate(str(address), *seen))

    await _each(dict.fromkeys(cluster.view.brokers.values()), ask)
    return sorted(found)


async def _weak_logins(cluster: Cluster) -> list[str]:
    """Try the logins of everybody's examples, where this client logs in by a password."""
    from ottla.client.asyncio.connection import Connection
    from ottla.client.wire.security import OAUTHBEARER, Credentials
    from ottla.env.real_net import AsyncioNet

    settings = cluster.settings
    mine = settings.security.sasl
    if mine is None or mine.mechanism == OAUTHBEARER:
        return []
    found: list[str] = []
    net = AsyncioNet()
    address = next(iter(cluster.view.brokers.values()))

    async def attempt(login: tuple[str, str]) -> None:
        tried = replace(settings.security, sasl=Credentials(mine.mechanism, *login))
        try:
            connection = await Connection.open(net, address, replace(settings, security=tried))
        except OttlaError:
            return
        connection.close()
        found.append(login[0])

    await _each(_OF_EXAMPLES, attempt)
    return sorted(set(found))


def _show(options: Namespace, facts: Facts, findings: list[Finding]) -> None:
    format_ = Format.TABLE if options.output is None else chosen(options.output)
    brokers = facts.view.brokers
    summary: dict[str, Row | str | int] = {
        "cluster_id": facts.view.cluster_id,
        "brokers": len(brokers),
        "brokers_reached": len(brokers) - len(facts.unreachable),
        "topics": len(facts.view.topics),
        "partitions": sum(len(topic.partitions) for topic in facts.view.topics.values()),
    }
    rows = [one._asdict() | {"severity": str(one.severity)} for one in findings]
    if format_ in (Format.JSON, Format.YAML):
        write_object({**summary, "findings": rows}, format_)
        return
    with RowWriter(format_, header=not options.no_header) as writer:
        if writer.is_table:
            for name, value in summary.items():
                writer.line(f"{name.replace('_', ' '):15}  {value}")
        for row in rows:
            if not writer.is_table:
                writer.write(row, COLUMNS)
                continue
            writer.line(f"{row['severity']}: {row['subject']}  ({row['check']})")
            writer.line(f"  {row['what']}", indent="  ")
            for name in ("why", "fix"):
                if row[name]:
                    is_copied = row[name].startswith("ottla ")
                    writer.line(f"  {name}: {row[name]}", indent=None if is_copied else WHY_INDENT)
    if not findings:
        note("nothing odd was found")
