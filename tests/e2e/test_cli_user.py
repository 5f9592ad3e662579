"""``ottla user`` as a person or a script types it, at a broker that asks who one is."""

import json

import pytest

from tests.commands import run_command
from tools.ottla_peer import OttlaPeer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
OPTIONS = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
ROOT = ["SCRAM-SHA-256=[name=root,password=root-secret]"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("users") / "data"
    with OttlaPeer(data, OPTIONS, protocols=("SASL_PLAINTEXT",), users=ROOT) as peer:
        peer.start()
        yield peer


@pytest.fixture
def ottla(broker):
    """Run a command as a user; returns (exit code, stdout, stderr)."""

    def run(*arguments, text="", user="root", password="root-secret", mechanism="SCRAM-SHA-256"):
        address = broker.secured["SASL_PLAINTEXT"]
        return run_command(address, *arguments, text=text, login=(mechanism, user, password))

    return run


def test_a_user_comes_logs_in_changes_the_password_and_goes(ottla, tmp_path):
    code, out, err = ottla("user", "set", "alice", text="first\n")
    assert (code, out) == (0, "alice may log in by SCRAM-SHA-256\n"), err
    assert json.loads(ottla("user", "list", "-o", "json")[1]) == [
        {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "root", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
    ]
    assert ottla("topic", "list", user="alice", password="first")[0] == 0
    path = tmp_path / "password"
    path.write_text("second\n")
    assert ottla("user", "set", "alice", "--password-file", str(path))[0] == 0
    assert ottla("topic", "list", user="alice", password="second")[0] == 0
    code, _, err = ottla("topic", "list", user="alice", password="first")
    assert code != 0
    assert "Authentication failed" in err
    code, out, err = ottla("user", "delete", "alice", "--yes")
    assert code == 0, err
    assert ottla("topic", "list", user="alice", password="second")[0] != 0


def test_mistakes_are_told_in_a_sentence(ottla):
    code, _, err = ottla("user", "delete", "root", "--mechanism", "SCRAM-SHA-512", "--yes")
    assert code != 0
    assert "root does not log in by SCRAM-SHA-512; root has SCRAM-SHA-256" in err
    code, _, err = ottla("user", "delete", "nobody", "--yes")
    assert code != 0
    assert "nobody does not log in by SCRAM-SHA-256" in err
    assert "no password" in ottla("user", "set", "eve", text="\n")[2]
    assert (
        "Too many iterations" in ottla("user", "set", "eve", "--iterations", "20000", text="x\n")[2]
    )
    assert "nobody to ask" in ottla("user", "delete", "root")[2]
    assert ottla("user", "delete", "root", "--dry-run")[0] == 0
    assert [one["user"] for one in json.loads(ottla("user", "list", "-o", "json")[1])] == ["root"]
