"""Every command that there is, where things are bad: one clear message, the right code.

The commands are those of the parsers: one that is new is here by itself, with a word for each of
its places. A port where nobody listens or answers is tried with all of them; a full disk, closed
streams, Ctrl-C and odd locales with some, drawn by pytest-randomly's seed ($OTTLA_MATRIX=all: all).
Further moments of Ctrl-C, and narrow terminals, are in ``test_cli_moments``.
"""

import argparse
import os
import random
import signal
import socket
import time
from importlib import import_module

import pytest

from ottla.cli.arguments import Parser
from ottla.cli.main import COMMANDS
from tests.command_server import CLOSED, CommandServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("bad input")]
DRAWN = 12
"""How many commands are tried in the dearer columns."""
WORDS = {
    "GROUP": "g",
    "RESOURCE": "topic/t",
    "SECOND": "u",
    "TO": "u",
    "COUNT": "1",
    "ID": "x",
    "KEY=VALUE": "retention.ms=1d",
}
"""What stands in a place; anywhere else "t"."""
MORE = {
    "bench consume": "--for 50ms",
    "bench latency": "--for 50ms",
    "bench produce": "--for 50ms",
    "cat": "-C -t t",
    "cluster drain": "1",
    "cluster wait": "--for 50ms",
    "config explain": "topic/t retention.ms",
    "config get": "topic/t",
    "config unset": "topic/t retention.ms",
    "config set": "topic/t retention.ms=1d",
    "config diff": "topic/t topic/u",
    "group describe": "g",
    "group reset": "g --to earliest",
    "group watch": "g -n 1",
    "quota set": "producer_byte_rate=1 --user u",
    "quota unset": "--user u",
    "topic copy": "t u --append",
    "topic alter": "t -c retention.ms=1d",
    "topic move": "t --brokers 1",
    "topic trim": "t --to 5",
    "user delete": "u",
    "user set": "u",
    "acl add": "--allow-principal User:u --operation read --topic t",
    "acl remove": "--allow-principal User:u --operation read --topic t",
    "doctor": "PLACE",
}
"""Command lines of those with options that are needed, or that do something only with one."""
OTHERWISE = {"pipeline init", "pipeline check", "pipeline explain", "pipeline run"}
"""They have tests of their own, for Spark's sake."""


