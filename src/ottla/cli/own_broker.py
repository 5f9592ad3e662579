"""A broker beside a command, for as long as that runs: ``ottla serve`` in a process of its own."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.cli.failure import Exit, Failure
from ottla.cli.output import note
from ottla.client.wire.settings import parse_bootstrap
from ottla.config.option import InvalidConfig

STOP_SECONDS = 10


class OwnBroker:
    """A broker at ``bootstrap``, its data in ``data``; a context manager."""

    def __init__(self, bootstrap: str, data: Path) -> None:
        """Start the broker; return when it accepts clients. Raises Failure."""
        try:
            address = parse_bootstrap(bootstrap)[0]
        except InvalidConfig as error:
            raise Failure(str(error), code=Exit.USAGE) from error
        command = [sys.executable, "-m", "ottla", "serve", "--listen", address.host]
        command += ["--port", str(address.port), "--data", str(data)]
        log = data.with_name(data.name + ".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        # A group of its own: Ctrl-C ends the command first, and that ends the broker.
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - this very program
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        # Left open to the end: what the broker says next would break the pipe.
        if any("Kafka" in line for line in self._process.stdout):
            note(f"broker at {address.host}:{address.port}, data in {data}, log in {log}")
            return
        self._process.stdout.close()
        self._process.wait()
        said = log.read_text(encoding="utf-8", errors="replace").strip().removeprefix("error: ")
        raise Failure("the broker did not start", why=said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the broker in good order."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
