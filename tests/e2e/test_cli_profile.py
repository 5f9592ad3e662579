"""``ottla profile``: settings by name, which one holds, and secrets that nobody types."""

import json
import os
import stat
import subprocess
import sys

import pytest

from ottla.cli.failure import Failure
from ottla.cli.profile_files import with_secrets
from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(90)
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def ottla(tmp_path):
    """Run a command with a home of its own; returns (exit code, stdout, stderr)."""
    home = {**OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)), "XDG_CONFIG_HOME": str(tmp_path)}
    for name in ("OTTLA_BOOTSTRAP", "OTTLA_PROFILE"):
        home.pop(name, None)

    def run(*arguments, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "ottla", *arguments],
            capture_output=True,
            text=True,
            timeout=40,
            env=home | environment,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_profile_is_made_chosen_and_deleted(ottla, tmp_path):
    assert ottla("profile", "list")[2].startswith("no profiles yet")
    settings = ("security.protocol=SASL_SSL", "sasl.username=ann", "sasl.password.file=/k")
    words = [part for each in settings for part in ("-X", each)]
    assert ottla("profile", "set", "prod", "-b", "h:9092", *words)[0] == 0
    assert ottla("profile", "set", "prod", "-X", "sasl.username=")[0] == 0
    _, out, _ = ottla("profile", "show", "prod", "-o", "json")
    assert {each["key"]: each["value"] for each in json.loads(out)} == {
        "bootstrap.servers": "h:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password.file": "/k",
    }
    assert ottla("profile", "use", "prod")[0] == 0
    (row,) = json.loads(ottla("profile", "list", "-o", "json")[1])
    assert (row["name"], row["in_use"], row["bootstrap_servers"]) == ("prod", True, "h:9092")
    path = tmp_path / "ottla" / "profiles" / "prod.properties"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert ottla("profile", "delete", "prod")[0] == 0
    assert json.loads(ottla("profile", "list", "-o", "json")[1]) == []
    assert ottla("profile", "show", "prod")[0] == 5


def test_what_holds_when_several_name_a_cluster(ottla, ottla_server):
    here = ottla_server.bootstrap
    assert ottla("profile", "set", "here", "-b", here)[0] == 0
    assert ottla("profile", "set", "nowhere", "-b", NOWHERE)[0] == 0
    assert ottla("topic", "list", "--profile", "here")[0] == 0
    assert ottla("topic", "list", OTTLA_PROFILE="here", OTTLA_BOOTSTRAP=NOWHERE)[0] == 0
    assert ottla("topic", "list", "--profile", "nowhere", "-b", here)[0] == 0
    assert ottla("profile", "use", "here")[0] == 0
    assert ottla("topic", "list")[0] == 0
    assert ottla("topic", "list", "-b", NOWHERE)[0] == 3
    assert ottla("topic", "list", OTTLA_BOOTSTRAP=NOWHERE)[0] == 3
    assert ottla("profile", "use")[0] == 0
    assert ottla("profile", "use", "none-such")[0] == 5
    code, _, err = ottla("topic", "list", "--profile", "her")
    assert (code, "did you mean here?" in err) == (5, True)
    assert "known: here, nowhere" in ottla("topic", "list", "--profile", "xyz")[2]


@pytest.mark.parametrize(
    "words",
    [
        ("p", "-X", "sasl.password=x"),
        ("p", "-X", "sasl.usrname=x"),
        ("p", "-X", "x"),
        ("../p", "-b", "h:1"),
        ("p", "-b", "h:x"),
    ],
)
def test_what_is_no_profile_is_refused_and_nothing_is_kept(ottla, words):
    assert ottla("profile", "set", *words)[0] == 2
    assert ottla("profile", "list", "-o", "json")[1] == "[]\n"


def test_a_secret_that_is_typed_is_not_repeated(ottla):
    assert "hunter2" not in ottla("profile", "set", "p", "-X", "sasl.password=hunter2")[2]


def test_secrets_come_from_files_and_commands(tmp_path):
    file = tmp_path / "secret"
    file.write_text("from file\n")
    told = {"sasl.password.file": str(file), "ssl.key.password.command": "echo 'from command'"}
    assert with_secrets(told | {"client.id": "x"}) == {
        "sasl.password": "from file",
        "ssl.key.password": "from command",
        "client.id": "x",
    }
    for wrong in ({"sasl.password.file": "/none"}, {"sasl.password.command": "false"}):
        with pytest.raises(Failure):
            with_secrets(wrong)
    assert with_secrets({"client.id.file": "/none"}) == {"client.id.file": "/none"}
