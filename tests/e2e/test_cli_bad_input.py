"""Every command that talks to a cluster, where there is none: one clear message, the right code."""

import argparse
import json
import socket
import subprocess
import sys
from importlib import import_module

import pytest

from ottla.cli.arguments import Parser
from ottla.cli.main import COMMANDS
from tools.ottla_peer import OttlaPeer

PATIENCE_SECONDS = 60
COMMAND_LINES = {
    "topic create": "t",
    "topic list": "",
    "topic describe": "t",
    "topic alter": "t -c retention.ms=1d",
    "topic delete": "t --yes",
    "topic add-partitions": "t 1 --yes",
    "topic size": "t",
    "topic trim": "t --to 5 --yes",
    "topic copy": "t u",
    "topic diff": "t u",
    "topic count": "t",
    "topic move": "t --brokers 1",
    "topic elect": "t",
    "produce": "t",
    "consume": "t",
    "cat": "-C -t t",
    "group list": "",
    "group describe": "g",
    "group reset": "g --to earliest --yes",
    "group offsets delete": "g t --yes",
    "group watch": "g",
    "group delete": "g --yes",
    "cluster info": "",
    "cluster brokers": "",
    "cluster apis": "",
    "cluster logdirs": "",
    "cluster health": "",
    "cluster status": "",
    "cluster wait": "--for 50ms",
    "config get": "topic/t",
    "config set": "topic/t retention.ms=1d",
    "config unset": "topic/t retention.ms",
    "config explain": "topic/t retention.ms",
    "config diff": "topic/t topic/u",
    "txn list": "",
    "txn describe": "x",
    "txn ages": "",
    "txn producers": "t",
    "txn hanging": "t",
    "txn abort": "x --yes",
    "bench produce": "--for 50ms",
    "bench consume": "--for 50ms",
    "bench latency": "--for 50ms",
    "user list": "",
    "quota list": "",
    "quota set": "producer_byte_rate=1 --user u",
    "quota unset": "--user u",
    "acl list": "",
}
OTHERS = {"user", "acl"}
"""Commands with verbs of other tests' files: at least their lists are here."""


def leaves(parser, words=()):
    """Yield (words, parser) of each command that does something."""
    verbs = next(
        (each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None
    )
    if verbs is None:
        yield words, parser
        return
    for name, each in verbs.choices.items():
        yield from leaves(each, (*words, name))


def test_no_command_is_missing_here():
    top = Parser(prog="ottla")
    commands = top.add_subparsers()
    for module in COMMANDS.values():
        import_module(module).register(commands)
    talking = {
        " ".join(words)
        for words, parser in leaves(top)
        if "bootstrap" in {each.dest for each in parser._actions}
        and words[0] not in {*OTHERS, "pipeline", "doctor"}
    }
    assert talking == {each for each in COMMAND_LINES if each.split()[0] not in OTHERS}


def run_all(bootstrap, *more):
    """Run every command in one process; return {command: (exit code, standard error)}."""
    lines = {name: [*name.split(), *rest.split()] for name, rest in COMMAND_LINES.items()}
    code = (
        "import io, json, sys\n"
        "from ottla.cli.main import command_line\n"
        "said, out = {}, sys.stdout\n"
        f"for name, words in {lines!r}.items():\n"
        "    sys.stderr, sys.stdout = io.StringIO(), io.StringIO()\n"
        "    try:\n"
        f"        command_line([*words, '-b', {bootstrap!r}, *{list(more)!r}])\n"
        "        code = 0\n"
        "    except SystemExit as end:\n"
        "        code = int(end.code or 0)\n"
        "    said[name] = (code, sys.stderr.getvalue(), sys.stdout.getvalue())\n"
        "json.dump(said, out)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)),
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.timeout(120)
def test_a_port_where_nobody_listens_is_named():
    # Port 1: one that was free a moment ago may be somebody's by now.
    for name, (code, err, out) in run_all("127.0.0.1:1").items():
        assert (code, out) == (3, ""), (name, err)
        assert "connection refused" in err, name
        assert len(err.splitlines()) <= 4, name


@pytest.mark.timeout(120)
def test_a_port_that_never_answers_is_given_up():
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        for name, (code, err, out) in run_all(where, "--timeout", "100ms").items():
            assert (code, out) == (3, ""), (name, err)
            assert where in err, name
            assert len(err.splitlines()) <= 4, name


READING = ("topic list", "topic size", "topic describe", "config get", "cluster info", "txn ages")


@pytest.mark.parametrize("name", READING)
@pytest.mark.timeout(120)
def test_a_full_disk_behind_the_output_is_said(ottla_server, name):
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    environment["OTTLA_BOOTSTRAP"] = ottla_server.bootstrap
    ottla = [sys.executable, "-m", "ottla"]
    create = [*ottla, "topic", "create", "t", "--if-not-exists"]
    subprocess.run(create, check=True, env=environment, timeout=60, capture_output=True)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ottla, *name.split(), *COMMAND_LINES[name].split(), "-o", "json"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            env=environment,
        )
    assert done.returncode == 1
    assert b"cannot write to standard output" in done.stderr
    assert b"Traceback" not in done.stderr
