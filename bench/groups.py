"""What groups and committed offsets cost a broker: ``python bench/groups.py``.

Commits of ten partitions by many groups, commits of one by one client, heartbeats with few and with
many groups (they should cost the same), and how long after kill -9 every group is served again.
"""

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.run import make_peers
from tools.differential import Play
from tools.ottla_peer import OttlaPeer
from tools.peer import Peer
from tools.wire_client import WireClient

TOPIC = "groups"
PARTITIONS = 10
PIPELINED = 200
CONNECTIONS = 16


def measure(peer: Peer, *, groups: int, members: int, beats: int) -> dict[str, float]:
    """Measure one broker; it must have been started."""
    found: dict[str, float] = {}
    with Play(peer.bootstrap) as play:
        play.create_topic(TOPIC, PARTITIONS)
        play.wait_for_coordinator(*(f"group-{number}" for number in range(60)))
        found["commit_10_cpu_us"] = commit_many(peer, groups)
        few = [(f"m-{number}", make_member(play, f"m-{number}")) for number in range(10)]
        beat(peer, few, beats // 2)
        found["heartbeat_cpu_us_10_groups"] = beat(peer, few, beats)
        names = [f"m-{number}" for number in range(10, members)]
        many = few + [(name, make_member(play, name)) for name in names]
        found[f"heartbeat_cpu_us_{members}_groups"] = beat(peer, many, beats)
        found["commit_1_cpu_us"], found["commit_1_per_second"] = commit_one(peer, beats // 8)
    peer.kill9()
    began = time.monotonic()
    peer.start()
    with WireClient(peer.bootstrap) as wire:
        asked = [
            {"group_id": f"group-{number}", "topics": None}
            for number in range(0, groups, max(groups // 400, 1))
        ]
        while True:
            answer = wire.call("offset_fetch", 8, groups=asked)["groups"]
            if not any(group["error_code"] for group in answer):
                break
            time.sleep(0.01)
    found["restart_cpu_seconds"] = peer.cpu_seconds()
    found["restart_seconds"] = time.monotonic() - began
    return {key: round(value, 2) for key, value in found.items()}


def commit_many(peer: Peer, groups: int) -> float:
    """Let every group commit ten offsets; return the broker's CPU per commit in us."""
    connections = [WireClient(peer.bootstrap) for _ in range(CONNECTIONS)]
    parts = [
        {"partition_index": index, "committed_offset": index, "committed_metadata": ""}
        for index in range(PARTITIONS)
    ]
    before = peer.cpu_seconds()
    for base in range(0, groups, CONNECTIONS):
        for number, connection in enumerate(connections):
            connection.send_frame(
                connection.encode(
                    "offset_commit",
                    8,
                    group_id=f"group-{base + number}",
                    generation_id_or_member_epoch=-1,
                    topics=[{"name": TOPIC, "partitions": parts}],
                )
            )
        for connection in connections:
            answer = connection.decode("offset_commit", 8, connection.receive_frame())
            assert not any(one["error_code"] for one in answer["topics"][0]["partitions"])
    for connection in connections:
        connection.close()
    return (peer.cpu_seconds() - before) / groups * 1e6


def commit_one(peer: Peer, count: int) -> tuple[float, float]:
    """Commit one offset again and again; return the broker's CPU in us, and commits per second."""
    with WireClient(peer.bootstrap) as wire:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        body = wire.encode(
            "offset_commit",
            8,
            group_id="one",
            generation_id_or_member_epoch=-1,
            topics=[{"name": TOPIC, "partitions": [part]}],
        )
        before, began = peer.cpu_seconds(), time.monotonic()
        for _ in range(count):
            wire.send_frame(body)
            wire.receive_frame()
        seconds = time.monotonic() - began
        return (peer.cpu_seconds() - before) / count * 1e6, count / seconds


def make_member(play: Play, group: str) -> str:
    """Let a group of one be stable; return its member's id."""
    asked = {
        "group_id": group,
        "session_timeout": 600_000,
        "rebalance_timeout": 600_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    member = str(play.prepare("join_group", 9, member_id="", **asked)["member_id"])
    play.prepare("join_group", 9, member_id=member, **asked)
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    play.prepare("sync_group", 5, group_id=group, generation_id=1, member_id=member, **protocol)
    return member


def beat(peer: Peer, members: Sequence[tuple[str, str]], count: int) -> float:
    """Send heartbeats of all members in turn, pipelined; return the broker's CPU of each in us."""
    with WireClient(peer.bootstrap) as wire:
        bodies = [
            wire.encode("heartbeat", 3, group_id=group, generation_id=1, member_id=member)
            for group, member in members
        ]
        frames = [struct.pack(">i", len(body)) + body for body in bodies]
        before = peer.cpu_seconds()
        for base in range(0, count, PIPELINED):
            turn = range(base, base + PIPELINED)
            wire.send(b"".join(frames[number % len(frames)] for number in turn))
            for _ in turn:
                wire.receive_frame()
        return (peer.cpu_seconds() - before) / count * 1e6


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--beats", type=int, default=20_000)
    parser.add_argument("--targets", default="ottla durable,kafka")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-groups-") as directory:
        for name, peer in make_peers(arguments.targets.split(","), Path(directory)).items():
            if isinstance(peer, OttlaPeer):
                peer.options["group.initial.rebalance.delay.ms"] = 0  # As KafkaPeer has it.
            try:
                peer.start()
                report[name] = measure(
                    peer,
                    groups=arguments.groups,
                    members=arguments.members,
                    beats=arguments.beats,
                )
            finally:
                peer.kill9()
            print(name, json.dumps(report[name], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
