"""How commands end when they are told to, or when their streams are gone: in words, with a code."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import pytest

import ottla
from tools.ottla_peer import OttlaPeer

OTTLA = [sys.executable, "-m", "ottla"]
PATIENCE_SECONDS = 30


def environment(server=None, **more):
    found = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)) | more
    return found if server is None else {**found, "OTTLA_BOOTSTRAP": server.bootstrap}


def _hear_signals():
    """As a terminal's shell lets a command begin, however these tests were started."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(server, *arguments, **streams):
    """A command that goes on; ended with the block."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **streams}
    streams.setdefault("preexec_fn", _hear_signals)
    process = subprocess.Popen(
        [*OTTLA, *arguments], stderr=subprocess.PIPE, env=environment(server), **streams
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def shell(server, line, **more):
    """Run a line of shell; return (exit code, standard output, standard error)."""
    line = line.replace("ottla ", f"{sys.executable} -m ottla ")
    done = subprocess.run(
        ["/bin/bash", "-c", line],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=environment(server, **more),
        stdin=subprocess.DEVNULL,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert b"Exception ignored" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def run(server, *arguments, text=""):
    done = subprocess.run(
        [*OTTLA, *arguments],
        input=text.encode(),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=environment(server),
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def topic(ottla_server, request):
    name = "end-" + re.sub(r"[^\w.-]", ".", request.node.name)
    assert run(ottla_server, "topic", "create", name, "-p", "1")[0] == 0
    return name


AT_IMPORT = """
import os, signal, sys
left = [int(sys.argv[1])]
def hook(event, arguments):
    if event == "import" and left[0] >= 0:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["ottla", *sys.argv[2:]]
from ottla.cli import interruption, main
sys.addaudithook(hook)
main.main()
"""
"""SIGINT at the n-th import, counted from where the command line begins."""


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "list"),
        ("consume", "nothing"),
        ("config", "get", "cluster"),
        ("group", "watch", "nobody"),
        ("serve", "--memory", "--port", "0"),
        ("log", "verify", "."),
        ("version",),
    ],
    ids=lambda command: command[0],
)
def test_ctrl_c_amid_a_start_is_no_traceback(ottla_server, command):
    for moment in (0, 3, 17):
        done = subprocess.run(
            [sys.executable, "-c", AT_IMPORT, str(moment), *command],
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            env=environment(ottla_server),
        )
        assert (done.returncode, done.stderr) == (130, b""), (moment, done.stderr.decode())


AT_FIRST_IMPORTS = """
import os, signal, sys
left = [int(sys.argv[1])]
sys.argv = ["ottla", "version"]
from ottla.cli.entry import main
def hook(event, arguments):
    if event == "import" and left[0] >= 0:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
main()
"""
"""SIGINT at the n-th import behind the first of ours, as the installer's wrapper has it."""


def test_ctrl_c_before_the_command_line_begins_is_no_traceback(ottla_server):
    for moment in (0, 1, 2):
        done = subprocess.run(
            [sys.executable, "-c", AT_FIRST_IMPORTS, str(moment)],
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            env=environment(ottla_server),
        )
        assert (done.returncode, done.stderr) == (130, b""), (moment, done.stderr.decode())


