"""The options of the authorizer: which one there is, who stands above it, what it may hold.

Owns these options and what they must be together. A configuration that relies on an authorizer that
there is not is refused here, before anything starts.
Source: Kafka's broker configuration reference; KIP-11, KIP-801.
"""

from typing import NamedTuple

from ottla.config.bounds import POSITIVE
from ottla.config.config import Config
from ottla.config.option import BOOLEAN, INT, InvalidConfig, Option, ValueType
from ottla.ids import Principal

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
REMOVED_AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's own of the time of ZooKeeper; Kafka 4 has none of them."""


def read_authorizer(text: str) -> str:
    """Return the name of the authorizer's class, "" for none. Raises ValueError for another."""
    if text in ("", STANDARD_AUTHORIZER):
        return text
    why = "its ACLs were in ZooKeeper, it" if text in REMOVED_AUTHORIZERS else "a Java class"
    raise ValueError(f"{why} cannot be loaded; there is {STANDARD_AUTHORIZER} (or none)")


class Principals(NamedTuple):
    """Principals in the order of their list. ``str()`` gives the option's text."""

    listed: tuple[Principal, ...] = ()

    def __str__(self) -> str:
        return ";".join(map(str, self.listed))


def read_principals(text: str) -> Principals:
    """Return the principals of ``User:alice;User:CN=bob,O=x``. Raises ValueError."""
    parts = (part.strip() for part in text.split(";"))
    return Principals(tuple(read_principal(part) for part in parts if part))


def read_principal(text: str) -> Principal:
    """Return the principal that ``User:alice`` names. Raises ValueError with Kafka's reason."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(
            f"expected a string in format principalType:principalName but got {text!r}"
        )
    return Principal(kind, name)


AUTHORIZER_CLASS = ValueType("CLASS", 8, read_authorizer)
PRINCIPALS = ValueType("STRING", 2, read_principals)

# fmt: off - one option is one paragraph
AUTHORIZER_CLASS_NAME = Option(
    "authorizer.class.name",
    AUTHORIZER_CLASS,
    "",
    "The authorizer, which decides by ACLs who may do what: empty for none (everybody may do"
    f" everything), or {STANDARD_AUTHORIZER}.",
)
SUPER_USERS = Option(
    "super.users",
    PRINCIPALS,
    Principals(),
    "Principals that may do everything, whatever the ACLs say: User:alice;User:bob.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = Option(
    "allow.everyone.if.no.acl.found",
    BOOLEAN,
    False,
    "Whether everybody may use a resource that no ACL is about.",
)
ACLS_MAX = Option(
    "ottla.acls.max",
    INT,
    20_000,
    "How many ACLs there may be; creating more is refused with POLICY_VIOLATION.",
    validator=POSITIVE,
)
# fmt: on
AUTHORIZATION = (
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    ACLS_MAX,
)


def has_authorizer(config: Config) -> bool:
    """Whether ACLs decide who may do what.

    Raises InvalidConfig when an option relies on an authorizer that is not there.
    """
    if config[AUTHORIZER_CLASS_NAME]:
        return True
    for option in (SUPER_USERS, ALLOW_EVERYONE_IF_NO_ACL_FOUND):
        if config.is_given(option):
            why = (
                f"{option.key} has a meaning only with an authorizer:"
                f" set {AUTHORIZER_CLASS_NAME.key}={STANDARD_AUTHORIZER}"
            )
            raise InvalidConfig(option.key, None, why)
    return False
