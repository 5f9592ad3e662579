"""What is odd about a cluster, judged by what a client has seen of it.

Pure: facts in, findings out. Each finding has the name of its check, which scripts may rely on.
``doctor_cluster`` asks for the facts. Source: docs/security.md, "Before production".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ottla.cli.output import counted
from ottla.client.wire.view import NO_LEADER, ClusterView
from ottla.config.human import size_text

DISK_WARNING, DISK_ERROR = 0.10, 0.02
"""A disk with a smaller share of free space is nearly full, or as good as full."""
CERTIFICATE_DAYS = 30
"""A certificate that ends within so many days ends soon."""
SKEW_SECONDS = 5.0
NAMES_MAX = 5
"""So many names stand in a finding, then how many more there are."""
STARVING_PERCENT = 1.0
"""With a smaller ``request_percentage`` even heartbeats wait too long."""
_LOOPBACK = ("localhost", "127.", "::1", "0:0:0:0:0:0:0:1")
_DAY = 86_400


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Clients fail, or will."""
    WARNING = "warning"
    """Somebody may get in, or something may fail soon."""
    NOTE = "note"
    """Worth a word; also what could not be looked at."""


class Finding(NamedTuple):
    """One thing noticed."""

    severity: Severity
    check: str
    subject: str
    """What it is about: a broker, a topic, a listener, a group, the cluster."""
    what: str
    why: str = ""
    fix: str = ""


class Disk(NamedTuple):
    """A log directory; bytes are None where the broker does not tell."""

    broker_id: int
    path: str
    free_bytes: int | None
    total_bytes: int | None
    error: str


class Certificate(NamedTuple):
    """What a TLS listener shows; see ``env.tls_probe``."""

    address: str
    trouble: str
    ends_at: float | None
    speaks_old: bool | None


class IdleGroup(NamedTuple):
    """A group without members, and how many records it has not read."""

    name: str
    lag: int


class Rule(NamedTuple):
    """An ACL that allows something to everybody."""

    principal: str
    what: str


class Bound(NamedTuple):
    """A client quota."""

    entity: str
    key: str
    value: float


@dataclass
class Facts:
    """All that was seen. What is None was not told; ``untold`` says why."""

    asked: str
    """The address that was asked, HOST:PORT."""
    now: float
    """Seconds since 1970, by this machine."""
    view: ClusterView
    untold: dict[str, str] = field(default_factory=dict)
    """By what could not be asked, why."""
    unreachable: Mapping[int, str] = field(default_factory=dict)
    """By broker, why it could not be reached at the address that it tells."""
    configs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By broker, its configs that have a value and are no secret."""
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """By topic; of those only that lack replicas in sync."""
    disks: Sequence[Disk] = ()
    groups: Sequence[IdleGroup] = ()
    has_authorizer: bool | None = None
    open_rules: Sequence[Rule] = ()
    quotas: Sequence[Bound] | None = None
    certificates: Sequence[Certificate] = ()
    weak_logins: Sequence[str] = ()
    """Users whose password is one of those in everybody's examples."""
    ahead_seconds: float | None = None
    """How far the cluster's clock is before this machine's, at least."""


def examine(facts: Facts) -> list[Finding]:
    """Return what is odd, the worst first."""
    found = [
        *_brokers(facts),
        *_partitions(facts),
        *_single_replicas(facts),
        *_disks(facts),
        *_groups(facts),
        *_clocks(facts),
        *_listeners(facts),
        *_certificates(facts),
        *_rights(facts),
        *_logins(facts),
        *_quotas(facts),
        *_untold(facts),
    ]
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def _brokers(facts: Facts) -> Iterator[Finding]:
    for broker, why in facts.unreachable.items():
        address = facts.view.brokers[broker]
        fix = "check the network, or advertised.listeners of that broker"
        if is_loopback(address.host) and not is_loopback(facts.asked):
            fix = "advertised.listeners of that broker names its own machine: name its host there"
        yield Finding(
            Severity.ERROR,
            "broker.unreachable",
            f"broker {broker}",
            f"clients cannot reach it at {address}, which it tells them",
            why,
            fix,
        )
    if facts.view.brokers and facts.view.controller_id not in facts.view.brokers:
        yield Finding(
            Severity.WARNING,
            "cluster.controller",
            "cluster",
            "no broker is told to be the controller",
            fix="wait a moment and look again; changes of topics may fail meanwhile",
        )


