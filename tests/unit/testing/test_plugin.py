"""The pytest plugin, as pytest's users have it: in a pytest of its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ottla.testing import Broker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PLUGIN_MS_MAX = 5

SUITE = """
import pytest

def test_a_record(ottla_broker, ottla_topic):
    ottla_broker.produce(ottla_topic, "x")
    assert [each.value for each in ottla_broker.records(ottla_topic)] == [b"x"]

def test_another_topic(ottla_broker, ottla_topic):
    assert ottla_broker.records(ottla_topic) == []

def test_a_group(ottla_broker, ottla_topic, ottla_group):
    assert ottla_broker.lag(ottla_group, ottla_topic) == 0

def test_where(ottla_broker):
    print("bootstrap", ottla_broker.bootstrap)
"""


@pytest.fixture
def run(tmp_path):
    """Run pytest with the plugin on files of these names and texts; return its output."""

    def run(*options, plugins=(), environment=None, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\nottla_config =\n    num.partitions=3\n")
        command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", *options]
        for plugin in plugins:
            command += ["-p", plugin]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                **(environment or {}),
            },
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_fixtures_work_without_a_conftest(run):
    code, said = run(test_it=SUITE)
    assert code == 0, said
    assert "4 passed" in said


def test_the_broker_may_be_a_process_and_its_options_are_read(run):
    text = """
def test_it(ottla_broker):
    assert ottla_broker.log() == ""
    ottla_broker.produce("made", "x", partition=2)
"""
    code, said = run("--ottla-process", test_it=text)
    assert code == 0, said


def test_each_worker_has_a_broker_of_its_own(run):
    pytest.importorskip("xdist")
    code, said = run(
        "-n2", "--dist=each", "-rP", plugins=["xdist.plugin", "xdist.looponfail"], test_it=SUITE
    )
    assert code == 0, said
    assert len({line for line in said.splitlines() if line.startswith("bootstrap ")}) == 2


def test_the_same_tests_run_against_another_cluster(run):
    with Broker() as other:
        for how in ({"environment": {"OTTLA_TEST_BOOTSTRAP": other.bootstrap}}, {}):
            options = [] if how else [f"--ottla-bootstrap={other.bootstrap}"]
            code, said = run("-rP", *options, **how, test_it=SUITE)
            assert code == 0, said
            assert f"bootstrap {other.bootstrap}" in said
        with pytest.raises(Exception, match="no topic"):
            other.records("topic")
        assert sum("DeleteTopics" in line for line in other.last_requests()) >= 3


def test_a_failed_test_tells_log_and_requests(run):
    text = """
import logging

def test_it(ottla_broker, ottla_topic):
    logging.getLogger("ottla.something").warning("disk %s is odd", 7)
    ottla_broker.produce(ottla_topic, "x")
    assert ottla_broker.records(ottla_topic) == []

def test_without():
    assert False
"""
    for option in ("-q", "--ottla-process"):
        code, said = run(option, test_it=text)
        assert code == 1
        assert said.count("ottla: the broker's log") == said.count("ottla: the last requests") == 1
        assert "Produce v" in said
        assert "WARNING ottla.something: disk 7 is odd" in said


def test_a_suite_without_the_fixtures_starts_nothing(run):
    text = """
import sys

def test_it():
    assert not [name for name in sys.modules if name.startswith("ottla.") and "testing" not in name]
    assert "ottla.testing.broker" not in sys.modules
"""
    code, said = run(test_it=text)
    assert code == 0, said


def test_the_plugin_is_found_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"ottla.testing.plugin": "ottla.testing.plugin"}


def test_the_plugin_costs_other_suites_nothing():
    code = (
        "import pytest, time; t = time.perf_counter(); import ottla.testing.plugin;"
        "print(time.perf_counter() - t)"
    )
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    assert min(seconds) * 1000 < PLUGIN_MS_MAX
