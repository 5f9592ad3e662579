"""What is measured: prebuilt Produce and Fetch frames, and where answers have the error code."""

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.load import Measure, run
from tools.differential import Play
from tools.peer import Peer
from tools.wire_client import WireClient, batch

NAMES = (f"bench-{number:06d}" for number in itertools.count())
"""A name of its own for each scenario and broker: a deleted topic's name may answer for a while."""
RECORD_BYTES = 100
FILL_BYTES = 96_000_000
BATCH_RECORDS = 140
"""Records of the 16 kB batch; the Fetch scenarios read a log of these batches."""

FEW_CONNECTIONS = 50
PARTITIONS = 100
IN_TURN = f"produce 1 record, {PARTITIONS} partitions in turn"
CLIENTS = 20
"""That commit offsets, each of its own group."""


@dataclass(frozen=True)
class Scenario:
    """One line of the table."""

    name: str
    kind: str
    """produce; spread: one request for all partitions; in turn: each request for the next
    partition; commit: of one offset, each for the next group; fetch."""
    size_bytes: int
    """Of a fetch; else records."""
    connections: int
    depth: int
    partitions: int = 1
    """Or groups."""


def scenarios(connections: Sequence[int], depth: int) -> Sequence[Scenario]:
    """Return produce of three sizes at each count of connections, and fetch of three sizes.

    Between them what syncs many files: produce to many partitions, commits of many groups.

    ``depth`` requests are in flight per connection where there are 2 to 50 of them, one where
    there is one connection or are more.
    """
    sizes = [("1 record", 1), ("16 kB", BATCH_RECORDS), ("1 MB", 9_200)]
    found = []
    for label, records in sizes:
        for count in connections:
            name = f"produce {label}, {count} connection{'s' if count > 1 else ''}"
            in_flight = depth if 1 < count <= FEW_CONNECTIONS else 1
            found.append(Scenario(name, "produce", records, count, in_flight))
    many = PARTITIONS
    found.append(
        Scenario(f"produce 1 record to each of {many} partitions", "spread", 1, 1, 1, many)
    )
    found += [
        Scenario(f"{IN_TURN}, {count} connections", "in turn", 1, count, in_flight, many)
        for count, in_flight in ((10, depth), (100, 1))
    ]
    found.append(Scenario(f"commit 1 offset, {CLIENTS} clients", "commit", 1, CLIENTS, 1, CLIENTS))
    for label, size in [("64 kB", 1 << 16), ("1 MB", 1 << 20), ("8 MB", 8 << 20)]:
        found.append(Scenario(f"fetch {label}, 1 connection", "fetch", size, 1, 1))
    return found


def framed(body: bytes) -> bytes:
    """Return ``body`` behind its length."""
    return struct.pack(">i", len(body)) + body


def records_of(count: int) -> bytes:
    """Return one uncompressed batch of ``count`` records of 100 bytes each, all different."""
    return batch([b"%08d" % number + b"x" * (RECORD_BYTES - 8) for number in range(count)])


def produce_frame(
    client: WireClient, topic: str, records: bytes, partitions: Sequence[int] = (0,)
) -> tuple[bytes, int]:
    """Return a Produce v8 frame and where its answer has the first error code."""
    parts = [{"index": index, "records": records} for index in partitions]
    data = [{"name": topic, "partition_data": parts}]
    body = client.encode("produce", 8, acks=-1, timeout=30_000, topic_data=data)
    # correlation id, count of topics, name, count of partitions, index
    return framed(body), 4 + 4 + 2 + len(topic) + 4 + 4


def commit_frames(client: WireClient, topic: str, groups: Sequence[str]) -> tuple[list[bytes], int]:
    """Return OffsetCommit v7 frames of clients in no group, and where answers have the code."""
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    asked = {"generation_id_or_member_epoch": -1, "topics": [{"name": topic, "partitions": [part]}]}
    frames = [
        framed(client.encode("offset_commit", 7, group_id=group, **asked)) for group in groups
    ]
    # correlation id, throttle, count of topics, name, count of partitions, index
    return frames, 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def fetch_frames(
    client: WireClient, topic: str, size_bytes: int, offsets: Sequence[int], partition: int = 0
) -> tuple[list[bytes], int]:
    """Return Fetch v11 frames that begin at ``offsets``, and where answers have the error code."""
    frames = []
    for offset in offsets:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size_bytes}
        body = client.encode(
            "fetch",
            11,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=size_bytes,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [asked]}],
        )
        frames.append(framed(body))
    # correlation id, throttle, error, session, count of topics, name, count of partitions, index
    return frames, 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4


def prepare(peer: Peer, scenario: Scenario) -> tuple[Callable[[float], Measure], str]:
    """Make a topic ready; return a function that measures for the given seconds, and the topic."""
    topic = next(NAMES)
    with WireClient(peer.bootstrap, timeout_seconds=60) as client:
        every = range(scenario.partitions)
        client.create_topic(topic, len(every) if scenario.kind in {"spread", "in turn"} else 1)
        if scenario.kind in {"produce", "spread", "in turn"}:
            records = records_of(scenario.size_bytes)
            groups = [every] if scenario.kind == "spread" else [[index] for index in every]
            made = [produce_frame(client, topic, records, group) for group in groups]
            frames, error_at = [frame for frame, _ in made], made[0][1]
            counted = len(records) * len(groups[0])
        elif scenario.kind == "commit":
            names = [f"{topic}-{number}" for number in every]
            with Play(peer.bootstrap) as play:
                play.wait_for_coordinator(*names)
            frames, error_at = commit_frames(client, topic, names)
            counted = 1
        else:
            records = records_of(BATCH_RECORDS)
            frame, error_at = produce_frame(client, topic, records)
            count = FILL_BYTES // len(records)
            run(
                peer,
                [frame],
                connections=1,
                depth=20,
                seconds=60,
                error_at=error_at,
                requests_max=count,
            )
            # Starts all over the log, each with a whole answer's bytes ahead.
            usable = count - scenario.size_bytes // len(records) - 1
            step = max(1, scenario.size_bytes // len(records) * 7 // 10)
            starts = [BATCH_RECORDS * index for index in range(0, usable, step)]
            frames, error_at = fetch_frames(client, topic, scenario.size_bytes, starts)
            counted = 0

    def measure(seconds: float) -> Measure:
        return run(
            peer,
            frames,
            connections=scenario.connections,
            depth=scenario.depth,
            seconds=seconds,
            error_at=error_at,
            bytes_per_request=counted,
        )

    return measure, topic


def clean_up(peer: Peer, topic: str) -> None:
    """Delete a scenario's topic, so that the next one finds the disk as this one did."""
    with WireClient(peer.bootstrap, timeout_seconds=60) as client:
        client.call("delete_topics", 5, topic_names=[topic], timeout=30_000)
