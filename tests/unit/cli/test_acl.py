"""What the options of ``ottla acl add`` and ``remove`` describe."""

import pytest

from ottla.cli.acl import _acls
from ottla.cli.failure import Exit, Failure
from ottla.cli.main import _parse


def described(*words, verb="add"):
    acls = _acls(_parse(["acl", verb, "--topic", "t", "--operation", "Read", *words]))
    return [(acl.rule.permission.name, acl.rule.principal, acl.rule.host) for acl in acls]


ALLOW, DENY = ("--allow-principal", "User:bob"), ("--deny-principal", "User:eve")


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize(
    ("words", "missing"),
    [
        ((*ALLOW, "--deny-host", "10.0.0.1"), "--deny-principal"),
        ((*ALLOW, "--allow-host", "10.0.0.2", "--deny-host", "10.0.0.1"), "--deny-principal"),
        ((*DENY, "--allow-host", "10.0.0.1"), "--allow-principal"),
        (("--allow-host", "10.0.0.1"), "--allow-principal"),
    ],
)
def test_a_host_without_its_principal_is_refused(verb, words, missing):
    """It was passed over: bob might come from everywhere."""
    with pytest.raises(Failure, match=f"10.0.0.1 says nothing without {missing}") as caught:
        described(*words, verb=verb)
    assert caught.value.code is Exit.USAGE
    assert caught.value.fix.startswith(missing)


def test_hosts_are_those_of_their_own_principals():
    assert described(*ALLOW, *DENY, "--deny-host", "10.0.0.1", "--deny-host", "10.0.0.2") == [
        ("ALLOW", "User:bob", "*"),
        ("DENY", "User:eve", "10.0.0.1"),
        ("DENY", "User:eve", "10.0.0.2"),
    ]


def test_without_a_principal_nobody_is_meant():
    with pytest.raises(Failure, match="to whom"):
        described()
