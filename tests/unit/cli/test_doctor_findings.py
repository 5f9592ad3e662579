"""What ``ottla doctor HOST:PORT`` makes of what it has seen: one fact, one finding."""

import inspect
import re
from pathlib import Path

import pytest

from ottla.cli import doctor_findings
from ottla.cli.doctor_findings import (
    Bound,
    Certificate,
    Disk,
    Facts,
    IdleGroup,
    Rule,
    Severity,
    examine,
    is_loopback,
)
from ottla.client.wire.settings import Address
from ottla.client.wire.view import ClusterView, PartitionView, TopicView
from ottla.errors import ErrorCode

NOW = 1_800_000_000.0
DAY = 86_400
GIB = 1 << 30


def partition(number, leader=1, replicas=(1, 2, 3), isr=(1, 2, 3)):
    return PartitionView(number, leader, 0, replicas, isr, ErrorCode.NONE)


def view(**topics):
    brokers = {number: Address(f"b{number}.example", 9092) for number in (1, 2, 3)}
    return ClusterView(
        "id",
        1,
        brokers,
        dict.fromkeys(brokers),
        {
            name: TopicView(name, bytes(16), ErrorCode.NONE, False, {p.partition: p for p in parts})
            for name, parts in topics.items()
        },
    )


def facts(**known):
    usual = {"asked": "b1.example:9092", "now": NOW, "view": view(), "quotas": [Bound("u", "k", 9)]}
    return Facts(**(usual | known))


def checks(**known):
    return [(str(one.severity), one.check) for one in examine(facts(**known))]


def test_a_cluster_in_which_all_is_well_has_no_findings():
    secure = {
        "listeners": "OUT://:9094,IN://127.0.0.1:9092",
        "listener.security.protocol.map": "OUT:SASL_SSL,IN:PLAINTEXT",
        "super.users": "User:root",
        "allow.everyone.if.no.acl.found": "false",
        "auto.create.topics.enable": "false",
    }
    healthy = facts(
        view=view(t=[partition(0)]),
        configs={1: secure},
        has_authorizer=True,
        disks=[Disk(1, "/d", 50 * GIB, 100 * GIB, "")],
        certificates=[Certificate("b1.example:9092", "", NOW + 300 * DAY, False)],
        ahead_seconds=0.4,
    )
    assert examine(healthy) == []


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({"unreachable": {2: "connection refused"}}, ("error", "broker.unreachable")),
        ({"view": view(t=[partition(0, leader=-1)])}, ("error", "partition.offline")),
        (
            {"view": view(t=[partition(0, isr=(1,))]), "min_isr": {"t": 2}},
            ("error", "partition.under-min-isr"),
        ),
        (
            {"view": view(t=[partition(0, isr=(1, 2))]), "min_isr": {"t": 2}},
            ("warning", "partition.under-replicated"),
        ),
        (
            {"view": view(t=[partition(0, replicas=(1,), isr=(1,))])},
            ("note", "topic.single-replica"),
        ),
        ({"disks": [Disk(1, "/d", 5 * GIB, 100 * GIB, "")]}, ("warning", "disk.full")),
        ({"disks": [Disk(1, "/d", 1 * GIB, 100 * GIB, "")]}, ("error", "disk.full")),
        ({"disks": [Disk(1, "/d", None, None, "gone")]}, ("error", "disk.offline")),
        ({"groups": [IdleGroup("g", 7)]}, ("warning", "group.abandoned")),
        ({"ahead_seconds": -60.0}, ("warning", "clock.skew")),
        ({"ahead_seconds": 6.0}, ("warning", "clock.skew")),
        ({"has_authorizer": False}, ("warning", "acl.none")),
        ({"open_rules": [Rule("User:*", "read topic *")]}, ("warning", "acl.everybody")),
        ({"weak_logins": ["admin"]}, ("error", "login.default-password")),
        ({"quotas": []}, ("note", "quota.none")),
        (
            {"certificates": [Certificate("a", "expired", None, None)]},
            ("error", "tls.refused"),
        ),
        (
            {"certificates": [Certificate("a", "", NOW + 29 * DAY, False)]},
            ("warning", "tls.ends-soon"),
        ),
        ({"certificates": [Certificate("a", "", None, True)]}, ("warning", "tls.old")),
        ({"untold": {"the disks": "31"}}, ("note", "not-looked-at")),
        ({"view": ClusterView("id", -1, {1: Address("h", 1)})}, ("warning", "cluster.controller")),
    ],
)
def test_what_is_odd_is_told(known, found):
    assert checks(**known) == [found]


def test_quotas_that_starve_are_told():
    """Attack 41: heartbeats stand behind the other requests of their client."""
    starving = [Bound("user ann", "request_percentage", 0.5)]
    assert checks(quotas=starving) == [("warning", "quota.starves")]
    assert checks(quotas=[Bound("user ann", "request_percentage", 1)]) == []


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, ["listener.open"]),
        ({"listeners": "PLAINTEXT://:9092"}, ["listener.open"]),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,SSL://:1"}, []),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, []),
        (
            {
                "listeners": "A://:1,B://h:2",
                "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SSL",
            },
            ["listener.unencrypted"],
        ),
        ({"listeners": "C://:1", "controller.listener.names": "C"}, []),
        ({"super.users": "User:*;User:root"}, ["acl.super-users"]),
        ({"super.users": "User:ANONYMOUS"}, ["acl.super-users"]),
        ({"allow.everyone.if.no.acl.found": "true"}, ["acl.open"]),
    ],
)
def test_what_a_broker_is_set_to(configs, found):
    assert [one for _, one in checks(configs={1: configs}, has_authorizer=True)] == found


def test_the_worst_comes_first():
    found = examine(facts(quotas=[], has_authorizer=False, weak_logins=["admin"]))
    assert [one.severity for one in found] == list(Severity)


def test_many_names_are_shortened():
    many = view(t=[partition(number, leader=-1) for number in range(99)])
    (one,) = examine(facts(view=many))
    assert one.subject == "t-0, t-1, t-2, t-3, t-4 and 94 more"


def test_which_hosts_only_this_machine_reaches():
    assert all(map(is_loopback, ("localhost", "127.0.0.1:9092", "::1", "127.9.9.9")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "10.0.0.1", "kafka.example")))


def test_the_page_has_every_check():
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    told = re.findall(r"^\| `([a-z.-]+)` \| (?:error|warning|note)", page, re.MULTILINE)
    code = inspect.getsource(doctor_findings)
    made = re.findall(r'Severity\.\w+[^"]*"([a-z]+[.-][a-z.-]+)"', code)
    assert sorted(told) == sorted(set(made))
