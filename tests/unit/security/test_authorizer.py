"""The rules one by one, with the answers that a live Kafka gave."""

import sys
import time

import pytest

from ottla.ids import ANONYMOUS, Principal
from ottla.security.acl import (
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourceType,
    Rule,
)
from ottla.security.authorizer import Authorizer

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"
READ, WRITE, DESCRIBE, CREATE = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.CREATE,
)
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def topic(name):
    return Resource(ResourceType.TOPIC, name)


def acl(name, operation, permission=ALLOW, *, principal="User:alice", host="*", prefixed=False):
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return Acl(topic(name), pattern, Rule(principal, host, operation, permission))


@pytest.fixture
def authorizer():
    return Authorizer()


@pytest.fixture
def may(authorizer):
    def may(operation, name="t", principal=ALICE, host=HOST):
        return authorizer.may(principal, host, operation, topic(name))

    return may


def test_nobody_may_do_anything_without_an_acl(may):
    assert not may(READ)
    assert Authorizer(is_open=True).may(ANONYMOUS, HOST, READ, topic("t"))


def test_an_acl_of_anybody_closes_what_was_open():
    authorizer = Authorizer(is_open=True)
    authorizer.add(acl("t", READ, principal="User:bob"))
    assert not authorizer.may(ALICE, HOST, READ, topic("t"))
    assert authorizer.may(ALICE, HOST, READ, topic("u"))


def test_a_super_user_is_not_denied_anything():
    authorizer = Authorizer([ALICE])
    authorizer.add(acl("*", Operation.ALL, DENY))
    assert authorizer.may(ALICE, HOST, READ, topic("t"))
    assert not authorizer.may(BOB, HOST, READ, topic("t"))


@pytest.mark.parametrize(
    "operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, DESCRIBE, Operation.ALL]
)
def test_who_may_use_a_topic_may_see_it(authorizer, may, operation):
    authorizer.add(acl("t", operation))
    assert may(DESCRIBE)


@pytest.mark.parametrize("operation", [CREATE, Operation.DESCRIBE_CONFIGS])
def test_other_rights_do_not_show_it(authorizer, may, operation):
    authorizer.add(acl("t", operation))
    assert not may(DESCRIBE)


def test_nothing_is_implied_by_what_is_denied(authorizer, may):
    authorizer.add(acl("t", READ))
    authorizer.add(acl("t", DESCRIBE, DENY))
    assert may(READ)
    assert not may(DESCRIBE)
    authorizer.add(acl("u", WRITE))
    authorizer.add(acl("u", READ, DENY))
    assert may(DESCRIBE, "u")


def test_deny_goes_before_allow_whatever_is_more_exact(authorizer, may):
    authorizer.add(acl("topic", READ))
    authorizer.add(acl("to", READ, DENY, prefixed=True))
    assert not may(READ, "topic")
    authorizer.add(acl("*", WRITE, DENY, principal="User:*"))
    authorizer.add(acl("topic", WRITE))
    assert not may(WRITE, "topic")


def test_a_prefixed_star_is_a_star(authorizer, may):
    authorizer.add(acl("*", READ, prefixed=True))
    assert not may(READ, "t")
    assert may(READ, "*t")


def test_hosts_are_compared_as_text(authorizer, may):
    authorizer.add(acl("t", READ, host="10.0.0.0/8"))
    assert not may(READ)
    authorizer.add(acl("t", READ, host=HOST))
    assert may(READ)
    assert not may(READ, host="10.0.0.11")