def _partitions(facts: Facts) -> Iterator[Finding]:
    offline: list[str] = []
    below: list[str] = []
    lacking: list[str] = []
    for name, topic in sorted(facts.view.topics.items()):
        for number, one in sorted(topic.partitions.items()):
            where = f"{name}-{number}"
            if one.leader == NO_LEADER:
                offline.append(where)
            elif len(one.isr) < facts.min_isr.get(name, 1):
                below.append(where)
            elif len(one.isr) < len(one.replicas):
                lacking.append(where)
    if offline:
        yield Finding(
            Severity.ERROR,
            "partition.offline",
            _some(offline),
            "nobody leads them: they can be neither written nor read",
            fix="start the brokers that hold them; look at their disks and logs",
        )
    if below:
        yield Finding(
            Severity.ERROR,
            "partition.under-min-isr",
            _some(below),
            "fewer replicas are in sync than min.insync.replicas: acks=all is refused",
            fix="start the brokers that are missing; see that they catch up",
        )
    if lacking:
        yield Finding(
            Severity.WARNING,
            "partition.under-replicated",
            _some(lacking),
            "not all replicas are in sync",
            "one more broker that fails may take the newest records along",
            "start the brokers that are missing; see that they catch up",
        )


def _single_replicas(facts: Facts) -> Iterator[Finding]:
    single = [
        name
        for name, topic in sorted(facts.view.topics.items())
        if any(len(one.replicas) == 1 for one in topic.partitions.values())
    ]
    if single and len(facts.view.brokers) > 1:
        yield Finding(
            Severity.NOTE,
            "topic.single-replica",
            _some(single),
            "one replica each: a broker that is away takes them along",
        )


def _disks(facts: Facts) -> Iterator[Finding]:
    for disk in facts.disks:
        subject = f"broker {disk.broker_id}, {disk.path}"
        if disk.error:
            yield Finding(
                Severity.ERROR,
                "disk.offline",
                subject,
                "the directory is offline, and what is in it",
                disk.error,
                "see the broker's log; replace the disk",
            )
        elif disk.total_bytes and disk.free_bytes is not None:
            share = disk.free_bytes / disk.total_bytes
            if share < DISK_WARNING:
                free = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)}"
                yield Finding(
                    Severity.ERROR if share < DISK_ERROR else Severity.WARNING,
                    "disk.full",
                    subject,
                    f"{free} are free",
                    "a broker with a full disk takes no records",
                    "a shorter retention (ottla topic size shows the large ones), or a larger disk",
                )


