"""What the tab key gets: by ``ottla __complete``, and by a real bash."""

import shutil
import socket
import subprocess
import sys
import time

import pytest

from tests.commands import run_command

pytestmark = pytest.mark.timeout(120)


def words(run, *typed):
    code, out, err = run("__complete", *typed)
    assert (code, err) == (0, "")
    return out.splitlines()


@pytest.fixture
def topic(ottla, topic_name):
    assert ottla("topic", "create", topic_name)[0] == 0
    return topic_name


def test_commands_options_and_choices_are_completed(ottla):
    assert words(ottla, "top") == ["topic"]
    assert words(ottla, "topic", "des") == ["describe"]
    assert words(ottla, "help", "gro") == ["group"]
    assert words(ottla, "group", "offsets", "") == ["delete"]
    assert words(ottla, "topic", "list", "--out") == ["--output"]
    assert words(ottla, "topic", "list", "-o", "js") == ["json", "jsonl"]
    assert words(ottla, "config", "get", "topic/x", "retention") == [
        "retention.bytes",
        "retention.ms",
    ]
    assert words(ottla, "nonsense", "") == []
    assert "topic" in words(ottla, "")


def test_live_names_are_completed(either, ottla, topic):
    group = f"{topic}-group"
    assert ottla("group", "reset", group, "--topic", topic, "--to", "0", "--yes")[0] == 0
    deadline = time.monotonic() + 60
    # A busy machine may take longer than a person at the tab key has patience.
    while words(ottla, "topic", "describe", topic[:-2]) != [topic]:
        assert time.monotonic() < deadline
    while words(ottla, "topic", "copy", "x", topic) != [topic]:
        assert time.monotonic() < deadline
    while words(ottla, "config", "get", f"topic/{topic}") != [f"topic/{topic}"]:
        assert time.monotonic() < deadline
    while words(ottla, "group", "describe", topic) != [group]:
        assert time.monotonic() < deadline

    def elsewhere(*arguments):
        return run_command("127.0.0.1:1", *arguments)

    while words(elsewhere, "topic", "describe", "-b", either.bootstrap, topic) != [topic]:
        assert time.monotonic() < deadline


def test_a_cluster_that_is_away_or_silent_is_no_error_and_no_wait():
    def run(*arguments):
        return run_command("127.0.0.1:1", *arguments)

    assert words(run, "topic", "describe", "") == []
    assert words(run, "topic", "describe", "-b", "no:port:at:all", "") == []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        assert words(run, "topic", "describe", "-b", where, "") == []


def test_names_that_a_shell_would_run_are_left_out():
    from ottla.cli.completion import _is_plain

    for name in ("$(reboot)", "`x`", "a b", "a;b", "a'b", "a\nb", "", "*", "a\x1b"):
        assert not _is_plain(name)
    for name in ("orders", "a.b_c-1", "topic/a", "retention.ms=", "--output"):
        assert _is_plain(name)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_takes_the_script(tmp_path):
    for shell in ("zsh", "fish"):
        assert "__complete" in run_command("127.0.0.1:1", "completion", shell)[1]
    assert run_command("127.0.0.1:1", "completion", "tcsh")[0] == 2
    script = tmp_path / "completion"
    script.write_text(run_command("127.0.0.1:1", "completion", "bash")[1])
    code = (
        f'ottla() {{ {sys.executable} -m ottla "$@"; }}; . {script}; '
        "COMP_WORDS=(ottla topic des); COMP_CWORD=2; _ottla; "
        'echo "${COMPREPLY[@]}"; complete -p ottla'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["describe", "complete -o default -F _ottla ottla"]