@pytest.mark.parametrize(
    ("client", "written"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::1", "::1"),
        ("2001:db8::a0:1", "2001:db8:0:0:0:0:a0:1"),
        ("fe80::1%eth0", "fe80::1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_a_denial_holds_however_the_address_is_written(authorizer, may, client, written):
    authorizer.add(acl("t", READ))
    authorizer.add(acl("t", READ, DENY, host=written))
    assert not may(READ, host=client)
    assert may(READ, host="2001:db8::b")
    authorizer.add(acl("*", WRITE, host=written))
    assert authorizer.may_some(ALICE, client, WRITE, ResourceType.TOPIC)
    assert not authorizer.may_some(ALICE, "10.0.0.2", WRITE, ResourceType.TOPIC)


def test_an_acl_that_is_added_twice_is_removed_once(authorizer, may):
    authorizer.add(acl("t", READ))
    authorizer.add(acl("t", READ))
    assert len(authorizer) == 1
    authorizer.remove(acl("t", READ))
    assert not may(READ)


def test_of_two_acls_the_other_stays(authorizer, may):
    authorizer.add(acl("t", READ))
    authorizer.add(acl("t", WRITE))
    authorizer.remove(acl("t", READ))
    assert may(WRITE)
    assert not may(READ)


def test_each_change_ends_what_was_decided_before(authorizer):
    epochs = [authorizer.epoch]
    authorizer.add(acl("t", READ))
    epochs.append(authorizer.epoch)
    authorizer.remove(acl("t", READ))
    epochs.append(authorizer.epoch)
    assert epochs == sorted(set(epochs))


def test_a_prefixed_right_to_write_is_one_on_some_topic(authorizer):
    def may_some(operation):
        return authorizer.may_some(ALICE, HOST, operation, ResourceType.TOPIC)

    assert not may_some(WRITE)
    authorizer.add(acl("a", WRITE, prefixed=True))
    assert may_some(WRITE)
    assert not may_some(READ)
    authorizer.add(acl("", WRITE, DENY, prefixed=True))
    assert not may_some(WRITE)


def test_a_question_does_not_walk_all_acls(authorizer, may):
    for number in range(20_000):
        authorizer.add(acl(f"topic-{number:05}", READ))
        authorizer.add(acl(f"prefix-{number:05}", READ, prefixed=True))

    def seconds():
        began = time.process_time()
        for _ in range(200):
            may(READ, "prefix-00001-and-more")
        return (time.process_time() - began) / 200

    assert may(READ, "prefix-00001-and-more")
    assert min(seconds() for _ in range(5)) < 1e-4


def test_a_node_may_act_for_the_cluster_and_nothing_else():
    cluster = Resource(ResourceType.CLUSTER, "kafka-cluster")
    authorizer = Authorizer([Principal("User", "2")], is_open=True)
    node = Principal("Node", "2")
    for name in ("t", "*"):
        authorizer.add(acl(name, Operation.ALL, principal="Node:2"))
    found = {
        operation
        for operation in Operation
        for resource in (cluster, topic("t"), Resource(ResourceType.GROUP, "g"))
        if authorizer.may(node, HOST, operation, resource)
    }
    assert found == {Operation.CLUSTER_ACTION}
    assert not authorizer.may_some(node, HOST, WRITE, ResourceType.TOPIC)
    denied = Rule("User:*", "*", Operation.CLUSTER_ACTION, DENY)
    authorizer.add(Acl(cluster, Pattern.LITERAL, denied))
    assert authorizer.may(node, HOST, Operation.CLUSTER_ACTION, cluster), "no ACL is about nodes"


def test_a_question_costs_no_look_at_what_is_about_others():
    """100,000 users with a rule each on "*" once cost 37 ms a question, 74 ms for any topic."""
    authorizer = Authorizer()
    for number in range(2_000):
        authorizer.add(acl("*", READ, principal=f"User:u{number}"))
        authorizer.add(acl(f"own-{number}", WRITE, principal=f"User:u{number}"))
    looks = [0]

    def count(_frame, event, _argument):
        looks[0] += event in ("call", "line", "c_call")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        assert authorizer.may(Principal("User", "u7"), HOST, READ, topic("t"))
        assert authorizer.may_some(Principal("User", "u7"), HOST, WRITE, ResourceType.TOPIC)
        assert not authorizer.may_some(ALICE, HOST, WRITE, ResourceType.TOPIC)
    finally:
        sys.settrace(before)
    assert looks[0] < 1_000
