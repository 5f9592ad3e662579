"""Standard input, or a file, in pieces between delimiters, as they arrive.

Reads without threads: one that waits for a person could not be ended.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.cli.failure import Exit, Failure
from ottla.cli.streams import input_descriptor

READ_BYTES = 1 << 17


def cannot_read(error: OSError, what: str = "standard input") -> Failure:
    """Return the failure that tells of ``error``."""
    fix = "pipe lines in, or < FILE" if what == "standard input" else ""
    return Failure(f"cannot read {what}", why=error.strerror or "", fix=fix)


@contextmanager
def input_stream(path: str | None) -> Iterator[int]:
    """Give the number of a file that is open for reading; None: of standard input.

    Raises Failure.
    """
    if path is None:
        try:
            number = input_descriptor()
        except OSError as error:
            raise cannot_read(error) from error
        yield number
        return
    try:
        file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        what = f"cannot open {path}"
        raise Failure(what, why=error.strerror or "", code=Exit.USAGE) from error
    with file:
        yield file.fileno()


async def parts_of(number: int, delimiter: bytes, part_bytes_max: int) -> AsyncIterator[bytes]:
    """Yield what stands between delimiters, as ``part_lists`` does, one by one."""
    async for parts in part_lists(number, delimiter, part_bytes_max):
        for each in parts:
            yield each


async def part_lists(
    number: int, delimiter: bytes, part_bytes_max: int
) -> AsyncIterator[list[bytes]]:
    """Yield what stands between delimiters; what ends without one, if it is not empty, too.

    As many at a time as have arrived, at least one. Raises Failure, also for a part of more than
    ``part_bytes_max`` bytes.
    """
    rest = bytearray()
    searched = 0
    try:
        while data := await _read(number):
            rest += data
            if rest.find(delimiter, searched) >= 0:  # What was searched is not searched again.
                parts = bytes(rest).split(delimiter)
                rest = bytearray(parts.pop())
                yield parts
            searched = max(0, len(rest) - len(delimiter) + 1)
            if len(rest) > part_bytes_max:
                raise Failure(f"a record of more than {part_bytes_max} bytes has no delimiter yet")
    except OSError as error:
        raise cannot_read(error) from error
    if rest:
        yield [bytes(rest)]


async def _read(number: int) -> bytes:
    """Return what is there, waiting until something is; nothing at the end."""
    loop = asyncio.get_running_loop()
    while True:
        readable = asyncio.Event()
        try:
            loop.add_reader(number, readable.set)
        except PermissionError:  # A file, or the like: always readable.
            await asyncio.sleep(0)
            return os.read(number, READ_BYTES)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(number)
        with suppress(BlockingIOError):
            return os.read(number, READ_BYTES)
