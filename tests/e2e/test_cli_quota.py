"""``ottla quota`` as a person or a script types it."""

import json
from functools import partial

import pytest

from tests.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def ottla(ottla_server):
    """Run `ottla quota`; returns (exit code, stdout, stderr)."""
    return partial(run_command, ottla_server.bootstrap, "quota")


def test_quotas_come_are_listed_and_go(ottla, topic_name):
    user = ["--user", topic_name]
    code, out, err = ottla("set", "producer_byte_rate=1MiB", "request_percentage=12.5", *user)
    assert code == 0, err
    assert out == (
        f"user {topic_name}: producer_byte_rate is 1048576\n"
        f"user {topic_name}: request_percentage is 12.5\n"
    )
    assert ottla("set", "consumer_byte_rate=5", *user, "--client-id-default")[1] == (
        f"user {topic_name} with each client id: consumer_byte_rate is 5\n"
    )
    rows = json.loads(ottla("list", *user, "-o", "json")[1])
    whole = {"user": topic_name, "client_id": None, "ip": None, "defaults": []}
    assert rows == [
        whole | {"key": "producer_byte_rate", "bound": 1048576},
        whole | {"key": "request_percentage", "bound": 12.5},
        whole
        | {"client_id": "<default>", "defaults": ["client_id"]}
        | {"key": "consumer_byte_rate", "bound": 5},
    ]
    assert ottla("unset", "producer_byte_rate", *user)[0] == 0
    assert len(json.loads(ottla("list", *user, "-o", "json")[1])) == 2
    assert ottla("unset", *user)[1] == f"user {topic_name}: request_percentage is unset\n"
    assert ottla("unset", *user)[0] == 5
    assert ottla("unset", *user, "--client-id-default")[0] == 0
    assert json.loads(ottla("list", *user, "-o", "json")[1]) == []
    assert "no such quotas: ottla quota set" in ottla("list", *user)[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "producer_byte_rate=5"], "whose quota?"),
        (["set", "producer_byte_rate", "--user", "a"], "not a bound"),
        (["set", "producer_byte_rate=much", "--user", "a"], "not a bound"),
        (["set", "producer_byte_rate=nan", "--user", "a"], "not a bound"),
        (["set", "producer_byte_rate=1MiBs", "--user", "a"], "bytes also as 1MiB"),
        (["set", "request_percentage=1k", "--user", "a"], "not a bound"),
        (["set", "producer_byte_rate=0", "--user", "a"], "must be greater than 0"),
        (["set", "bogus=1", "--user", "a"], "Invalid configuration key bogus"),
        (["set", "bogus=1", "--user", "a", "--user-default"], "not allowed with"),
        (["set", "producer_byte_rate=5", "--user", ""], "the name is empty"),
        (["unset", "producer_byte_rate", "--client-id", ""], "the name is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(ottla, arguments, says):
    code, _, err = ottla(*arguments)
    assert code != 0
    assert says in err
