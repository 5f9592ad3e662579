""".ci/again, which runs failed tests once more: that it names them as pytest takes them."""

import importlib.machinery
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUP = re.compile(r"""xdist_group\(\s*"([^"]*)"\s*\)""")


@pytest.fixture
def again(monkeypatch, tmp_path):
    """Return the script as a module, and what it runs; its list of failed tests is empty."""
    loader = importlib.machinery.SourceFileLoader("again", str(ROOT / ".ci" / "again"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("again", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "FAILED", tmp_path / "lastfailed")
    monkeypatch.setattr(module.sys, "argv", ["again"])
    ran = []

    def run(command, cwd):
        ran.append(command[4:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    return module, ran


def test_every_group_of_the_tests_is_taken_off_a_name(again):
    module, ran = again
    files = (ROOT / "tests").rglob("test_*.py")
    groups = {group for path in files for group in GROUP.findall(path.read_text())}
    assert {"spark", "tasks of the command line"} <= groups
    for group in groups:
        module.FAILED.write_text(json.dumps({f"tests/e2e/test_a.py::test_b[c@d e]@{group}": True}))
        assert module.main() == 0
        assert ran.pop() == ["tests/e2e/test_a.py::test_b[c@d e]"]


@pytest.mark.parametrize(
    "failed",
    [
        [],
        ["tests/property/test_a.py::test_b"],
        [f"tests/unit/test_a.py::test_{n}" for n in range(4)],
    ],
)
def test_a_finding_and_many_failures_are_not_run_again(again, failed):
    module, ran = again
    module.FAILED.write_text(json.dumps(dict.fromkeys(failed, True)))
    assert (module.main(), ran) == (1, [])
