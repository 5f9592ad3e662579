"""A process ends with the one that started it, whatever it does just then."""

import subprocess
import sys

import pytest

from ottla.env.channel import channel
from ottla.env.lifeline import ENDED

PROGRAM = """
import sys, time
from ottla.env.channel import inherited
from ottla.env.lifeline import end_with
end_with(inherited(int(sys.argv[1])), grace_seconds=0.05)
print("lives", flush=True)
{work}
"""


@pytest.mark.parametrize(
    "work",
    ["time.sleep(60)", "while True: pass", "sys.stdin.read()"],
    ids=["waits", "is busy", "reads"],
)
def test_it_ends_when_the_other_end_is_gone(work):
    ours, theirs = channel()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(work=work), str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
        )
        with process:
            theirs.close()
            assert process.stdout.read(6) == b"lives\n"
            assert process.poll() is None
            ours.close()
            assert process.wait(20) == ENDED
