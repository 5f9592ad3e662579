"""What the disk can do, with no broker around: ``python bench/syncs.py``.

The ceiling of durable produce: some files are appended to, then made durable as the broker does it
(``ottla.env.sync_loop``: one sync of all they are on, each file that takes a new block begun before
it; or an fdatasync of each, in four threads). Prints how many appends per second become durable so
with so many in flight, and what that costs this process and the machine. A broker with so many
requests in flight, each for another file, and no journal of its own answers fewer, whatever it is
written in: its own work comes on top.

"two calls side by side" has half of the files in each of two syncs that overlap, as if the other
half gathered meanwhile. Compare with ``python bench/run.py --only "in turn"``: 50 are in flight at
10 connections, 100 at 100. Linux; needs the compiled extension.
"""

import argparse
import os
import queue
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.scenarios import records_of
from ottla.env.sync_loop import SYNCS_TOGETHER, sync_together

THREADS = 4
"""That sync single files: the broker's."""
COUNTS = (1, 4, 10, 25, 50, 100)

Work = Callable[[], None]


class Files:
    """Some files that grow, all in one directory."""

    def __init__(self, directory: Path, count: int, data: bytes) -> None:
        self._directory = os.open(directory, os.O_RDONLY)
        block = os.fstatvfs(self._directory).f_bsize
        self._numbers = [
            os.open(directory / f"{count}-{number}", os.O_RDWR | os.O_CREAT)
            for number in range(count)
        ]
        self._data, self._block_bytes = data, block
        self._ends = [0] * count

    def append(self, part: slice) -> list[int]:
        """Append to some; return those of them which have begun a block."""
        grown = []
        for at in range(*part.indices(len(self._numbers))):
            end = self._ends[at]
            os.pwrite(self._numbers[at], self._data, end)
            self._ends[at] = after = end + len(self._data)
            if (after - 1) // self._block_bytes != (end - 1) // self._block_bytes:
                grown.append(self._numbers[at])
        return grown

    def together(self, part: slice) -> None:
        """Append to some, and sync by one call."""
        grown = self.append(part) or self._numbers[part][:1]
        error = sync_together(array("i", [self._directory, *grown]))
        if error:
            raise OSError(error, os.strerror(error))

    def each(self, run: Callable[[Sequence[Work]], None]) -> None:
        """Append to all, and sync each."""
        self.append(slice(None))
        run([lambda number=number: os.fdatasync(number) for number in self._numbers])

    def close(self) -> None:
        """Let go of them."""
        for number in (self._directory, *self._numbers):
            os.close(number)


class Crew:
    """Threads that work side by side."""

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def run(self, works: Sequence[Work]) -> None:
        """Have all done; return when they are."""
        for work in works:
            self._jobs.put(work)
        for _ in works:
            self._done.get()

    def close(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            work()
            self._done.put(None)


def measure(seconds: float, count: int, once: Work) -> str:
    """Repeat ``once``, which makes ``count`` appends durable; return a line."""
    os.sync()
    once()
    rounds: list[float] = []
    before, own = machine.times(), time.process_time()
    begin = now = time.perf_counter()
    while now - begin < seconds:
        once()
        rounds.append(time.perf_counter() - now)
        now += rounds[-1]
    own, after = time.process_time() - own, machine.times()
    appends = len(rounds) * count
    rounds.sort()
    busy = (after.busy - before.busy) / os.sysconf("SC_CLK_TCK")
    return (
        f"{appends / (now - begin):9,.0f}/s {rounds[len(rounds) // 2] * 1e3:8.2f} ms"
        f" {own / appends * 1e6:8.1f} us {busy / appends * 1e6:8.1f} us"
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="of each figure")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", type=Path, help="where to write (default: temporary)")
    machine.add_options(parser)
    arguments = parser.parse_args()
    if not SYNCS_TOGETHER:
        print("needs Linux and the compiled extension", file=sys.stderr)
        return 1
    machine.begin(arguments)
    data = records_of(1)
    print(f"appends of {len(data)} bytes; CPU per append; load {os.getloadavg()[0]:.1f}")
    print(f"{'files':>5} {'':<22} {'durable':>11} {'round':>11} {'process':>11} {'machine':>11}")
    crew, pair = Crew(THREADS), Crew(2)
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-syncs-", dir=arguments.data) as directory:
            for count in COUNTS:
                files = Files(Path(directory), count, data)
                halves = [slice(None, count // 2), slice(count // 2, None)]
                ways: dict[str, Work] = {
                    "each by itself": lambda files=files: files.each(crew.run),
                    "one call": lambda files=files: files.together(slice(None)),
                }
                if count > 1:
                    ways["two calls side by side"] = lambda files=files, halves=halves: pair.run(
                        [lambda half=half: files.together(half) for half in halves]
                    )
                for _ in range(arguments.rounds):
                    for name, once in ways.items():
                        print(f"{count:5} {name:<22} {measure(arguments.seconds, count, once)}")
                files.close()
    finally:
        crew.close()
        pair.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
