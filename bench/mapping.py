"""Ways of bytes from a socket into a file: ``python bench/mapping.py``.

What the kernel and the copies of each way cost, without a broker around them: receive into a
buffer and write (what the log does), or copy into a mapping, or receive straight into the mapping;
into a fresh file, into one that was preallocated, and into one whose pages are in memory already
(which a log never has: it only grows). CPU of the receiving process per GiB; the sender is another
process. Linux only.
"""

import argparse
import mmap
import os
import resource
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine

STRETCH_BYTES = 4 << 20
Way = Callable[[socket.socket, int, int, int], None]
"""Takes socket, descriptor, bytes to receive, bytes of one batch."""


def receive(source: socket.socket, view: memoryview) -> None:
    """Fill ``view``."""
    got = 0
    while got < len(view):
        got += source.recv_into(view[got:])


def write(source: socket.socket, number: int, total: int, size: int) -> None:
    """Receive into a buffer, write."""
    buffer = memoryview(bytearray(size))
    for position in range(0, total, size):
        receive(source, buffer)
        os.pwrite(number, buffer, position)


def mapped(*, straight: bool, populate: bool) -> Way:
    """Receive straight into a mapping, or into a buffer that is copied there."""
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populate else 0)

    def way(source: socket.socket, number: int, total: int, size: int) -> None:
        buffer = memoryview(bytearray(size))
        for start in range(0, total, STRETCH_BYTES):
            stretch = memoryview(mmap.mmap(number, STRETCH_BYTES, flags=flags, offset=start))
            for position in range(0, STRETCH_BYTES, size):
                if straight:
                    receive(source, stretch[position : position + size])
                else:
                    receive(source, buffer)
                    stretch[position : position + size] = buffer

    return way


WAYS: dict[str, tuple[Way, str]] = {
    "write": (write, "fresh"),
    "write, preallocated": (write, "allocated"),
    "copy into a populated mapping": (mapped(straight=False, populate=True), "allocated"),
    "straight into a populated mapping": (mapped(straight=True, populate=True), "allocated"),
    "straight into a mapping, faults": (mapped(straight=True, populate=False), "allocated"),
    "write over pages in memory": (write, "cached"),
    "straight into pages in memory": (mapped(straight=True, populate=True), "cached"),
}


def prepare(path: Path, kind: str, total: int) -> int:
    """Make the file and return its descriptor."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if kind == "allocated":
        os.posix_fallocate(number, 0, total)
    elif kind == "cached":
        for position in range(0, total, STRETCH_BYTES):
            os.pwrite(number, b"x" * STRETCH_BYTES, position)
        os.fdatasync(number)
    return number


def measure(way: Way, kind: str, directory: Path, total: int, size: int) -> float:
    """Return the CPU seconds (user and system) per GiB of one run."""
    path = directory / "file"
    number = prepare(path, kind, total)
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            with socket.create_connection(server.getsockname()) as out:
                data = b"y" * max(size, 1 << 16)
                for _ in range(0, total, len(data)):
                    out.sendall(data)
            os._exit(0)
        source, _ = server.accept()
        before = resource.getrusage(resource.RUSAGE_SELF)
        with source:
            way(source, number, total, size)
        after = resource.getrusage(resource.RUSAGE_SELF)
    os.waitpid(child, 0)
    os.close(number)
    path.unlink()
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent / total * (1 << 30)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=128, help="of one run")
    parser.add_argument("--data", type=Path, help="where the file is (default: temporary)")
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    total = arguments.megabytes << 20
    print(f"CPU s/GiB, median (min-max) of {arguments.rounds}; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="ottla-mapping-", dir=arguments.data) as directory:
        for size in (16 << 10, 1 << 20):
            found: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(arguments.rounds):
                for name, (way, kind) in WAYS.items():
                    found[name].append(measure(way, kind, Path(directory), total, size))
            print(f"batches of {size >> 10} KiB")
            for name, runs in found.items():
                middle, low, high = statistics.median(runs), min(runs), max(runs)
                print(f"  {name:<36} {middle:6.2f} ({low:.2f}-{high:.2f})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
