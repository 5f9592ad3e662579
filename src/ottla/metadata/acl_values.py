"""The values of ACLs in the metadata store, and the hash by which each has its key.

Owns how an ACL is encoded and decoded, nothing else. Apart from ``values``, because a node without
ACLs needs none of it.
"""

from hashlib import sha256

from ottla.metadata.values import UnreadableValue, decode_config, encode_config
from ottla.security.acl import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)

DIGEST_CHARACTERS = 32


def acl_digest(acl: Acl) -> str:
    """Return the hash of an ACL. Equal ACLs have equal hashes, so none is stored twice."""
    return sha256(encode_acl(acl)).hexdigest()[:DIGEST_CHARACTERS]


def encode_acl(acl: Acl) -> bytes:
    """Return the value of ``acl/<hash>``."""
    return encode_config(
        {
            "type": acl.resource.type.name,
            "name": acl.resource.name,
            "pattern": acl.pattern.name,
            "principal": acl.rule.principal,
            "host": acl.rule.host,
            "operation": acl.rule.operation.name,
            "permission": acl.rule.permission.name,
        }
    )


def decode_acl(data: bytes) -> Acl:
    """Read the value of ``acl/<hash>``. Raises UnreadableValue."""
    fields = decode_config(data)
    try:
        return Acl(
            Resource(ResourceType[fields["type"]], fields["name"]),
            Pattern[fields["pattern"]],
            Rule(
                fields["principal"],
                fields["host"],
                Operation[fields["operation"]],
                Permission[fields["permission"]],
            ),
        )
    except KeyError as error:
        raise UnreadableValue(f"an ACL without, or with an unknown {error}") from error
