"""Ottla in a process of its own, as its users start it: ``python -m ottla serve``.

For the end-to-end tests, campaigns and benchmarks. Knows the ready line, nothing of the broker's
inside.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.peer import Peer

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = re.compile(r":\d+    ([A-Z_]+) \(")
READY = re.compile(r"  [A-Z][a-z]+ ")
"""How the ready lines that have an address begin (Kafka, Try). What is logged begins otherwise, and
so do why and fix of an error."""
ADDRESS = re.compile(r"\b(127\.0\.0\.1|localhost):(\d+)\b")


class OttlaPeer(Peer):
    """One ``ottla serve`` on a free port of the loopback, with ``options`` as ``-D key=value``.

    ``python`` is the interpreter of an environment that has another Ottla installed; None: this
    tree's sources, run by this interpreter.
    ``protocols`` (SASL_PLAINTEXT) get listeners of their own, see ``secured``; ``users`` (SCRAM's
    NAME=[name=...,password=...]) are known from the start.
    """

    name = "ottla"
    _python: Path | None = None
    """Of the class, because tests ask for ``environment`` without starting a peer."""

    def __init__(
        self,
        data: Path,
        options: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        python: Path | None = None,
        protocols: Sequence[str] = (),
        users: Sequence[str] = (),
    ) -> None:
        super().__init__(data)
        self.options = dict(options or {})
        self.secured: dict[str, str] = {}
        """By protocol, where to bootstrap from, once started."""
        if protocols:
            names = ("PLAINTEXT", *protocols)
            self.options["listeners"] = ",".join(f"{name}://127.0.0.1:0" for name in names)
        self._awaited = len(protocols)
        self._users = [argument for user in users for argument in ("--add-scram", user)]
        self._asked_port = port
        self._python = python

    def command(self) -> Sequence[str]:
        """Return the command line that serves."""
        command = [str(self._python or sys.executable), "-m", "ottla", "serve"]
        command += ["--data", str(self.data), "--port", str(self._asked_port), *self._users]
        for key, value in self.options.items():
            command += ["-D", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        """Return the environment: the sources that are asked for, output unbuffered."""
        environment = dict(os.environ)
        if self._python is None:
            paths = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        else:
            environment.pop("PYTHONPATH", None)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Starts are judged with bytecode.
        environment["PYTHONUNBUFFERED"] = "1"
        environment["NO_COLOR"] = "1"
        return environment

    def read_line(self, line: str) -> bool:
        """Take the addresses from the ready lines; that of the first listener comes first."""
        found = ADDRESS.search(line) if READY.match(line) else None
        if found is None:
            return False
        protocol = PROTOCOL.search(line)
        if protocol is None or protocol[1] == "PLAINTEXT":
            self.port = int(found[2])
        else:
            self.secured[protocol[1]] = f"{found[1]}:{found[2]}"
        return len(self.secured) == self._awaited
