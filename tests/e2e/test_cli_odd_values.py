"""Values that are empty, misspelt or from another editor: a command refuses or understands them."""

import json
import subprocess
import sys

import pytest

from ottla.testing import Broker
from tests.commands import run_command

pytestmark = pytest.mark.timeout(120)

MARK = "\ufeff"
"""With which editors on Windows begin a file."""


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        broker.produce(broker.create_topic("orders"), "one")
        yield broker


@pytest.fixture
def ottla(broker):
    def run(*arguments, bootstrap=broker.bootstrap):
        return run_command(bootstrap, *arguments)

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "count", "orders", "--from"),
        ("topic", "trim", "orders", "--dry-run", "--to"),
        ("topic", "copy", "orders", "copy", "--dry-run", "--from"),
        ("group", "reset", "g", "--topic", "orders", "--dry-run", "--to"),
        ("consume", "orders", "--from"),
        ("consume", "orders", "--to"),
    ],
)
@pytest.mark.parametrize("place", ["nonsense", ""])
def test_a_place_that_is_none_is_refused_in_words(ottla, arguments, place):
    code, out, err = ottla(*arguments, place)
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")


@pytest.mark.parametrize("option", ["-b", "--profile", "--command-config"])
def test_an_empty_value_is_not_a_default(ottla, option):
    """``-b "$UNSET"`` would be another cluster than the one that was meant."""
    code, out, err = ottla("topic", "delete", "orders", "--yes", option, "")
    assert (code, out) == (2, ""), err
    assert "it is empty" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "diff", "orders", ""),
        ("topic", "diff", "orders", "--other-bootstrap", ""),
        ("topic", "copy", "orders", ""),
        ("config", "diff", "topic/orders", ""),
    ],
)
def test_nothing_is_compared_with_itself_by_an_empty_name(ottla, arguments):
    code, _, err = ottla(*arguments)
    assert code == 2
    assert "it is empty" in err


def test_a_file_of_settings_from_an_editor_on_windows_names_its_cluster(ottla, broker, tmp_path):
    """Its first key would mean nothing, and the command would go to the default's cluster."""
    file = tmp_path / "client.properties"
    text = f"{MARK}bootstrap.servers={broker.bootstrap}\r\nclient.id=x\r\n"
    file.write_bytes(text.encode())
    code, out, err = ottla("topic", "list", "--command-config", str(file), bootstrap="127.0.0.1:1")
    assert (code, err) == (0, "")
    assert "orders" in out


def test_a_file_of_offsets_from_an_editor_on_windows_is_read(ottla, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_bytes(f"{MARK}topic,partition,offset\r\norders,0,1\r\n".encode())
    code, out, err = ottla(
        "group", "reset", "g", "--from-file", str(file), "--yes", "--no-header", "-o", "tsv"
    )
    assert code == 0, err
    assert out == "orders\t0\t\t1\n"


def test_a_secret_from_an_editor_on_windows_is_the_secret(tmp_path):
    from ottla.cli.profile_files import with_secrets

    file = tmp_path / "secret"
    file.write_bytes(f"{MARK}geheim\r\n".encode())
    assert with_secrets({"sasl.password.file": str(file)}) == {"sasl.password": "geheim"}


def test_a_name_that_is_no_utf8_is_an_error_object_too(ottla):
    code, out, err = ottla("topic", "describe", "\udcff", "-o", "json")
    assert (code, out) == (2, "")
    assert json.loads(err)["error"]["code"] == "USAGE"


@pytest.mark.parametrize(
    ("line", "expected"), [(b"a/b v\n", 2), (b"\xff v\n", 2), (b"orders:x v\n", 2)]
)
def test_a_topic_of_a_line_that_is_none_is_a_wrong_value(broker, line, expected):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "produce", "-f", "%t %v", "-b", broker.bootstrap],
        input=line,
        capture_output=True,
        timeout=40,
    )
    assert done.returncode == expected, done.stderr
    assert done.stderr.startswith(b"error: line 1: ")
