"""Processes that this one starts: their start, what they write, their end.

Owns pipes and signals. A child begins with SIGINT and SIGHUP blocked: a Ctrl-C at a terminal goes
to every process there, and is for this one to pass on. Knows nothing of what they do.
"""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Protocol, cast

LINE_BYTES_MAX = 8 * 1024
"""A longer line is cut into several."""
_TERMINAL_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP})

OnLine = Callable[[str], None]
"""Takes a line that a process wrote, without its end."""
OnEnd = Callable[[int], None]
"""Takes the exit code; below 0: the signal that ended it."""


class Process(Protocol):
    """A process that runs, or has ended."""

    @property
    def pid(self) -> int:
        """Its number."""

    def terminate(self) -> None:
        """Ask it to end (SIGTERM). Harmless when it has ended."""

    def kill(self) -> None:
        """End it at once, also when it is stopped. Harmless when it has ended."""


class Processes(Protocol):
    """Starts processes."""

    async def start(
        self, command: Sequence[str], descriptors: Sequence[int], on_line: OnLine, on_end: OnEnd
    ) -> Process:
        """Start a process that inherits ``descriptors``; the callbacks come on the loop.

        Raises OSError.
        """


class SystemProcesses:
    """The operating system's."""

    async def start(
        self, command: Sequence[str], descriptors: Sequence[int], on_line: OnLine, on_end: OnEnd
    ) -> "_Child":
        """Start a process; what it writes comes in lines."""
        loop = asyncio.get_running_loop()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL_SIGNALS)
        try:
            _, child = await loop.subprocess_exec(
                lambda: _Child(on_line, on_end),
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(descriptors),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return child


class _Child(asyncio.SubprocessProtocol):
    """A process that was started."""

    def __init__(self, on_line: OnLine, on_end: OnEnd) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._transport: asyncio.SubprocessTransport | None = None
        self._begun = bytearray()
        """Use: the beginning of a line."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._transport is not None, "it is started"
        return self._transport.get_pid()

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        assert self._transport is not None, "it is started"
        if self._transport.get_returncode() is None:
            try:
                self._transport.send_signal(number)
            except ProcessLookupError:
                return  # It has just ended.

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._begun += data
        *lines, rest = bytes(self._begun).split(b"\n")
        while len(rest) > LINE_BYTES_MAX:
            lines.append(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        self._begun[:] = rest
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if self._begun:
            self._on_line(bytes(self._begun).decode(errors="replace"))
            self._begun.clear()

    def process_exited(self) -> None:
        assert self._transport is not None, "it was started"
        code = self._transport.get_returncode()
        self._on_end(-1 if code is None else code)


def follow_nobody_else() -> None:
    """Leave the terminal's signals to the process that started this one. SIGTERM stays."""
    for number in _TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINAL_SIGNALS)