def _groups(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        yield Finding(
            Severity.WARNING,
            "group.abandoned",
            f"group {group.name}",
            f"it has no members, and {counted(group.lag, 'record')} to read",
            "its consumers have stopped, or the group is no longer used",
            f"start them, or ottla group delete {group.name}",
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    ahead = facts.ahead_seconds
    if ahead is not None and abs(ahead) > SKEW_SECONDS:
        which = "before" if ahead > 0 else "behind"
        yield Finding(
            Severity.WARNING,
            "clock.skew",
            "cluster",
            f"its clock is {abs(ahead):,.0f} s {which} this machine's",
            "timestamps, retention, tokens and certificates go by the clocks",
            "set both by NTP",
        )


def _listeners(facts: Facts) -> Iterator[Finding]:
    for broker, configs in sorted(facts.configs.items()):
        protocols = _map_of(configs.get("listener.security.protocol.map", ""))
        for name, host in listeners_of(configs):
            protocol = protocols.get(name, name)
            subject = f"broker {broker}, listener {name}"
            if is_loopback(host):
                continue
            if protocol == "PLAINTEXT":
                yield Finding(
                    Severity.WARNING,
                    "listener.open",
                    subject,
                    "other machines get in without a login, and nothing is encrypted",
                    fix="SASL_SSL (docs/security.md), or 127.0.0.1 as its host",
                )
            elif protocol == "SASL_PLAINTEXT":
                yield Finding(
                    Severity.WARNING,
                    "listener.unencrypted",
                    subject,
                    "what clients of other machines send is not encrypted",
                    "with PLAIN and OAUTHBEARER that is the password, too",
                    "SASL_SSL",
                )


def _certificates(facts: Facts) -> Iterator[Finding]:
    for one in facts.certificates:
        if one.trouble:
            yield Finding(
                Severity.ERROR,
                "tls.refused",
                one.address,
                "clients refuse its certificate",
                one.trouble,
                "a certificate for that name, signed by what clients trust",
            )
        if one.ends_at is not None and one.ends_at - facts.now < CERTIFICATE_DAYS * _DAY:
            days = (one.ends_at - facts.now) / _DAY
            yield Finding(
                Severity.WARNING,
                "tls.ends-soon",
                one.address,
                f"its certificate ends in {max(days, 0):.0f} days",
                fix="renew it; Ottla takes new files without a restart",
            )
        if one.speaks_old:
            yield Finding(
                Severity.WARNING,
                "tls.old",
                one.address,
                "it speaks TLS 1.0 or 1.1",
                "they are broken, and clients no longer need them",
                "ssl.enabled.protocols=TLSv1.2,TLSv1.3",
            )


def _rights(facts: Facts) -> Iterator[Finding]:
    if facts.has_authorizer is False:
        yield Finding(
            Severity.WARNING,
            "acl.none",
            "cluster",
            "there is no authorizer: who gets in may do everything",
            fix="authorizer.class.name and super.users (docs/security.md)",
        )
    for broker, configs in sorted(facts.configs.items()):
        subject = f"broker {broker}"
        users = [one.strip() for one in configs.get("super.users", "").split(";") if one.strip()]
        wide = [one for one in users if one.partition(":")[2] in ("*", "ANONYMOUS")]
        if wide:
            yield Finding(
                Severity.WARNING,
                "acl.super-users",
                subject,
                f"super.users has {_some(wide)}",
                "ANONYMOUS is who does not log in; * is nobody's name in Kafka, so it was meant so",
                "name people there",
            )
        if facts.has_authorizer and configs.get("allow.everyone.if.no.acl.found") == "true":
            yield Finding(
                Severity.WARNING,
                "acl.open",
                subject,
                "everybody may use what no ACL is about (allow.everyone.if.no.acl.found)",
                fix="false, and ACLs for what is used",
            )
        if configs.get("auto.create.topics.enable") == "true" and facts.has_authorizer is False:
            yield Finding(
                Severity.NOTE,
                "topic.auto-create",
                subject,
                "whoever asks for a topic makes it (auto.create.topics.enable)",
                "a typing error is a topic, too",
            )
    for rule in facts.open_rules:
        yield Finding(
            Severity.WARNING,
            "acl.everybody",
            rule.principal,
            f"everybody may {rule.what}",
            fix="an ACL for those who need it, then ottla acl remove",
        )


def _logins(facts: Facts) -> Iterator[Finding]:
    for user in facts.weak_logins:
        yield Finding(
            Severity.ERROR,
            "login.default-password",
            f"user {user}",
            "its password is the one in everybody's examples",
            fix=f"ottla user set {user}",
        )


def _quotas(facts: Facts) -> Iterator[Finding]:
    if facts.quotas is not None and not facts.quotas:
        yield Finding(
            Severity.NOTE,
            "quota.none",
            "cluster",
            "no client has a quota: one may take everything from the others",
            fix="ottla quota set producer_byte_rate=... --user-default",
        )
    for one in facts.quotas or ():
        if one.key == "request_percentage" and one.value < STARVING_PERCENT:
            yield Finding(
                Severity.WARNING,
                "quota.starves",
                one.entity,
                f"request_percentage={one.value:g}: heartbeats wait behind other requests",
                "members then fall out of their groups",
                "at least 1",
            )


def _untold(facts: Facts) -> Iterator[Finding]:
    for what, why in facts.untold.items():
        yield Finding(
            Severity.NOTE, "not-looked-at", "cluster", f"could not look at {what}", why,
        )  # fmt: skip


def listeners_of(configs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return name and host of each of a broker's listeners; those of controllers are left out."""
    found: list[tuple[str, str]] = []
    controllers = {one.strip() for one in configs.get("controller.listener.names", "").split(",")}
    for each in configs.get("listeners", "").split(","):
        name, separator, address = each.strip().partition("://")
        if separator and name.upper() not in {one.upper() for one in controllers}:
            found.append((name.upper(), address.rpartition(":")[0].strip("[]")))
    return found


def _map_of(text: str) -> dict[str, str]:
    pairs = (each.strip().partition(":") for each in text.split(",") if each.strip())
    return {name.upper(): protocol.upper() for name, _, protocol in pairs}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host (or HOST:PORT)."""
    return host.lower().startswith(_LOOPBACK)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - NAMES_MAX
    shown = ", ".join(names[:NAMES_MAX])
    return f"{shown} and {rest} more" if rest > 0 else shown