def leaves(parser, words=()):
    """Yield (words, parser) of each command that does something."""
    verbs = next(
        (each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None
    )
    if verbs is None:
        yield " ".join(words), parser
        return
    for name, each in verbs.choices.items():
        yield from leaves(each, (*words, name))


def all_commands():
    """Return {command: parser}."""
    top = Parser(prog="ottla")
    commands = top.add_subparsers()
    for module in COMMANDS.values():
        import_module(module).register(commands)
    return dict(leaves(top))


EVERY = all_commands()


def talks(parser):
    return "bootstrap" in {each.dest for each in parser._actions}


def line(name, place):
    """Return the words of a command that would do something at ``place``."""
    parser, words = EVERY[name], MORE.get(name)
    if words is None:
        needed = [
            each
            for each in parser._actions
            if not each.option_strings and each.nargs not in ("?", "*")
        ]
        words = " ".join(WORDS.get(each.metavar or each.dest.upper(), "t") for each in needed)
        if name in ("consume", "produce"):
            words = "t"
    typed = [*name.split(), *words.replace("PLACE", place).split()]
    if any("--yes" in each.option_strings for each in parser._actions):
        typed.append("--yes")
    return [*typed, "-b", place] if name != "doctor" else typed


TALKING = sorted(
    name for name in EVERY if talks(EVERY[name]) and name not in OTHERWISE and name != "profile set"
)


def drawn(names=TALKING):
    """Return the commands for a dear column."""
    if os.environ.get("OTTLA_MATRIX") == "all":
        return list(names)
    return random.sample(names, min(DRAWN, len(names)))


@pytest.fixture(scope="module")
def server():
    with CommandServer() as running:
        (running.directory / "password").write_text("secret\n")
        yield running


def password(name):
    return ["--password-file", "password"] if name == "user set" else []


def at_once(server, lines, **streams):
    """Run commands beside each other; return {command: answer}."""
    found = {}
    names = list(lines)
    for first in range(0, len(names), 8):
        running = {name: server.start(*lines[name], **streams) for name in names[first : first + 8]}
        found |= {name: server.finish(each) for name, each in running.items()}
    return found


def test_the_commands_are_found():
    assert {"topic list", "consume", "cluster health", "group offsets delete"} <= set(TALKING)


def test_a_port_where_nobody_listens_is_named(server):
    # Port 1: one that was free a moment ago may be somebody's by now.
    place = "127.0.0.1:1"
    lines = {name: line(name, place) + password(name) for name in TALKING}
    for name, (code, out, err) in at_once(server, lines).items():
        assert (code, out) == (3, ""), (name, err)
        assert "connection refused" in err, name
        assert len(err.splitlines()) <= 4, name


def test_a_port_that_never_answers_is_given_up(server):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        lines = {
            name: [*line(name, place), *password(name), "--timeout", "100ms"] for name in TALKING
        }
        for name, (code, out, err) in at_once(server, lines).items():
            assert (code, out) == (3, ""), (name, err)
            assert place in err, name
            assert len(err.splitlines()) <= 4, name


def test_ctrl_c_ends_every_command_that_waits(server):
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        for name in drawn():
            for pause_seconds in (0.0, 0.01, 0.15):
                words = [*line(name, place), *password(name), "--timeout", "60s"]
                words = [each.replace("50ms", "60s") for each in words]
                running = server.start(*words)
                time.sleep(pause_seconds)
                began = time.monotonic()
                try:
                    os.kill(running.pid, signal.SIGINT)
                except ProcessLookupError:
                    raise AssertionError((name, server.finish(running))) from None
                code, _, err = server.finish(running)
                assert code == 130, (name, pause_seconds, code, err)
                assert time.monotonic() - began < 30, name


READING = ("list", "describe", "info", "brokers", "apis", "logdirs", "get", "explain", "size")
SHOWING = sorted(
    name for name in TALKING if name.split()[-1] in READING or name in ("txn ages", "topic count")
)


@pytest.fixture
def there(ottla_server, server):
    """Where a cluster is that has topics t and u with a record each, and a group g."""
    environment = {"OTTLA_BOOTSTRAP": ottla_server.bootstrap}
    for topic in "tu":
        created = ("topic", "create", topic, "--if-not-exists")
        assert server.run(*created, environment=environment).code == 0
        assert server.run("produce", topic, stdin=b"a\n", environment=environment).code == 0
    reset = ("group", "reset", "g", "--to", "0", "--topic", "t", "--yes")
    assert server.run(*reset, environment=environment).code == 0
    return ottla_server.bootstrap


def test_a_full_disk_behind_the_output_is_said(server, there):
    names = drawn(SHOWING)
    lines = {name: [*line(name, there), "-o", "json"] for name in names}
    plain = at_once(server, lines)
    full = at_once(server, lines, out="/dev/full")
    for name in names:
        if plain[name].code == 0:
            assert full[name].code == 1, (name, full[name])
            assert "cannot write to standard output" in full[name].err, name
        else:
            assert full[name].code == plain[name].code, (name, plain[name], full[name])


def test_a_stream_that_is_closed_is_no_traceback(server, there):
    names = drawn(SHOWING)
    lines = {name: [*line(name, there), "-o", "json"] for name in names}
    plain = at_once(server, lines)
    without_input = at_once(server, lines, stdin=CLOSED)
    without_output = at_once(server, lines, out=CLOSED)
    without_errors = at_once(server, lines, err=CLOSED)
    for name in names:
        code = plain[name].code
        assert without_input[name].code == code, (name, without_input[name])
        assert without_errors[name].code == code, (name, without_errors[name])
        assert without_output[name].code == (code or 1), (name, without_output[name])


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_the_terminal(server, columns):
    names = sorted(EVERY) if columns == 60 else drawn(sorted(EVERY))
    lines = {name: [*name.split(), "--help"] for name in names}
    for name, (code, out, _) in at_once(
        server, lines, environment={"COLUMNS": str(columns)}
    ).items():
        assert code == 0, name
        usage, _, rest = out.partition("\n\n")
        assert usage.startswith("usage: ottla"), name
        assert max(map(len, rest.splitlines())) <= columns, (name, rest)


def test_names_that_a_locale_cannot_write(there):
    odd = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LANG": "C"}
    with CommandServer(odd) as server:
        environment = {"OTTLA_BOOTSTRAP": there}
        made = server.run("produce", "t", stdin="größe\n".encode(), environment=environment)
        assert made.code == 0, made
        read = server.run("consume", "t", "--from", "-1", environment=environment)
        assert read.out == "größe\n"
        for name in drawn(SHOWING):
            said = server.run(*line(name, there), environment=environment)
            assert said.code in (0, 1, 5), (name, said)  # 1: there is no authorizer
        missing = server.run("topic", "describe", "größe", environment=environment)
        assert (missing.code, "illegal" in missing.err) == (2, True)
