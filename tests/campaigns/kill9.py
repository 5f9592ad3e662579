"""Kill the broker with SIGKILL under load, again and again, and prove that no acknowledged record
is lost.

    python tests/campaigns/kill9.py [--restarts 200] [--writers 6] [--partitions 3] [--seed 1]

Each writer sends unique values, each with a CRC of its own, one request at a time with acks=all,
through the raw wire client. What the broker acknowledged is written down with its offset. After
each restart all partitions are read from the start of the round; at the end, from their first
offset. A record whose answer never came may be there or not, once. Prints a JSON report; exit
code 1 when a promise was broken.
"""

import argparse
import json
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tools.ottla_peer import OttlaPeer
from tools.wire_client import Closed, WireClient, batch, batches, values_of

TOPIC = "campaign"
FETCH_BYTES = 8 << 20
UNDECIDED = (7, 20)
"""REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND: the record may stand there."""


def make_value(writer: int, number: int) -> bytes:
    """Return a value that names its writer and number and carries its CRC; up to 600 bytes."""
    body = struct.pack(">IQ", writer, number) + bytes(
        (writer * 31 + number * 7 + index) & 255 for index in range(number * 37 % 580)
    )
    return body + struct.pack(">I", zlib.crc32(body))


def parse_value(value: bytes | None) -> tuple[int, int] | None:
    """Return (writer, number) of a whole value; None when it is torn or altered."""
    if value is None or len(value) < 16:
        return None
    if zlib.crc32(value[:-4]) != struct.unpack(">I", value[-4:])[0]:
        return None
    writer, number = struct.unpack_from(">IQ", value)
    return (writer, number) if value == make_value(writer, number) else None


