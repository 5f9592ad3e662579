"""Signals end a command at any moment, also where its loop would not notice them."""

import subprocess
import sys

MISSED = """
import asyncio, os, signal, threading, time
from ottla.cli import interruption

async def command():
    other = threading.Thread(target=kill)
    other.start()
    # The other thread takes the signal: this one's wait is not interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    is_waiting.set()
    await asyncio.sleep(60)

def kill():
    is_waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)

is_waiting = threading.Event()
began = time.monotonic()
try:
    interruption.run(command())
except interruption.Told as told:
    print(told.exit_code, time.monotonic() - began < 30)
"""


def test_a_signal_just_before_the_loop_waits_is_heard_at_once():
    """It waited for the loop's next event: half a minute where a broker stood still."""
    done = subprocess.run(
        [sys.executable, "-c", MISSED], capture_output=True, text=True, timeout=100
    )
    assert (done.stdout, done.stderr) == ("130 True\n", "")
