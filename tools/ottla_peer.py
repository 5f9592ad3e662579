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
ADDRESS = re.compile(r"\b(127\.0\.0\.1|localhost):(\d+)\b")


class OttlaPeer(Peer):
    """One ``ottla serve`` on a free port of the loopback, with ``options`` as ``-D key=value``."""

    name = "ottla"

    def __init__(
        self, data: Path, options: Mapping[str, object] | None = None, *, port: int = 0
    ) -> None:
        super().__init__(data)
        self.options = dict(options or {})
        self._asked_port = port

    def command(self) -> Sequence[str]:
        """Return the command line that serves."""
        command = [sys.executable, "-m", "ottla", "serve", "--data", str(self.data)]
        command += ["--port", str(self._asked_port)]
        for key, value in self.options.items():
            command += ["-D", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        """Return the environment: this tree's sources first, output unbuffered."""
        environment = dict(os.environ)
        paths = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Starts are judged with bytecode.
        environment["PYTHONUNBUFFERED"] = "1"
        environment["NO_COLOR"] = "1"
        return environment

    def read_line(self, line: str) -> bool:
        """Take the address from the ready line."""
        found = ADDRESS.search(line)
        if found is None:
            return False
        self.port = int(found[2])
        return True