@dataclass
class Ledger:
    """What the writers sent and what was acknowledged."""

    acknowledged: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(writer, number) to (partition, offset)."""
    unknown: dict[tuple[int, int], int] = field(default_factory=dict)
    """(writer, number) to partition, for those whose answer never came."""
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Writer(threading.Thread):
    """One connection that produces small batches of unique records until the broker dies."""

    def __init__(self, number: int, partitions: int, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.partitions = partitions
        self.ledger = ledger
        self.bootstrap = ""
        self.next_number = 0
        self.stopping = threading.Event()
        self.working = threading.Event()
        self.idle = threading.Event()
        self.idle.set()

    def run(self) -> None:
        """Write whenever there is a broker."""
        while not self.stopping.is_set():
            if not self.working.wait(0.1):
                continue
            self.idle.clear()
            try:
                with WireClient(self.bootstrap, timeout_seconds=30) as client:
                    while self.working.is_set():
                        self.write(client)
            except (OSError, Closed):
                pass
            finally:
                self.working.clear()
                self.idle.set()

    def write(self, client: WireClient) -> None:
        """Send one batch; put down its fate."""
        count = 1 + self.next_number * 13 % 7
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        partition = (self.number + self.next_number) % self.partitions
        with self.ledger.lock:
            for number in numbers:
                self.ledger.unknown[self.number, number] = partition
        answer = client.produce(
            TOPIC, batch([make_value(self.number, number) for number in numbers]), partition
        )
        with self.ledger.lock:
            for index, number in enumerate(numbers):
                if answer["error_code"] in UNDECIDED:
                    continue
                del self.ledger.unknown[self.number, number]
                if answer["error_code"] == 0:
                    place = (partition, answer["base_offset"] + index)
                    self.ledger.acknowledged[self.number, number] = place
                else:
                    self.ledger.refused += 1


class Reader:
    """Reads partitions on and checks each record; remembers what stood at each offset."""

    def __init__(self, partitions: int) -> None:
        self.seen: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.problems: list[str] = []

    def read(self, bootstrap: str, *, from_offset: list[int]) -> list[int]:
        """Read every partition from its offset to its end; return the ends."""
        ends = []
        with WireClient(bootstrap, timeout_seconds=60) as client:
            for partition, offset in enumerate(from_offset):
                (code, end), *_ = client.list_offsets(TOPIC, [partition])
                if code:
                    self.problems.append(f"ListOffsets of partition {partition}: error {code}")
                self.read_partition(client, partition, offset, end)
                ends.append(end)
        return ends

    def read_partition(self, client: WireClient, partition: int, offset: int, end: int) -> None:
        """Read ``[offset, end)``: every offset once, in order, whole."""
        while offset < end:
            limits = {"max_bytes": FETCH_BYTES, "partition_max_bytes": FETCH_BYTES}
            answer = client.fetch(TOPIC, offset, partition, **limits)
            headers = batches(answer["records"])
            if answer["error_code"] or not headers:
                self.problems.append(f"fetch {partition}@{offset}: error {answer['error_code']}")
                return
            for header in headers:
                if not header["crc_ok"]:
                    self.problems.append(f"batch CRC at {partition}@{header['base_offset']}")
            for found, value in values_of(answer["records"]):
                if found < offset:
                    continue  # the batch begins before what was asked
                if found != offset:
                    self.problems.append(f"partition {partition}: {found} follows {offset - 1}")
                self.check(partition, found, value or b"")
                offset = found + 1

    def check(self, partition: int, offset: int, value: bytes) -> None:
        """Compare with what stood there before."""
        if parse_value(value) is None:
            self.problems.append(f"torn or altered value at {partition}@{offset}: {value[:40]!r}")
        before = self.seen[partition].setdefault(offset, value)
        if before != value:
            self.problems.append(f"{partition}@{offset} changed between two reads")


def judge(ledger: Ledger, before: Reader, reader: Reader) -> list[str]:
    """Compare what was acknowledged, and what was read on the way, with what was read at last."""
    problems = before.problems + reader.problems
    for partition, rows in enumerate(before.seen):
        for offset, value in rows.items():
            if reader.seen[partition].get(offset) != value:
                problems.append(f"{partition}@{offset} was read once and is gone or changed")
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, rows in enumerate(reader.seen):
        for offset, value in rows.items():
            name = parse_value(value)
            if name is None:
                continue
            if name in places:
                problems.append(f"{name} stands at {places[name]} and at {(partition, offset)}")
            places[name] = (partition, offset)
    for name, place in ledger.acknowledged.items():
        if name not in places:
            problems.append(f"lost: {name} was acknowledged at {place}")
        elif places[name] != place:
            problems.append(f"moved: {name} was acknowledged at {place}, stands at {places[name]}")
    for name in places:
        if name not in ledger.acknowledged and name not in ledger.unknown:
            problems.append(f"phantom: {name}")
    return problems


def run(
    *,
    restarts: int,
    writers: int,
    partitions: int,
    seed: int,
    data: Path,
    options: Mapping[str, object],
) -> dict[str, object]:
    """Run the campaign; return its report."""
    chooser = random.Random(seed)
    ledger = Ledger()
    reader, final = Reader(partitions), Reader(partitions)
    server = OttlaPeer(data, options)
    threads = [Writer(number, partitions, ledger) for number in range(writers)]
    start_seconds: list[float] = []
    begin = time.monotonic()
    try:
        server.start()
        with WireClient(server.bootstrap) as client:
            client.create_topic(TOPIC, partitions, segment_bytes="1048576")
        for thread in threads:
            thread.start()
        ends = [0] * partitions
        for _ in range(restarts):
            for thread in threads:
                thread.bootstrap = server.bootstrap
                thread.working.set()
            time.sleep(chooser.uniform(0.02, 0.6))
            server.kill9()
            for thread in threads:
                thread.working.clear()
                thread.idle.wait(60)
            server.start()
            start_seconds.append(server.started_in_seconds)
            ends = reader.read(server.bootstrap, from_offset=[max(0, end - 50) for end in ends])
        final.read(server.bootstrap, from_offset=[0] * partitions)
    finally:
        for thread in threads:
            thread.stopping.set()
            thread.working.clear()
        for thread in threads:
            if thread.ident is not None:
                thread.join(60)
        server.kill9()
    problems = judge(ledger, reader, final)
    ordered = sorted(start_seconds)
    return {
        "restarts": restarts,
        "seed": seed,
        "seconds": round(time.monotonic() - begin, 1),
        "acknowledged": len(ledger.acknowledged),
        "unknown": len(ledger.unknown),
        "refused": ledger.refused,
        "read": sum(map(len, final.seen)),
        "start_seconds": {
            "median": round(ordered[len(ordered) // 2], 3),
            "max": round(ordered[-1], 3),
        },
        "problem_count": len(problems),
        "problems": problems[:20],
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=200)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="a new directory; kept (default: temporary)")
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--max-start-seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    parent = Path(tempfile.mkdtemp(prefix="ottla-kill9-")) if arguments.data is None else None
    try:
        report = run(
            restarts=arguments.restarts,
            writers=arguments.writers,
            partitions=arguments.partitions,
            seed=arguments.seed,
            data=arguments.data or parent / "data",  # type: ignore[operator]
            options=dict(option.split("=", 1) for option in arguments.options),
        )
    finally:
        if parent is not None:
            shutil.rmtree(parent, ignore_errors=True)
    slowest = report["start_seconds"]["max"]  # type: ignore[index]
    report["verdict"] = (
        "ok" if not report["problem_count"] and slowest < arguments.max_start_seconds else "broken"
    )
    print(json.dumps(report, indent=2))
    return 0 if report["verdict"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
