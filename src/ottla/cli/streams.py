"""The standard streams of a command: closed, full or in another encoding, they end in words.

Owns what stands in ``sys.stdout``, ``sys.stderr`` and ``sys.stdin`` while a command runs. Replaces
only the interpreter's own streams: others that a caller has put there stay.
"""

import errno
import io
import os
import sys

OUTPUT_BUFFER_BYTES = 1 << 16
_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_fillers: list[io.FileIO] = []
"""What keeps the numbers of closed streams, so that no socket gets them."""
_closed: set[int] = set()


class OutputFailed(Exception):
    """Standard output takes nothing more, for another reason than that its reader went away.

    No OSError: what a command says of a file that it cannot read is not meant.
    """


class _Output(io.FileIO):
    """Standard output; its errors are told apart from those of files."""

    def write(self, data: object) -> int | None:  # type: ignore[override]
        """Write, as FileIO. Raises OutputFailed, BrokenPipeError."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.strerror) from error


class _ClosedOutput(io.RawIOBase):
    """Standard output that was closed before the command began."""

    def writable(self) -> bool:
        """Return True, so that what is written is refused in words."""
        return True

    def write(self, data: object) -> int:
        """Raise OutputFailed."""
        raise OutputFailed(os.strerror(errno.EBADF))


class _Errors(io.FileIO):
    """Standard error; where it cannot be written, a note is lost and nothing else."""

    def write(self, data: object) -> int | None:  # type: ignore[override]
        """Write if that is possible."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def secure() -> None:
    """Take over the interpreter's own streams. Called once, when a command begins."""
    _fill_closed()
    if sys.stdin is None and sys.__stdin__ is None:
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    if sys.stdout is sys.__stdout__:
        sys.stdout = _standard_output(is_terminal=sys.stdout is not None and sys.stdout.isatty())
    if sys.stderr is sys.__stderr__:
        raw = _Errors(_ERRORS, "wb", closefd=False)
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True
        )


def input_descriptor() -> int:
    """Return the number of standard input, to be read by. Raises OSError if it is closed."""
    if _INPUT in _closed:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.fileno()


def _standard_output(*, is_terminal: bool) -> io.TextIOWrapper:
    """Return a stream in UTF-8, which scripts expect; on a terminal in the terminal's encoding."""
    raw: io.RawIOBase = _ClosedOutput()
    if _OUTPUT not in _closed:
        raw = _Output(_OUTPUT, "wb", closefd=False)
    encoding = sys.stdout.encoding if is_terminal else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(raw, OUTPUT_BUFFER_BYTES),
        encoding,
        "backslashreplace",
        line_buffering=is_terminal,
    )


def _fill_closed() -> None:
    for number in (_INPUT, _OUTPUT, _ERRORS):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(number)
            _fillers.append(io.FileIO(os.devnull, "r+b"))
