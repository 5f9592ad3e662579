"""Ctrl-C at certain moments, and terminals of 60 columns: of every command, with a live broker.

A command that is told to end while it waits for its n-th answer ends at once, with 130. The way to
its broker stands still there, so that no moment is missed. With ``test_cli_bad_input`` (where
nobody answers, 3 moments) these are 10; more are in ``test_cli_endings``, amid imports, questions,
writes. Some commands by class; $OTTLA_MATRIX=all: all.
"""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
import time

import pytest

from ottla.cli.output import cells
from ottla.testing import Broker
from tests.command_server import CommandServer
from tests.e2e.test_cli_bad_input import SHOWING, TALKING, drawn, line, password
from tests.stalling_proxy import StallingProxy

IS_WHOLE = os.environ.get("OTTLA_MATRIX") == "all"
pytestmark = [pytest.mark.timeout(3000 if IS_WHOLE else 300), pytest.mark.xdist_group("bad input")]
MOMENTS = range(1, 8)
"""Answers that have come when Ctrl-C is typed."""
CLASSES = ("bench produce", "consume", "group reset", "produce", "topic copy", "topic list")
"""What reads, writes, waits, changes and lists: of each class one is always tried."""
COLUMNS = 60


def tried(others):
    """Return the commands to try: ``others`` of them are drawn."""
    return TALKING if IS_WHOLE else sorted({*CLASSES, *drawn()[:others]})


@pytest.fixture(scope="module")
def server():
    with CommandServer() as running:
        (running.directory / "password").write_text("secret\n")
        yield running


@pytest.fixture(scope="module")
def proxy():
    """The way to a broker, which has an authorizer."""
    with StallingProxy() as proxy:
        config = {
            "advertised.listeners": f"PLAINTEXT://{proxy.place}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        with Broker(config=config) as broker:
            proxy.lead_to(broker.bootstrap)
            yield proxy


@pytest.fixture
def furnished(server, proxy):
    """Returns a function that makes topics t and u, and a group g, where they are gone."""
    environment = {"OTTLA_BOOTSTRAP": proxy.place}

    def furnish():
        proxy.begin()
        for topic in "tu":
            made = server.run("topic", "create", topic, environment=environment)
            if made.code == 0:
                server.run("produce", topic, stdin=b"a\nb\nc\n", environment=environment)
        reset = ("group", "reset", "g", "--to", "1", "--topic", "t", "--yes")
        assert server.run(*reset, environment=environment).code == 0

    return furnish


def words(name, place):
    typed = [*line(name, place), *password(name)]
    if name == "produce":
        typed += ["--template", "%i", "--rate", "1k"]  # It goes on for ever.
    return [each.replace("50ms", "60s") for each in typed]


def test_ctrl_c_while_an_answer_is_on_its_way(server, proxy, furnished):
    met = dict.fromkeys(MOMENTS, 0)
    for name in tried(4):
        furnished()
        for answers in MOMENTS:
            proxy.begin(answers)
            running = server.start(*words(name, proxy.place), "--timeout", "60s")
            while not proxy.stalled.wait(0.02) and not server.has_ended(running):
                pass
            if not proxy.stalled.is_set():
                server.finish(running)
                break  # It needs no more answers.
            began = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGINT)
            code, _, err = server.finish(running)
            if code == 0:
                break  # It has ended by itself: the answer that is held back was not needed.
            assert code == 130, (name, answers, code, err)
            assert len(err.splitlines()) <= 4, (name, answers, err)
            assert time.monotonic() - began < 30, (name, answers)
            met[answers] += 1
    assert all(met.values()), met


WORD = re.compile(r" *\S+")


def on_terminal(server, place, name):
    """Run a command on a terminal of 60 columns; return its code and lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    shown = bytearray()

    def read():
        with contextlib.suppress(OSError):  # EIO: the other side is closed.
            while data := os.read(ours, 1 << 16):
                shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    path = os.ttyname(theirs)
    environment = {"TERM": "xterm", "COLUMNS": ""}
    typed = [*line(name, place), *password(name), *(["-e"] if name == "cat" else [])]
    said = server.run(*typed, out=path, err=path, environment=environment)
    os.close(theirs)
    reader.join()
    os.close(ours)
    text = re.sub(r"\r\x1b\[K", "\n", shown.decode().replace("\r\n", "\n"))  # Progress.
    return said.code, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def is_copied(text):
    """Whether a line is for copying, or one word that nobody should cut."""
    return text.startswith("  fix: ottla ") or WORD.fullmatch(text) is not None


def test_what_is_said_fits_a_narrow_terminal(server, proxy, furnished):
    for name in sorted({*SHOWING, *tried(4)}):
        furnished()
        _, lines = on_terminal(server, proxy.place, name)
        wide = [each for each in lines if cells(each) > COLUMNS and not is_copied(each)]
        assert not wide, (name, wide)
        assert not any("Traceback" in each for each in lines), (name, lines)
