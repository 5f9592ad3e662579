"""What is measured: prebuilt Produce and Fetch frames, and where answers have the error code."""

import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.load import Measure, run
from tools.peer import Peer
from tools.wire_client import WireClient, batch

NAMES = (f"bench-{number:06d}" for number in itertools.count())
"""A name of its own for each scenario and broker: a deleted topic's name may answer for a while."""
RECORD_BYTES = 100
FILL_BYTES = 96_000_000
BATCH_RECORDS = 140
"""Records of the 16 kB batch; the Fetch scenarios read a log of these batches."""

FEW_CONNECTIONS = 50


@dataclass(frozen=True)
class Scenario:
    """One line of the table."""

    name: str
    kind: str
    size_bytes: int
    connections: int
    depth: int


def scenarios(connections: Sequence[int], depth: int) -> Sequence[Scenario]:
    """Return produce of three sizes at each count of connections, and fetch of three sizes.

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
    for label, size in [("64 kB", 1 << 16), ("1 MB", 1 << 20), ("8 MB", 8 << 20)]:
        found.append(Scenario(f"fetch {label}, 1 connection", "fetch", size, 1, 1))
    return found


def framed(body: bytes) -> bytes:
    """Return ``body`` behind its length."""
    return struct.pack(">i", len(body)) + body


def records_of(count: int) -> bytes:
    """Return one uncompressed batch of ``count`` records of 100 bytes each, all different."""
    return batch([b"%08d" % number + b"x" * (RECORD_BYTES - 8) for number in range(count)])


def produce_frame(client: WireClient, topic: str, records: bytes) -> tuple[bytes, int]:
    """Return a Produce v8 frame and where its answer has the error code."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    body = client.encode("produce", 8, acks=-1, timeout=30_000, topic_data=data)
    # correlation id, count of topics, name, count of partitions, index
    return framed(body), 4 + 4 + 2 + len(topic) + 4 + 4


def fetch_frames(
    client: WireClient, topic: str, size_bytes: int, offsets: Sequence[int]
) -> tuple[list[bytes], int]:
    """Return Fetch v11 frames that begin at ``offsets``, and where answers have the error code."""
    frames = []
    for offset in offsets:
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size_bytes}
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
        client.create_topic(topic)
        if scenario.kind == "produce":
            records = records_of(scenario.size_bytes)
            frame, error_at = produce_frame(client, topic, records)
            frames, counted = [frame], len(records)
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
