"""The authorizer against the rules as they are read: every ACL is looked at for every question."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.ids import Principal
from ottla.security.acl import Acl, Operation, Pattern, Permission, Resource, ResourceType, Rule
from ottla.security.authorizer import Authorizer

NAMES = ["*", "a", "ab", "abc", "b", "a*", "hardcode", "h"]
USERS = ["alice", "bob", "*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
IMPLIES = {  # What Kafka says of ALLOW, the other way around than the code has it.
    Operation.READ: {Operation.DESCRIBE},
    Operation.WRITE: {Operation.DESCRIBE},
    Operation.DELETE: {Operation.DESCRIBE},
    Operation.ALTER: {Operation.DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
}

acls = st.builds(
    Acl,
    st.builds(Resource, st.sampled_from(TYPES), st.sampled_from(NAMES)),
    st.sampled_from(Pattern),
    st.builds(
        Rule,
        st.sampled_from([f"User:{name}" for name in USERS]),
        st.sampled_from(HOSTS),
        st.sampled_from(Operation),
        st.sampled_from(Permission),
    ),
)
lists = st.lists(acls, max_size=12)


def fits(acl, resource):
    if acl.resource.type is not resource.type:
        return False
    if acl.pattern is Pattern.PREFIXED:
        return resource.name.startswith(acl.resource.name)
    return acl.resource.name in (resource.name, "*")


def concerns(rule, user, host):
    return rule.principal in (f"User:{user}", "User:*") and rule.host in (host, "*")


def brute(entries, user, host, operation, resource, *, is_open=False, super_users=()):
    if user in super_users:
        return True
    about = [acl.rule for acl in entries if fits(acl, resource)]
    if not about:
        return is_open
    mine = [rule for rule in about if concerns(rule, user, host)]
    denies = [rule.operation for rule in mine if rule.permission is Permission.DENY]
    allows = [rule.operation for rule in mine if rule.permission is Permission.ALLOW]
    if operation in denies or Operation.ALL in denies:
        return False
    return any(
        allowed in (operation, Operation.ALL) or operation in IMPLIES.get(allowed, ())
        for allowed in allows
    )


def brute_some(entries, user, host, operation, type, *, is_open=False):
    """Kafka's authorizeByResourceType, as KIP-679 tells it."""
    if brute(entries, user, host, operation, Resource(type, "hardcode"), is_open=is_open):
        return True

    def named(pattern, permission):
        return [
            acl.resource.name
            for acl in entries
            if acl.resource.type is type
            and acl.pattern is pattern
            and acl.rule.permission is permission
            and concerns(acl.rule, user, host)
            and acl.rule.operation in (operation, Operation.ALL)
        ]

    denied, denied_prefixes = (
        named(pattern, Permission.DENY) for pattern in (Pattern.LITERAL, Pattern.PREFIXED)
    )
    allowed, allowed_prefixes = (
        named(pattern, Permission.ALLOW) for pattern in (Pattern.LITERAL, Pattern.PREFIXED)
    )
    if "*" in denied:
        return False
    if "*" in allowed:
        return True
    free = [name for name in allowed if name not in denied] + allowed_prefixes
    return any(not any(name.startswith(one) for one in denied_prefixes) for name in free)


def authorizer_of(entries, **options):
    authorizer = Authorizer(**options)
    for acl in entries:
        authorizer.add(acl)
    return authorizer


QUESTIONS = [
    (user, host, operation, Resource(kind, name))
    for user in ("alice", "carol")
    for host in ("10.0.0.1", "10.0.0.9")
    for operation in Operation
    if operation is not Operation.ALL
    for kind in TYPES
    for name in ("a", "abc", "abx", "b", "*", "*x", "x")
]


@given(lists, st.booleans())
def test_every_answer_is_that_of_the_rules(entries, is_open):
    authorizer = authorizer_of(entries, is_open=is_open)
    for user, host, operation, resource in QUESTIONS:
        told = authorizer.may(Principal("User", user), host, operation, resource)
        expected = brute(entries, user, host, operation, resource, is_open=is_open)
        assert told is expected, (user, host, operation, resource)


@given(lists, st.booleans())
def test_whether_some_resource_may_be_used_is_that_of_the_rules(entries, is_open):
    authorizer = authorizer_of(entries, is_open=is_open)
    for user in ("alice", "carol"):
        for operation in (Operation.WRITE, Operation.READ, Operation.DESCRIBE):
            for kind in TYPES:
                told = authorizer.may_some(Principal("User", user), "10.0.0.1", operation, kind)
                expected = brute_some(entries, user, "10.0.0.1", operation, kind, is_open=is_open)
                assert told is expected, (user, operation, kind)


@given(lists, st.data())
def test_what_was_removed_leaves_nothing_behind(entries, data):
    kept = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    authorizer = authorizer_of(entries)
    for acl in entries:
        if acl not in kept:
            authorizer.remove(acl)
            authorizer.remove(acl)
    assert len(authorizer) == len(kept)
    for user, host, operation, resource in QUESTIONS[::7]:
        told = authorizer.may(Principal("User", user), host, operation, resource)
        assert told is brute(kept, user, host, operation, resource)
    for acl in kept:
        authorizer.remove(acl)
    assert not any(authorizer._literal.values())
    assert not any(authorizer._prefixed.values())
    assert not authorizer._counts
    assert not any(authorizer._lengths.values())
    assert not any(authorizer._names_of.values())


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None)
@given(lists)
def test_a_million_answers_are_those_of_the_rules(entries):
    authorizer = authorizer_of(entries, super_users=[Principal("User", "root")])
    assert authorizer.may(Principal("User", "root"), "x", Operation.ALTER, QUESTIONS[0][3])
    for user in ("alice", "bob", "carol"):
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.9"):
            for _, _, operation, resource in QUESTIONS[: len(QUESTIONS) // 4]:
                told = authorizer.may(Principal("User", user), host, operation, resource)
                assert told is brute(entries, user, host, operation, resource)
