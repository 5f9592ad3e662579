"""What tests leave open: their owners are named, and nobody else is blamed (tests/conftest.py)."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORY = """
import socket


class Circle:
    def __init__(self):
        self.me = self
        self.sockets = socket.socketpair()


def test_owner():
    Circle()


def test_innocent():
    import gc
    gc.collect()
"""


def test_who_leaves_a_socket_to_the_collector_is_named(tmp_path):
    story = tmp_path / "test_story.py"
    story.write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-W", "error", str(story)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout
    (line,) = (line for line in done.stdout.splitlines() if "left to the collector" in line)
    assert "test_story.py::test_owner: left to the collector" in line
    assert line.count("unclosed <socket.socket") == 2


def test_nobody_is_given_a_loop_that_no_one_closes():
    """The next asyncio.run would drop it, and its test would be blamed."""
    with pytest.raises(RuntimeError, match="no current event loop"):
        asyncio.get_event_loop_policy().get_event_loop()
