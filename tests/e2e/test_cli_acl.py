"""``ottla acl`` as a person or a script types it, and what it does to others."""

import json

import pytest

from tests.authorizing import OPTIONS
from tests.commands import run_command
from tools.ottla_peer import OttlaPeer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("acls") / "data"
    with OttlaPeer(data, OPTIONS, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer


@pytest.fixture
def ottla(broker):
    """Run a command as a user, whose password is the name; (exit code, stdout, stderr)."""

    def run(*arguments, user="root", text=""):
        address = broker.secured["SASL_PLAINTEXT"]
        return run_command(address, *arguments, text=text, login=("PLAIN", user, user))

    return run


def test_rights_are_given_listed_used_and_taken_away(ottla):
    assert ottla("topic", "create", "orders")[0] == 0
    code, _, err = ottla("produce", "orders", user="alice", text="one\n")
    assert code != 0
    assert "authori" in err.lower()
    code, out, err = ottla(
        "acl", "add", "--allow-principal", "User:alice", "--topic", "orders", "--producer"
    )
    assert code == 0, err
    assert out.splitlines() == [
        "User:alice may Write topic orders",
        "User:alice may Describe topic orders",
        "User:alice may Create topic orders",
    ]
    code, _, err = ottla("produce", "orders", user="alice", text="one\n")
    assert code == 0, err
    rows = json.loads(ottla("acl", "list", "--topic", "orders", "-o", "json")[1])
    assert {one["operation"] for one in rows} == {"WRITE", "DESCRIBE", "CREATE"}
    assert rows[0] | {"operation": ""} == {
        "resource": "TOPIC",
        "name": "orders",
        "pattern": "LITERAL",
        "principal": "User:alice",
        "host": "*",
        "operation": "",
        "permission": "ALLOW",
    }
    gone = ("--allow-principal", "User:alice", "--topic", "orders", "--producer")
    assert ottla("acl", "remove", *gone, "--dry-run")[0] == 0
    code, out, err = ottla("acl", "remove", *gone, "--yes")
    assert (code, out) == (0, "removed 3\n"), err
    assert json.loads(ottla("acl", "list", "--topic", "orders", "-o", "json")[1]) == []
    assert ottla("produce", "orders", user="alice", text="one\n")[0] != 0


def test_a_prefix_and_a_denial(ottla):
    prefixed = ("--topic", "in-", "--resource-pattern-type", "prefixed")
    who = ("--allow-principal", "User:*", "--deny-principal", "User:bob")
    code, out, err = ottla("acl", "add", *who, *prefixed, "--operation", "describe-configs")
    assert code == 0, err
    assert "User:bob may not DescribeConfigs topic in- and what begins so" in out
    named = ("--topic", "in-put", "--resource-pattern-type", "match")
    rows = json.loads(ottla("acl", "list", *named, "-o", "json")[1])
    assert [(one["principal"], one["permission"]) for one in rows] == [
        ("User:*", "ALLOW"),
        ("User:bob", "DENY"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "--operation", "Read"], "a CLUSTER knows no Read"),
        (["--topic", "*", "--resource-pattern-type", "prefixed"], "begin with a star"),
        (["--topic", "t", "--allow-host", "10.0.0.0/8"], "no name and no network"),
        (["--topic", "t", "--operation", "Fly"], "no operation Fly"),
        (["--topic", "t", "--allow-host", "0:0:0:0:0:0:0:01"], "no name and no network"),
        (["--operation", "Read"], "to do what?"),
    ],
)
def test_mistakes_are_told_in_a_sentence(ottla, arguments, said):
    code, _, err = ottla("acl", "add", "--allow-principal", "User:alice", *arguments)
    assert code != 0
    assert said in err


def test_a_script_whose_variable_is_empty_gives_nobody_rights(ottla):
    code, _, err = ottla("acl", "add", "--allow-principal", "User:", "--topic", "t", "--producer")
    assert code != 0
    assert "principals are User:NAME" in err


def test_an_address_of_ipv6_may_be_written_as_java_writes_it(ottla):
    host = ["--allow-host", "0:0:0:0:0:0:0:1"]
    arguments = ["--allow-principal", "User:six", "--topic", "t", "--operation", "Read", *host]
    code, _, err = ottla("acl", "add", *arguments)
    assert code == 0, err


def test_who_may_not_is_told_so(ottla):
    code, _, err = ottla("acl", "list", user="bob")
    assert code != 0
    assert "DescribeAcls needs DESCRIBE on the cluster" in err


def test_who_removes_the_last_acl_is_told_that_this_opens(tmp_path):
    open_to_all = {"allow.everyone.if.no.acl.found": "true"}
    with OttlaPeer(tmp_path / "data", OPTIONS | open_to_all, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()

        def ottla(*arguments):
            return run_command(peer.bootstrap, *arguments)

        rights = ("--allow-principal", "User:alice", "--topic", "t", "--operation")
        assert ottla("acl", "add", *rights, "Read")[0] == 0
        assert ottla("acl", "add", *rights, "Write")[0] == 0
        code, _, err = ottla("acl", "remove", *rights, "Read", "--yes")
        assert code == 0
        assert "careful" not in err
        code, _, err = ottla("acl", "remove", *rights, "Write", "--dry-run")
        assert "careful: no ACL is left about topic t: everybody may use it then" in err
