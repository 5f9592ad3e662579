"""Filters of ACLs, as DescribeAcls and DeleteAcls have them.

Owns what a filter means. ``Authorizer.select`` finds the ACLs that may match without a look at all.
Source: KIP-140, KIP-290; the answers of a live Kafka 4.3.
"""

from enum import IntEnum
from typing import NamedTuple

from ottla.security.acl import WILDCARD, Acl, Operation, Pattern, Permission, ResourceType


class PatternFilter(IntEnum):
    """Which patterns a filter wants; the numbers are the protocol's."""

    ANY = 1
    """Literal and prefixed ones of exactly the filter's name."""
    MATCH = 2
    """All that apply to a resource of the filter's name: also prefixes of it, and "*"."""
    LITERAL = 3
    PREFIXED = 4


ANY = 1
"""The protocol's number of any type, operation or permission; AclFilter has None for it."""


class AclFilter(NamedTuple):
    """What ACLs somebody asks for; None stands for any."""

    type: ResourceType | None = None
    name: str | None = None
    pattern: PatternFilter = PatternFilter.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, acl: Acl) -> bool:
        """Whether the filter wants this ACL. An operation that is implied does not count."""
        rule = acl.rule
        return (
            self.type in (None, acl.resource.type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
            and self._wants_name(acl.resource.name, acl.pattern)
        )

    def _wants_name(self, name: str, pattern: Pattern) -> bool:
        wanted = self.pattern
        if wanted in (PatternFilter.LITERAL, PatternFilter.PREFIXED):
            return wanted.value == pattern.value and self.name in (None, name)
        if self.name is None or self.name == name:
            return True
        if wanted is PatternFilter.ANY:
            return False
        if pattern is Pattern.PREFIXED:
            return self.name.startswith(name)
        return name == WILDCARD
