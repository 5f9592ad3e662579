"""The process that plans a stream ends in silence when its query has ended."""

import socket
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

BUSY = """
import sys
from ottla.spark import planner

class Runner:
    @staticmethod
    def main(asked, told):
        assert asked.read(1) == b""  # the query has ended
        told.write(b"an error that nobody wants to hear")
        told.flush()
        sys.exit(-1)

planner.runner = lambda: Runner
planner.GRACE_SECONDS = 30.0
planner.plan(int(sys.argv[1]))
"""


@pytest.mark.timeout(30)
def test_a_planner_whose_query_has_ended_says_nothing():
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", BUSY, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    with ours:
        assert len(ours.recv(4)) == 4  # its number
    said, complained = process.communicate(timeout=20)
    assert (said, complained) == (b"", b"")