def test_the_module_is_the_same_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "version", "-q"], capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == ottla.__version__


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_produce_that_waits_for_a_pipe(ottla_server, topic, number):
    with running(ottla_server, "produce", topic) as process:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        with running(ottla_server, "consume", topic, "--tail", "--from", "earliest") as reader:
            assert [reader.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 128 + number
        assert b"2 records" in process.stderr.read(), "what was done is said"


def test_ctrl_c_ends_a_produce_that_waits_for_a_person(ottla_server, topic):
    ours, theirs = pty.openpty()
    try:
        with running(
            ottla_server, "produce", topic, stdin=theirs, start_new_session=True
        ) as process:
            assert b"Ctrl-D ends" in process.stderr.readline()
            os.write(ours, b"one\n")
            with running(ottla_server, "consume", topic, "--tail", "--from", "earliest") as reader:
                assert reader.stdout.readline() == b"one\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 130
            said = process.stderr.read().decode()
            assert "1 record " in said
            assert "rec/s" not in said, "the time would be the typist's"
    finally:
        os.close(ours)
        os.close(theirs)


def test_ctrl_c_ends_a_question(ottla_server, topic):
    ours, theirs = pty.openpty()
    try:
        with running(
            ottla_server, "topic", "delete", topic, stdin=theirs, start_new_session=True
        ) as process:
            said = b""
            while b"[y/N]" not in said:
                said += process.stderr.read1()
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 130
    finally:
        os.close(ours)
        os.close(theirs)
    assert run(ottla_server, "topic", "describe", topic)[0] == 0


def test_ctrl_c_ends_a_write_that_nobody_reads(ottla_server, topic):
    """The pipe is full, so no loop turns."""
    lines = "".join(f"{number:01000}\n" for number in range(2000))
    assert run(ottla_server, "produce", topic, "-q", text=lines)[0] == 0
    with running(ottla_server, "consume", topic) as process:
        assert process.stdout.read(1)
        _wait_until_full(process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130


def _wait_until_full(pipe):
    """Until the pipe takes nothing more; its writer then waits, in a system call."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    held = bytearray(4)
    while int.from_bytes(held, sys.byteorder) < 60_000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        fcntl.ioctl(pipe, termios.FIONREAD, held)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_member_that_is_told_to_end_commits_and_leaves(ottla_server, topic, number):
    group = f"{topic}-group"
    run(ottla_server, "produce", topic, "-q", text="one\ntwo\n")
    with running(ottla_server, "consume", topic, "-g", group, "--tail") as process:
        assert [process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 128 + number
        assert process.stderr.read() == b""
    described = json.loads(run(ottla_server, "group", "describe", group, "-o", "json")[1])
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 0)


def test_a_hang_up_stops_a_broker_in_good_order(ottla_server_factory, tmp_path):
    with running(None, "serve", "--port", "0", "--data", str(tmp_path / "data")) as process:
        assert b"ottla" in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE_SECONDS) == 0
    told = json.loads(run(None, "doctor", str(tmp_path / "data"), "-o", "json")[1])
    assert told["stopped_cleanly"] is True


def test_a_hang_up_that_nohup_ignores_stays_ignored(tmp_path):
    with running(
        None,
        *("serve", "--port", "0", "--data", str(tmp_path / "data")),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:
        lines = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGHUP)
        bootstrap = lines[1].split()[1].decode()
        assert shell(None, "ottla topic list", OTTLA_BOOTSTRAP=bootstrap)[0] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0


COMMANDS = (
    "ottla version",
    "ottla --help",
    "ottla ",
    "ottla topic list -o json",
    "ottla topic describe {topic}",
    "ottla consume {topic}",
    "ottla group list -o json",
    "ottla log dump {log}",
)


@pytest.fixture
def log(ottla_server, topic):
    run(ottla_server, "produce", topic, "-q", text="one\n")
    (found,) = ottla_server.data.rglob(f"{topic}-0/{0:020d}.log")  # of several nodes it is one's
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_said(ottla_server, topic, log, command):
    line = command.format(topic=topic, log=log)
    code, _, err = shell(ottla_server, f"{line} > /dev/full")
    assert (code, err.count("error: cannot write to standard output")) == (1, 1), err
    assert "No space left" in err
    code, _, err = shell(ottla_server, f"{line} >&-")
    assert (code, err.count("error: cannot write to standard output")) == (1, 1), err
    assert "error" not in shell(ottla_server, f"{line} | true")[2]


def test_notes_that_cannot_be_written_hinder_nothing(ottla_server, topic):
    for where in ("2>&-", "2>/dev/full"):
        code, out, _ = shell(ottla_server, f"echo a | ottla produce {topic} {where}")
        assert (code, out) == (0, ""), "and notes do not go to standard output"
        assert shell(ottla_server, f"ottla topic describe {topic}x {where}") == (5, "", "")


def test_input_that_is_closed_is_said(ottla_server, topic):
    code, _, err = shell(ottla_server, f"ottla produce {topic}-other <&-")
    assert (code, "standard input is closed" in err) == (1, True)
    assert shell(ottla_server, f"ottla topic describe {topic}-other")[0] == 5, "not made for it"
    assert shell(ottla_server, "ottla topic list <&-")[0] == 0
    assert shell(ottla_server, f"ottla consume {topic} <&- >&- 2>&-")[0] == 0


def test_another_encoding_is_no_traceback(ottla_server, topic):
    run(ottla_server, "produce", topic, "-q", text="\N{SNOWMAN}\n")
    where = {
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    assert shell(ottla_server, f"ottla consume {topic}", **where)[1] == "\N{SNOWMAN}\n"
    shown = shell(ottla_server, f"ottla consume {topic} -o jsonl", **where)[1]
    assert json.loads(shown)["value"] == "\N{SNOWMAN}"
    assert shell(ottla_server, r"ottla topic describe $'\xff'")[0] in (2, 5)


def test_a_produce_that_is_told_to_end_counts_what_it_wrote(ottla_server, topic):
    """A signal comes while a record is handed in; that one is counted as sent, too."""
    with running(ottla_server, "produce", topic, "--template", "x%i") as process:
        with running(ottla_server, "consume", topic, "--tail", "--from", "earliest") as reader:
            assert reader.stdout.readline() == b"x0\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
        said = process.stderr.read().decode()
    assert " records " in said
    assert "-1 more" not in said
