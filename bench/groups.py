"""What groups and committed offsets cost a broker, beside Apache Kafka: ``python bench/groups.py``.

Kafka, Ottla and an Ottla that flushes as Kafka does stand side by side and are measured in turn,
round by round, by the same raw client: heartbeats with 10, 1,000 and 10,000 groups (they should
cost the same), commits of ten partitions by many groups over 16 connections, and of one by one
client (``--members 0 --restarts 0``: commits only). Then each is killed with SIGKILL: how long
after its start are all groups served again? The JVM is warmed up by all of it, until it has spent
``--warmup`` seconds of CPU. Prints medians with minimum and maximum, and ratios to Kafka.
"""

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.run import make_peers
from tools.differential import Play
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer
from tools.wire_client import WireClient

TOPIC = "groups"
PARTITIONS = 10
PIPELINED = 200
CONNECTIONS = 16
GROUP_COUNTS = (10, 1000, 10_000)
Figures = dict[str, float]
"""A round's, by name."""


class Subject:
    """One broker, with members in groups of one, and all that is asked of it."""

    def __init__(self, peer: Peer, *, groups: int, members: int) -> None:
        self.peer = peer
        self.groups = groups
        self.wire = WireClient(peer.bootstrap)
        self.connections: list[WireClient] = []
        self.connect()
        with Play(peer.bootstrap) as play:
            play.create_topic(TOPIC, PARTITIONS)
            play.wait_for_coordinator(*(f"group-{number}" for number in range(60)))
        self.commits = [self.commit_of(f"group-{n}", PARTITIONS) for n in range(groups)]
        self.one = frame(self.commit_of("one", 1))
        self.beats = self.make_members(members)

    def connect(self) -> None:
        """Open connections anew: brokers close those that are idle for ten minutes."""
        for wire in (self.wire, *self.connections):
            wire.close()
        self.wire = WireClient(self.peer.bootstrap)
        self.connections = [WireClient(self.peer.bootstrap) for _ in range(CONNECTIONS)]

    def commit_of(self, group: str, partitions: int) -> bytes:
        """Return an OffsetCommit of a client that is in no group."""
        parts = [
            {"partition_index": index, "committed_offset": index, "committed_metadata": ""}
            for index in range(partitions)
        ]
        return self.wire.encode(
            "offset_commit",
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": TOPIC, "partitions": parts}],
        )

    def make_members(self, count: int) -> list[bytes]:
        """Let so many groups of one be stable; return a heartbeat of each, framed."""
        asked = {
            "session_timeout": 600_000,
            "rebalance_timeout": 600_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "member_id": "",
        }
        beats = []
        for base in range(0, count, PIPELINED):
            names = [f"m-{number}" for number in range(base, min(base + PIPELINED, count))]
            joins = [self.wire.encode("join_group", 3, group_id=one, **asked) for one in names]
            ids = [
                str(self.wire.decode("join_group", 3, answer)["member_id"])
                for answer in self.spread([frame(one) for one in joins])
            ]
            members = [
                {"group_id": group, "member_id": member, "generation_id": 1}
                for group, member in zip(names, ids, strict=True)
            ]
            syncs = [self.wire.encode("sync_group", 3, **member) for member in members]
            for answer in self.spread([frame(one) for one in syncs]):
                code = self.wire.decode("sync_group", 3, answer)["error_code"]
                assert code == 0, f"SyncGroup: {code}"
            beats += [frame(self.wire.encode("heartbeat", 3, **member)) for member in members]
        for answer in self.pipeline(beats[:PIPELINED]):
            assert self.wire.decode("heartbeat", 3, answer)["error_code"] == 0
        return beats

    def pipeline(self, frames: Sequence[bytes]) -> list[bytes]:
        """Send all, then read all answers."""
        self.wire.send(b"".join(frames))
        return [self.wire.receive_frame() for _ in frames]

    def spread(self, frames: Sequence[bytes]) -> list[bytes]:
        """Send all over all connections, then read all answers; in the order of ``frames``."""
        for number, wire in enumerate(self.connections):
            wire.send(b"".join(frames[number::CONNECTIONS]))
        connections = self.connections
        return [connections[n % CONNECTIONS].receive_frame() for n in range(len(frames))]

    # What is measured.

    def measured(self, name: str, count: int, run: Callable[[], None]) -> Figures:
        """Return the broker's CPU per request in us, its own part, and requests per second."""
        before, began = self.peer.user_and_system_seconds(), time.monotonic()
        run()
        seconds = time.monotonic() - began
        after = self.peer.user_and_system_seconds()
        return {
            f"{name}: CPU us": (sum(after) - sum(before)) / count * 1e6,
            f"{name}: user CPU us": (after[0] - before[0]) / count * 1e6,
            f"{name}: per second": count / seconds,
        }

    def beat(self, groups: int, count: int) -> Figures:
        """Send heartbeats of so many groups in turn, pipelined."""
        frames = self.beats[:groups]

        def run() -> None:
            for base in range(0, count, PIPELINED):
                turn = range(base, base + PIPELINED)
                self.pipeline([frames[number % len(frames)] for number in turn])

        return self.measured(f"heartbeat, {groups:,} groups", count, run)

    def commit_many(self, begin: int, count: int) -> Figures:
        """Let so many groups commit ten offsets each."""

        def run() -> None:
            for base in range(begin, begin + count, CONNECTIONS):
                for number, wire in enumerate(self.connections):
                    wire.send_frame(self.commits[(base + number) % self.groups])
                for wire in self.connections:
                    answer = wire.decode("offset_commit", 8, wire.receive_frame())
                    assert not any(one["error_code"] for one in answer["topics"][0]["partitions"])

        return self.measured("commit of 10, 16 connections", count, run)

    def commit_one(self, count: int) -> Figures:
        """Commit one offset again and again."""

        def run() -> None:
            for _ in range(count):
                self.wire.send(self.one)
                self.wire.receive_frame()

        return self.measured("commit of 1, 1 connection", count, run)

    def round(self, number: int, beats: int) -> Figures:
        """Measure everything once; heartbeats where there are members."""
        found: Figures = {}
        self.connect()
        for groups in GROUP_COUNTS:
            if groups <= len(self.beats):
                found |= self.beat(groups, beats)
        found |= self.commit_many(number * beats // 10, beats // 10)
        return found | self.commit_one(beats // 10)

    def restart(self) -> Figures:
        """Kill, start, and wait until every group is served."""
        self.peer.kill9()
        began = time.monotonic()
        self.peer.start()
        step = max(self.groups // 400, 1)
        asked = [{"group_id": f"group-{n}", "topics": None} for n in range(0, self.groups, step)]
        with WireClient(self.peer.bootstrap) as wire:
            while True:
                answer = wire.call("offset_fetch", 8, groups=asked)["groups"]
                counts = [sum(len(t["partitions"]) for t in one["topics"]) for one in answer]
                if all(count == PARTITIONS for count in counts):
                    break
                assert time.monotonic() - began < 300, f"{counts.count(PARTITIONS)} are served"
                time.sleep(0.01)
        name = f"kill -9, {self.groups:,} groups served"
        seconds = time.monotonic() - began
        return {f"{name}: CPU s": self.peer.cpu_seconds(), f"{name}: wall s": seconds}


def frame(body: bytes) -> bytes:
    """Return a request behind its length."""
    return struct.pack(">i", len(body)) + body


def rounds_of(
    subjects: dict[str, Subject], options: argparse.Namespace
) -> dict[str, list[Figures]]:
    """Measure all brokers in turn, in alternating order."""
    found: dict[str, list[Figures]] = {name: [] for name in subjects}
    if "kafka" in subjects:
        kafka = subjects["kafka"]
        begin = kafka.peer.cpu_seconds()
        while kafka.peer.cpu_seconds() - begin < options.warmup:
            kafka.round(0, options.beats)
    for subject in subjects.values():  # Every group has its offsets before anything counts.
        subject.connect()
        subject.commit_many(0, subject.groups)
    for number in range(options.rounds):
        names = list(subjects)
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(subjects[name].round(number, options.beats))
    for number in range(options.restarts):
        for name, subject in subjects.items():
            figures = subject.restart()
            if number:
                found[name].append(figures)
            else:
                found[name][0] |= figures
    return found


def table(found: dict[str, list[Figures]]) -> list[dict[str, object]]:
    """Return a row for each figure: per broker median, least and most, and the ratio to Kafka."""
    rows: list[dict[str, object]] = []
    for figure in next(iter(found.values()))[0]:
        row: dict[str, object] = {"figure": figure}
        medians = {}
        for name, rounds in found.items():
            values = [one[figure] for one in rounds if figure in one]
            medians[name] = statistics.median(values)
            row[name] = [round(each, 2) for each in (medians[name], min(values), max(values))]
        if "kafka" in medians:
            row["ratio"] = {
                name: round(median / medians["kafka"], 2)
                for name, median in medians.items()
                if name != "kafka"
            }
        rows.append(row)
    return rows


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument(
        "--members", type=int, default=max(GROUP_COUNTS), help="that send heartbeats; 0: none do"
    )
    parser.add_argument("--beats", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--warmup", type=float, default=20.0, help="seconds of the JVM's CPU")
    parser.add_argument("--targets", default="ottla durable,ottla unsynced,kafka")
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    options = parser.parse_args()
    machine.begin(options)
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as directory:
        peers = make_peers(options.targets.split(","), Path(directory))
        try:
            subjects = {}
            for name, peer in peers.items():
                if isinstance(peer, OttlaPeer):
                    peer.options["group.initial.rebalance.delay.ms"] = 0  # As KafkaPeer has it.
                peer.start()
                subjects[name] = Subject(peer, groups=options.groups, members=options.members)
            found = rounds_of(subjects, options)
        finally:
            for peer in peers.values():
                peer.kill9()
    rows = table(found)
    for row in rows:
        print(json.dumps(row))
    if options.json:
        options.json.write_text(json.dumps({"table": rows, "rounds": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
