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

A question costs some lookups for each length that a prefix of that type has, never one for each
ACL, however many are about the same name.
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

_Asker = tuple[str, str]
"""Whom a rule is about: its principal and its host, as written."""
_Rules = dict[str, dict[_Asker, int]]
"""By the name of the ACLs, what they say, as bits. Invariant: no mapping is empty, no number 0."""
_DENIED_AT = 16
"""An operation that is allowed is the bit of its number; one that is denied so many bits higher."""
_ALLOWED_BITS = {
    operation: sum(1 << each for each in allowed) for operation, allowed in ALLOWED_BY.items()
}
_DENIED_BITS = {
    operation: sum(1 << each for each in denied) << _DENIED_AT
    for operation, denied in DENIED_BY.items()
}
"""By the operation that is asked for: the bits of which one is enough."""


class Authorizer:
    """All ACLs, and the answers that follow from them."""

    def __init__(self, super_users: Iterable[Principal] = (), *, is_open: bool = False) -> None:
        """``is_open``: whether everybody may use what no ACL is about."""
        self._super_users = frozenset(super_users)
        self._is_open = is_open
        self._literal: dict[ResourceType, _Rules] = {kind: {} for kind in ResourceType}
        self._prefixed: dict[ResourceType, _Rules] = {kind: {} for kind in ResourceType}
        self._names_of: dict[ResourceType, dict[_Asker, set[tuple[Pattern, str]]]] = {
            kind: {} for kind in ResourceType
        }
        """Use: the names of all rules about somebody. Invariant: no set is empty."""
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
        return sum(
            bits.bit_count()
            for table in tables
            for rules in table.values()
            for bits in rules.values()
        )

    def add(self, acl: Acl) -> None:
        """Take an ACL in. Harmless when it is there."""
        (kind, name), pattern, rule = acl
        table = self._table(acl)
        rules = table.get(name)
        if rules is None:
            rules = table[name] = {}
            if pattern is Pattern.PREFIXED:
                self._note_length(acl.resource)
        asker = rule.principal, rule.host
        rules[asker] = rules.get(asker, 0) | _bit(rule)
        self._names_of[kind].setdefault(asker, set()).add((pattern, name))
        self.epoch += 1

    def remove(self, acl: Acl) -> None:
        """Forget an ACL. Harmless when it is not there."""
        (kind, name), pattern, rule = acl
        table, asker = self._table(acl), (rule.principal, rule.host)
        rules = table.get(name, {})
        if asker not in rules:
            return
        self.epoch += 1
        rules[asker] &= ~_bit(rule)
        if rules[asker]:
            return
        del rules[asker]
        names = self._names_of[kind][asker]
        names.remove((pattern, name))
        if not names:
            del self._names_of[kind][asker]
        if not rules:
            del table[name]
            if pattern is Pattern.PREFIXED:
                self._forget_length(acl.resource)

    def may(
        self, principal: Principal, host: str, operation: Operation, resource: Resource
    ) -> bool:
        """Tell whether ``principal``, connected from ``host``, may do this to that resource."""
        if principal.kind == NODE_KIND:
            return operation is Operation.CLUSTER_ACTION
        if principal in self._super_users:
            return True
        found = self._about(resource)
        if not found:
            return self._is_open
        bits, askers = 0, _askers(principal, host)
        for rules in found:
            for asker in askers:
                bits |= rules.get(asker, 0)
        return not bits & _DENIED_BITS[operation] and bool(bits & _ALLOWED_BITS[operation])

    def may_some(
        self, principal: Principal, host: str, operation: Operation, type: ResourceType
    ) -> bool:
        """Tell whether ``principal`` may do this to any resource of a type that there might be.

        Only the operation and ALL count, nothing is implied. Costs a look at each ACL of the type
        that is about this principal or about everybody.
        """
        if self.may(principal, host, operation, Resource(type, UNKNOWN_NAME)):
            return True
        if principal.kind == NODE_KIND:
            return False
        denied: dict[Pattern, set[str]] = {pattern: set() for pattern in Pattern}
        allowed: dict[Pattern, set[str]] = {pattern: set() for pattern in Pattern}
        denies = _DENIED_BITS[operation]
        allows = denies >> _DENIED_AT
        tables = {Pattern.LITERAL: self._literal[type], Pattern.PREFIXED: self._prefixed[type]}
        for asker in _askers(principal, host):
            for pattern, name in self._names_of[type].get(asker, ()):
                bits = tables[pattern][name][asker]
                if bits & denies:
                    denied[pattern].add(name)
                if bits & allows:
                    allowed[pattern].add(name)
        if WILDCARD in denied[Pattern.LITERAL]:
            return False
        if WILDCARD in allowed[Pattern.LITERAL]:
            return True
        prefixes = denied[Pattern.PREFIXED]
        lengths = sorted({len(prefix) for prefix in prefixes})
        names = (allowed[Pattern.LITERAL] - denied[Pattern.LITERAL]) | allowed[Pattern.PREFIXED]
        return any(not any(name[:length] in prefixes for length in lengths) for name in names)

    def select(self, wanted: AclFilter) -> Iterator[Acl | None]:
        """Yield the ACLs that a filter wants, and None for each that it has looked at in vain.

        A filter with a name costs a look at the ACLs whose name fits, one without at all of its
        type; one with a name, a principal and a host to those of these. ACLs may come and go
        between two of them.
        """
        for kind in ResourceType if wanted.type is None else (wanted.type,):
            for pattern, table in (
                (Pattern.LITERAL, self._literal[kind]),
                (Pattern.PREFIXED, self._prefixed[kind]),
            ):
                for name in self._names(wanted, kind, pattern, table):
                    for asker, bits in _of_askers(wanted, table.get(name, {})):
                        for rule in _rules(asker, bits):
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

    def _about(self, resource: Resource) -> list[dict[_Asker, int]]:
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


def _askers(principal: Principal, host: str) -> list[_Asker]:
    """Return the principals and hosts of all rules that are about a client."""
    hosts = dict.fromkeys(addresses(host))
    return [(name, each) for name in dict.fromkeys((str(principal), EVERYBODY)) for each in hosts]


def _of_askers(wanted: AclFilter, rules: dict[_Asker, int]) -> list[tuple[_Asker, int]]:
    """Return the rules about one name that a filter may want, by whom they are about."""
    if wanted.principal is None or wanted.host is None:
        return list(rules.items())
    asker = wanted.principal, wanted.host
    bits = rules.get(asker, 0)
    return [(asker, bits)] if bits else []


def _bit(rule: Rule) -> int:
    bit = 1 << rule.operation
    return bit if rule.permission is Permission.ALLOW else bit << _DENIED_AT


def _rules(asker: _Asker, bits: int) -> Iterator[Rule]:
    """Yield the rules that ``bits`` stand for."""
    for operation in Operation:
        if bits >> operation & 1:
            yield Rule(*asker, operation, Permission.ALLOW)
        if bits >> operation + _DENIED_AT & 1:
            yield Rule(*asker, operation, Permission.DENY)
