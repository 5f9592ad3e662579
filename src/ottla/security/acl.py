"""An access control list: who may, or may not, do what with which resources, from which host.

Owns the words (resource types, operations, patterns, permissions) with their numbers on the wire,
and what an operation implies. Decides nothing about a principal: see ``authorizer``.
Source: KIP-11, KIP-290; the answers of a live Kafka 4.3 with its StandardAuthorizer.
"""

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
"""As a LITERAL name: every resource of the type. As a host: every host."""
EVERYBODY = "User:*"
"""The principal that stands for all."""


class ResourceType(IntEnum):
    """What an ACL is about; the numbers are the protocol's."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How an ACL's name is compared with a resource's; the numbers are the protocol's."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done; the numbers are the protocol's, and the bits of authorizedOperations."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether it may be done; the numbers are the protocol's."""

    DENY = 2
    ALLOW = 3


_Op = Operation
ALLOWED_BY: dict[Operation, frozenset[Operation]] = {
    **{operation: frozenset({operation, _Op.ALL}) for operation in Operation},
    _Op.DESCRIBE: frozenset({_Op.DESCRIBE, _Op.ALL, _Op.READ, _Op.WRITE, _Op.DELETE, _Op.ALTER}),
    _Op.DESCRIBE_CONFIGS: frozenset({_Op.DESCRIBE_CONFIGS, _Op.ALL, _Op.ALTER_CONFIGS}),
}
"""The operations of which one that is allowed allows this one, too."""
DENIED_BY: dict[Operation, frozenset[Operation]] = {
    operation: frozenset({operation, _Op.ALL}) for operation in Operation
}
"""The operations of which one that is denied denies this one: nothing is implied."""


OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _Op.READ,
        _Op.WRITE,
        _Op.CREATE,
        _Op.DESCRIBE,
        _Op.DELETE,
        _Op.ALTER,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _Op.READ,
        _Op.DESCRIBE,
        _Op.DELETE,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _Op.CREATE,
        _Op.CLUSTER_ACTION,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
        _Op.ALTER,
        _Op.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_Op.DESCRIBE, _Op.WRITE, _Op.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_Op.DESCRIBE,),
    ResourceType.USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}
"""What can be done with a resource of each type, but for ALL."""


class Resource(NamedTuple):
    """What a question is about, or an ACL together with its pattern."""

    type: ResourceType
    name: str


class Rule(NamedTuple):
    """What an ACL says of the resources that its name and pattern choose."""

    principal: str
    """``User:alice``; EVERYBODY for all."""
    host: str
    """The text of an address; WILDCARD for all. No names, no ranges."""
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One entry of the list."""

    resource: Resource
    pattern: Pattern
    rule: Rule
