"""Decides who may do what: Kafka's StandardAuthorizer as a lookup.

Owns an index of all ACLs and the rules by which they are read. Pure: the ACLs come from whoever
follows the metadata, the principal and its host from the connection.

0. A node of the cluster may do CLUSTER_ACTION, and nothing else.
1. A super user may do everything.
2. The ACLs that count are those with the resource's literal name, with a prefix of it, and with the
   literal name "*". A PREFIXED "*" is the prefix "*" and nothing else.
3. If there are none, of any principal, ``is_open`` decides.
4. Of them count those of the principal or of everybody, and of the host or of all hosts. A host is
   the text of an address; one of IPv6 in any of its usual forms (``addresses``).
5. One that denies the operation, or ALL: no. 6. One that allows the operation, ALL, or an operation
   that implies it: yes. 7. Else no.

A question costs one lookup for each length that a prefix of that type has, never one for each ACL.
Source: KIP-11, KIP-290, KIP-679 (``may_some``); the answers of a live Kafka 4.3.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.ids import NODE_KIND, Principal
from ottla.security.acl import (
    ALLOWED_BY,
    DENIED_BY,
    EVERYBODY,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from ottla.security.acl_filter import AclFilter, PatternFilter

UNKNOWN_NAME = "hardcode"
"""What Kafka asks about for "any resource": no pattern but a wildcard is likely to fit it."""

_Rules = dict[str, set[Rule]]
"""By the name of the ACLs. Invariant: no set is empty."""


class Authorizer:
    """All ACLs, and the answers that follow from them."""

    def __init__(self, super_users: Iterable[Principal] = (), *, is_open: bool = False) -> None:
        """``is_open``: whether everybody may use what no ACL is about."""
        self._super_users = frozenset(super_users)
        self._is_open = is_open
        self._literal: dict[ResourceType, _Rules] = {kind: {} for kind in ResourceType}
        self._prefixed: dict[ResourceType, _Rules] = {kind: {} for kind in ResourceType}
        self._lengths: dict[ResourceType, list[int]] = {}
        """Use: the lengths of PREFIXED names, ascending; what else may match needs no look."""
        self._counts: Counter[tuple[ResourceType, int]] = Counter()
        """Use: how many PREFIXED names there are of a type and length."""
        self.epoch = 0
        """Grows with each change: decisions that were kept from before are worth nothing."""
        self.tells_allowed = False
        """Use: whether somebody wants to hear of what is allowed, too."""

    def __len__(self) -> int:
        """Return how many ACLs there are."""
        tables = (*self._literal.values(), *self._prefixed.values())
        return sum(len(rules) for table in tables for rules in table.values())

    def add(self, acl: Acl) -> None:
        """Take an ACL in. Harmless when it is there."""
        table = self._table(acl)
        rules = table.get(acl.resource.name)
        if rules is None:
            rules = table[acl.resource.name] = set()
            if acl.pattern is Pattern.PREFIXED:
                self._note_length(acl.resource)
        rules.add(acl.rule)
        self.epoch += 1

    def remove(self, acl: Acl) -> None:
        """Forget an ACL. Harmless when it is not there."""
        table = self._table(acl)
        rules = table.get(acl.resource.name)
        if rules is None:
            return
        rules.discard(acl.rule)
        if not rules:
            del table[acl.resource.name]
            if acl.pattern is Pattern.PREFIXED:
                self._forget_length(acl.resource)
        self.epoch += 1

    def may(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Tell whether ``principal``, connected from ``host``, may do this to that resource."""
        if principal.kind == NODE_KIND:
            return operation is Operation.CLUSTER_ACTION
        if principal in self._super_users:
            return True
        asker, hosts = str(principal), addresses(host)
        has_acl = is_allowed = False
        allowed_by, denied_by = ALLOWED_BY[operation], DENIED_BY[operation]
        for rules in self._about(resource):
            has_acl = True
            for rule in rules:
                if rule.principal not in (asker, EVERYBODY) or rule.host not in hosts:
                    continue
                if rule.permission is Permission.DENY:
                    if rule.operation in denied_by:
                        return False
                elif rule.operation in allowed_by:
                    is_allowed = True
        return is_allowed if has_acl else self._is_open

    def may_some(
        self, principal: Principal, host: str, operation: Operation, type: ResourceType
    ) -> bool:
        """Tell whether ``principal`` may do this to any resource of a type that there might be.

        Only the operation and ALL count, nothing is implied. Costs a look at each ACL of the type.
        """
        if self.may(principal, host, operation, Resource(type, UNKNOWN_NAME)):
            return True
        if principal.kind == NODE_KIND:
            return False
        literals: dict[Permission, set[str]] = {Permission.DENY: set(), Permission.ALLOW: set()}
        prefixes: dict[Permission, set[str]] = {Permission.DENY: set(), Permission.ALLOW: set()}
        asker, hosts = str(principal), addresses(host)
        for names, table in ((literals, self._literal[type]), (prefixes, self._prefixed[type])):
            for name, rules in table.items():
                for rule in rules:
                    if (
                        rule.principal in (asker, EVERYBODY)
                        and rule.host in hosts
                        and rule.operation in DENIED_BY[operation]
                    ):
                        names[rule.permission].add(name)
        if WILDCARD in literals[Permission.DENY]:
            return False
        if WILDCARD in literals[Permission.ALLOW]:
            return True
        denied_literals, denied_prefixes = literals[Permission.DENY], prefixes[Permission.DENY]
        return any(
            name not in denied_literals and not _has_prefix(name, denied_prefixes)
            for name in literals[Permission.ALLOW]
        ) or any(not _has_prefix(name, denied_prefixes) for name in prefixes[Permission.ALLOW])

    def select(self, wanted: AclFilter) -> Iterator[Acl | None]:
        """Yield the ACLs that a filter wants, and None for each that it has looked at in vain.

        A filter with a name costs a look at the ACLs whose name fits, one without at all of its
        type. ACLs may come and go between two of them.
        """
        for kind in ResourceType if wanted.type is None else (wanted.type,):
            for pattern, table in (
                (Pattern.LITERAL, self._literal[kind]),
                (Pattern.PREFIXED, self._prefixed[kind]),
            ):
                for name in self._names(wanted, kind, pattern, table):
                    for rule in list(table.get(name, ())):
                        acl = Acl(Resource(kind, name), pattern, rule)
                        yield acl if wanted.matches(acl) else None

    def _names(
        self, wanted: AclFilter, kind: ResourceType, pattern: Pattern, table: _Rules
    ) -> Iterable[str]:
        """Return the names, of ACLs of one type and pattern, that the filter may want."""
        name = wanted.name
        if name is None:
            return list(table)
        if wanted.pattern is not PatternFilter.MATCH:
            return (name,)
        if pattern is Pattern.LITERAL:
            return {name, WILDCARD}
        return [name[:length] for length in self._lengths.get(kind, ()) if length <= len(name)]

    def _about(self, resource: Resource) -> list[set[Rule]]:
        """Return the rules of each ACL name that fits the resource; none of them is empty."""
        kind, name = resource
        literal = self._literal[kind]
        found = [literal.get(name)]
        if name != WILDCARD:
            found.append(literal.get(WILDCARD))
        prefixed, length = self._prefixed[kind], len(name)
        for prefix_length in self._lengths.get(kind, ()):
            if prefix_length > length:
                break
            found.append(prefixed.get(name[:prefix_length]))
        return [rules for rules in found if rules]

    def _table(self, acl: Acl) -> _Rules:
        tables = self._literal if acl.pattern is Pattern.LITERAL else self._prefixed
        return tables[acl.resource.type]

    def _note_length(self, resource: Resource) -> None:
        length = len(resource.name)
        self._counts[resource.type, length] += 1
        if self._counts[resource.type, length] == 1:
            insort(self._lengths.setdefault(resource.type, []), length)

    def _forget_length(self, resource: Resource) -> None:
        length = len(resource.name)
        self._counts[resource.type, length] -= 1
        if not self._counts[resource.type, length]:
            del self._counts[resource.type, length]
            lengths = self._lengths[resource.type]
            del lengths[bisect_left(lengths, length)]


def addresses(host: str) -> tuple[str, ...]:
    """Return each text by which an ACL may name the address ``host``, and "*".

    One of IPv6 is written short, as people and sockets do, and as Java does, where an ACL of a
    Kafka cluster comes from: without "::". One that maps an address of IPv4 is that address.
    """
    if ":" not in host:
        return host, WILDCARD
    from ipaddress import IPv6Address  # noqa: PLC0415 - most clients need none

    try:
        address = IPv6Address(host)
    except ValueError:
        return host, WILDCARD
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped), host, WILDCARD
    zone = f"%{address.scope_id}" if address.scope_id else ""
    plain = IPv6Address(int(address))
    of_java = ":".join(f"{int(part, 16):x}" for part in plain.exploded.split(":"))
    return host, str(plain), of_java, of_java + zone, WILDCARD


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(len(name) + 1))
