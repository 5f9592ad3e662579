"""Runs many `ottla` commands at little cost: each in a process of its own, forked from a warm one.

The warm process has imported every command, and nothing else happened in it. What it forks has its
own arguments, environment and standard streams, runs ``main`` as a shell would have it run, and
ends by itself; only the start of an interpreter is saved. The two sides speak in lines of JSON.
"""

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 60
UNTOUCHED = None
"""Of a stream: the file that ``run`` makes for it."""
CLOSED = ""


class Answer(NamedTuple):
    """How a command ended. A negative code is the signal that killed it."""

    code: int
    out: str
    err: str


class Running(NamedTuple):
    """A command under way."""

    pid: int
    out: Path
    err: Path


class CommandServer:
    """The warm process; a context manager. ``environment`` is added to this process's."""

    def __init__(self, environment=None):
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-commands-")
        self._count = 0
        self._ended = {}
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "NO_COLOR": "1"}
        home = {"XDG_CONFIG_HOME": self._directory.name, "HOME": self._directory.name}
        kept = {key: text for key, text in os.environ.items() if not key.startswith("OTTLA_")}
        asked_in, self._asks = os.pipe()
        self._answers, answered_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", str(asked_in), str(answered_out)],
            env={**kept, **own, **home, **(environment or {})},
            pass_fds=(asked_in, answered_out),
            cwd=self._directory.name,
            stdin=subprocess.DEVNULL,
        )
        os.close(asked_in)
        os.close(answered_out)
        self._rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._asks)
        self._process.wait(PATIENCE_SECONDS)
        os.close(self._answers)
        self._directory.cleanup()

    @property
    def directory(self):
        """Where commands run: a directory of their own."""
        return Path(self._directory.name)

    def start(self, *arguments, stdin=b"", out=UNTOUCHED, err=UNTOUCHED, environment=None):
        """Start a command. ``stdin`` is bytes, or CLOSED; ``out`` and ``err`` a path, or CLOSED."""
        self._count += 1
        place = self.directory / f"{self._count}"
        source = stdin
        if isinstance(stdin, bytes):
            source = f"{place}.in"
            Path(source).write_bytes(stdin)
        files = {0: source, 1: f"{place}.out" if out is None else out}
        files[2] = f"{place}.err" if err is None else err
        question = {"arguments": arguments, "files": files, "environment": environment or {}}
        os.write(self._asks, json.dumps(question).encode() + b"\n")
        while "started" not in (line := self._next_line()):
            self._ended[line["ended"]] = line["code"]
        return Running(line["started"], Path(f"{place}.out"), Path(f"{place}.err"))

    def finish(self, running):
        """Wait for the end of a command."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while running.pid not in self._ended:
            line = self._next_line(deadline)
            if line is None:
                os.kill(running.pid, signal.SIGKILL)
                raise AssertionError(f"it does not end: {running.err.read_text()}")
            self._ended[line["ended"]] = line["code"]
        out, err = (each.read_bytes() if each.exists() else b"" for each in running[1:])
        code = self._ended.pop(running.pid)
        said = Answer(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        assert "Traceback" not in said.err, said.err
        return said

    def has_ended(self, running):
        """Return whether a command is at its end; ``finish`` says how."""
        while line := self._next_line(time.monotonic()):
            self._ended[line["ended"]] = line["code"]
        return running.pid in self._ended

    def _next_line(self, deadline=None):
        """Return what the warm process says next; None: nothing, up to the deadline."""
        while b"\n" not in self._rest:
            left = None if deadline is None else max(0, deadline - time.monotonic())
            if not select.select([self._answers], [], [], left)[0]:
                return None
            data = os.read(self._answers, 1 << 16)
            assert data, "the warm process has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def run(self, *arguments, **streams):
        """Run a command to its end."""
        return self.finish(self.start(*arguments, **streams))


def serve(asks, answers):
    """Fork a command for each line of ``asks``; tell of its start and its end."""
    from importlib import import_module

    from ottla.cli.main import COMMANDS

    for module in COMMANDS.values():
        import_module(module)
    for module in ("run", "topic_copier", "consume_group", "record_where", "client_files"):
        import_module(f"ottla.cli.{module}")
    # Ctrl-C waits until a command has begun.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    tell = os.fdopen(answers, "w", buffering=1)
    ready = selectors.DefaultSelector()
    ready.register(asks, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in ready.select():
            if key.fd != asks:
                _, status = os.waitpid(key.data, 0)
                ready.unregister(key.fd)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(status)
                tell.write(json.dumps({"ended": key.data, "code": code}) + "\n")
                continue
            data = os.read(asks, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    ready.close()
                    os.close(asks)
                    os.close(answers)
                    _become(json.loads(line))
                ready.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                tell.write(json.dumps({"started": pid}) + "\n")


def _become(question):
    """Be the command; does not return."""
    from ottla.cli.main import main

    names = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}
    for number, path in sorted(question["files"].items()):
        name, mode = names[int(number)]
        os.close(int(number))
        if path == CLOSED:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        flags = os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        got = os.open(path, flags | os.O_NOCTTY, 0o600)
        if got != int(number):  # One below it is closed.
            os.dup2(got, int(number))
            os.close(got)
        # As the interpreter has them at its start: a terminal is seen now, not earlier.
        before = getattr(sys, name)
        with contextlib.suppress(OSError):
            before.reconfigure(line_buffering=name == "stderr" or os.isatty(int(number)))
    os.environ.update(question["environment"])
    sys.argv = ["ottla", *question["arguments"]]
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        main()
        code = 0
    except KeyboardInterrupt:
        code = 130  # Before main was begun.
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        if sys.exception() is not None:
            traceback.print_exc()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
