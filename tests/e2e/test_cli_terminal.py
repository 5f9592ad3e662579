"""What commands print on terminals of 60 to 200 columns, on a dumb one, and in a pipe."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from ottla.cli.main import COMMANDS
from tools.ottla_peer import OttlaPeer

PATIENCE_SECONDS = 30
NO_NAME = dict.fromkeys(map(ord, "%\\"))
"""Characters of options that topics may not have."""
VERBS = {
    "topic": (
        *("create", "list", "describe", "alter", "delete", "add-partitions"),
        *("size", "trim", "copy", "diff"),
    ),
    "group": ("list", "describe", "reset", "delete", "watch", "offsets"),
    "cluster": ("info", "brokers", "apis", "logdirs", "health", "wait"),
    "config": ("get", "set", "unset", "explain", "diff"),
    "txn": ("list", "describe", "abort", "ages", "producers", "hanging"),
    "log": ("dump", "verify"),
    "pipeline": ("init", "check", "explain", "run"),
}


def environment(server=None, **more):
    found = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)) | more
    return found if server is None else {**found, "OTTLA_BOOTSTRAP": server.bootstrap}


def piped(server, *arguments, text="", **more):
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=text.encode(),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=environment(server, **more),
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def on_terminal(server, *arguments, columns=80, **more):
    """Run a command on a terminal; return (exit code, all that it showed)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = {**environment(server), "TERM": "xterm", **more}
    variables.pop("COLUMNS", None)
    if "NO_COLOR" not in more:
        variables.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=variables,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while select.select([ours], [], [], max(deadline - time.monotonic(), 0))[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # EIO: the other side is closed
                break
            if not data:
                break
            shown += data
        return process.wait(PATIENCE_SECONDS), shown.decode().replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def wide(ottla_server):
    """A topic whose name is wide, with a group."""
    name = "wide-" + "x" * 60
    piped(ottla_server, "topic", "create", name, "-p", "2", "--if-not-exists")
    piped(ottla_server, "produce", name, "-q", "-p", "0", text="a\nb\n")
    piped(ottla_server, "group", "reset", "wide-group", "--topic", name, "--to", "1", "--yes")
    return name


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal(columns):
    """By the interpreter that is here, and as many commands in one process as there are."""
    lines = [[name] for name in COMMANDS]
    lines += [[name, verb] for name, verbs in VERBS.items() for verb in verbs]
    code = (
        "import sys\nfrom ottla.cli.main import command_line\n"
        f"for words in {lines!r}:\n"
        "    try:\n        command_line([*words, '--help'])\n"
        "    except SystemExit as end:\n        assert not end.code\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment(COLUMNS=str(columns)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(lines)
    assert not [line for line in done.stdout.splitlines() if len(line) > columns]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_tables_fit_the_terminal(ottla_server, wide, columns):
    for command in (("topic", "describe", wide), ("group", "describe", "wide-group")):
        code, shown = on_terminal(ottla_server, *command, columns=columns, NO_COLOR="1")
        assert code == 0, shown
        rows = [line for line in shown.splitlines() if "  id " not in line]
        assert not [line for line in rows if len(line) > max(columns, len(wide) + 20)]
        if command[0] == "group":
            assert any(line.startswith("TOPIC ") for line in rows)
            assert wide in shown, "nothing is cut off"


def test_a_dumb_terminal_gets_no_escapes(ottla_server, wide):
    assert "\x1b[1m" in on_terminal(ottla_server, "topic", "list")[1]
    assert "\x1b" not in on_terminal(ottla_server, "topic", "list", TERM="dumb")[1]
    assert "\x1b" not in on_terminal(ottla_server, "topic", "list", NO_COLOR="1")[1]
    data = str(ottla_server.data)
    assert "\x1b[K" in on_terminal(None, "log", "verify", data)[1]
    assert "\x1b" not in on_terminal(None, "log", "verify", data, TERM="dumb")[1]


def test_progress_takes_one_line(ottla_server, wide):
    shown = on_terminal(None, "log", "verify", str(ottla_server.data), columns=60)[1]
    drawn = re.findall(r"\x1b\[K([^\r\n]*)\r", shown)
    assert len(drawn) > 2
    assert max(map(len, drawn)) < 60


def test_a_pipe_gets_the_head_as_well(ottla_server, wide):
    code, out, err = piped(ottla_server, "group", "describe", "wide-group")
    head, *rows = out.splitlines()
    assert (code, head.split("\t")[:3], len(rows)) == (0, ["topic", "partition", "committed"], 2)
    assert "Empty" in err
    assert "  lag " in err
    bare = piped(ottla_server, "group", "describe", "wide-group", "--no-header")[1]
    assert bare.splitlines() == rows
    code, out, err = piped(ottla_server, "topic", "describe", wide)
    assert out.splitlines()[0].split("\t")[0] == "partition"
    assert "id " in err


def test_a_group_without_offsets_is_shown_all_the_same(ottla_server, wide):
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": ottla_server.bootstrap, "group.id": "no-offsets"})
    try:
        consumer.subscribe([wide])
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.2)
    finally:
        consumer.close()
    code, out, err = piped(ottla_server, "group", "describe", "no-offsets")
    assert code == 0
    assert out.startswith("topic\tpartition")
    assert "no-offsets" in err
    assert "no offset was committed" in err


def test_empty_lists_say_what_to_type(ottla_server_factory):
    server = ottla_server_factory()
    assert piped(server, "user", "list", "--no-header")[:2] == (0, "")
    for command, told in (("topic", "ottla produce"), ("group", "--group"), ("txn", "no trans")):
        code, out, err = piped(server, command, "list", "--no-header")
        assert (code, out, told in err) == (0, "", True)
        assert told in on_terminal(server, command, "list")[1]
        assert json.loads(piped(server, command, "list", "-o", "json")[1]) == []


def test_a_record_of_yesterday_has_its_date(ottla_server, wide):
    name = f"{wide}-dates"
    text = json.dumps({"value": "old", "timestamp": 86_400_000 * 3}) + "\n"
    assert piped(ottla_server, "produce", name, "--jsonl", "-q", text=text)[0] == 0
    assert "1970-01-04" in on_terminal(ottla_server, "consume", name, TZ="UTC")[1]


WORKS_ON_A_TERMINAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae")


@pytest.mark.parametrize(
    "options",
    [(), ("-f", r"%k %v %h\n"), ("-o", "json"), ("-o", "jsonl"), ("--decode", "text", "-f", "%v")],
)
def test_a_payload_does_nothing_to_the_terminal(ottla_server, options):
    topic = f"evil-{'-'.join(options).replace(' ', '').translate(NO_NAME)}"
    text = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\x00\x7f"
    line = json.dumps({"key": text, "value": text, "headers": [[text, text]]})
    assert piped(ottla_server, "produce", topic, "--jsonl", text=line + "\n")[0] == 0
    code, shown = on_terminal(ottla_server, "consume", topic, *options, NO_COLOR="1")
    assert code == 0
    assert "title" in shown
    assert not WORKS_ON_A_TERMINAL.search(shown.replace("\r\n", "\n").encode())
    # A pipe gets the bytes as they are.
    if options[:1] == ("-f",):
        assert text in piped(ottla_server, "consume", topic, *options)[1]


def test_names_do_nothing_to_the_terminal(ottla_server):
    code, shown = on_terminal(
        ottla_server, "quota", "set", "producer_byte_rate=1e9", "--user", "\x1b[2J", NO_COLOR="1"
    )
    assert code == 0
    assert "\x1b" not in shown
    assert r"\x1b" in shown
