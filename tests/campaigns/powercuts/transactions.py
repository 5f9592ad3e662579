"""Transactions in the campaign: what producers and their coordinator wrote, and what readers of
committed records must see of it.

A partition's ledger stays the list of its batches, markers among them; all here is derived from
it: which transactions are open, what was aborted, what a consumer gets. The consumer's filter is
written as the protocol describes it. Batches go in by the node's own way for coordinators
(``ottla.log.append.own``): it is the log that is tested here, not the coordinator.
"""

import random
import struct
from typing import Any

from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from powercuts.client import HOUR_AGO_MS, CampaignClient, WrongAnswer, expect_success
from powercuts.ledger import PartitionLedger, SentBatch, TopicLedger
from tools.wire_client import BATCH_HEADER, batch, batches, records_of

TRANSACTIONAL = 16
CONTROL = 32
PRODUCERS = 3
COORDINATOR_EPOCH = 1

Seen = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value."""


class TransactionWriter:
    """Writes transactions of several producers, interleaved, into one partition."""

    def __init__(self, client: CampaignClient, topic: TopicLedger, partition: int) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._ledger = topic.partitions[partition]
        first = self._ledger.producer_id
        self._producer_ids = [first + 100_000 * (1 + index) for index in range(PRODUCERS)]
        self._random = random.Random(len(self._ledger.batches))

    def write(self, count: int) -> None:
        """Write ``count`` batches or markers; transactions may stay open behind them."""
        self._client.step = "transactions"
        for _ in range(count):
            producer_id = self._random.choice(self._producer_ids)
            if producer_id in open_transactions(self._ledger) and self._random.random() < 0.4:
                self._mark(producer_id, is_commit=self._random.random() < 0.5)
            else:
                self._append(producer_id)

    def end_all(self) -> None:
        """Abort what is open, as a coordinator does after a time-out."""
        for producer_id in open_transactions(self._ledger):
            self._mark(producer_id, is_commit=False)

    def _append(self, producer_id: int) -> None:
        ledger = self._ledger
        base = ledger.sent_end
        sequence = sum(
            one.count
            for one in ledger.batches
            if one.producer_id == producer_id and not one.attributes & CONTROL
        )
        records = [
            self._client.next_record(ledger, base + delta)
            for delta in range(self._random.randint(1, 3))
        ]
        data = batch(
            [value for _, value in records],
            keys=[key for key, _ in records],
            attributes=TRANSACTIONAL,
            base_timestamp=HOUR_AGO_MS + base,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self._send(data, list(records))

    def _mark(self, producer_id: int, *, is_commit: bool) -> None:
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        data = bytes(
            build_end_transaction_marker(
                EndTransactionMarker(kind, COORDINATOR_EPOCH),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp_ms=HOUR_AGO_MS + self._ledger.sent_end,
            )
        )
        (header,) = batches(data)
        self._send(data, [(key, value) for _, key, value in records_of(header)])

    def _send(self, data: bytes, records: list[tuple[bytes | None, bytes | None]]) -> None:
        ledger = self._ledger
        (crc,) = struct.unpack_from(">I", data, 17)
        (header,) = batches(data)
        sent = SentBatch(
            ledger.sent_end,
            crc,
            data[BATCH_HEADER.size :],
            data,
            records,
            header["producer_id"],
            header["attributes"],
        )
        ledger.batches.append(sent)
        order = f"own {self._topic.name} {self._partition} {data.hex()}"
        found = int(self._client.node.order(order))
        if found != sent.base_offset:
            raise WrongAnswer(f"{ledger.name}: batch belongs at {sent.base_offset}, not {found}")
        ledger.acked_end = sent.end_offset


def _marker_kind(one: SentBatch) -> ControlType | None:
    """Return how a marker ends its transaction; None for data."""
    if not one.attributes & CONTROL:
        return None
    return ControlType(struct.unpack_from(">h", one.records[0][0] or b"", 2)[0])


def open_transactions(ledger: PartitionLedger) -> dict[int, int]:
    """Return producer ids and first offsets of the transactions that no marker ended."""
    found: dict[int, int] = {}
    for one in ledger.batches:
        if one.attributes & CONTROL:
            found.pop(one.producer_id, None)
        elif one.attributes & TRANSACTIONAL:
            found.setdefault(one.producer_id, one.base_offset)
    return found


def committed_records(ledger: PartitionLedger, start: int) -> tuple[int, Seen]:
    """Return the last stable offset and what a reader of committed records must get below it."""
    stable_end = min(open_transactions(ledger).values(), default=ledger.sent_end)
    pending: dict[int, list[SentBatch]] = {}
    kept: list[SentBatch] = []
    for one in ledger.batches:
        kind = _marker_kind(one)
        if kind is ControlType.COMMIT:
            kept += pending.pop(one.producer_id, [])
        elif kind is ControlType.ABORT:
            pending.pop(one.producer_id, None)
        elif one.attributes & TRANSACTIONAL:
            pending.setdefault(one.producer_id, []).append(one)
        else:
            kept.append(one)
    seen = [
        (one.base_offset + delta, key, value)
        for one in sorted(kept)
        for delta, (key, value) in enumerate(one.records)
        if start <= one.base_offset + delta < stable_end
    ]
    return stable_end, seen


def read_committed(client: CampaignClient, topic: TopicLedger, partition: int) -> tuple[int, Seen]:
    """Return the last stable offset and what a consumer with read_committed gets."""
    answer = client.call(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=1,
        topics=[
            {"name": topic.name, "partitions": [{"partition_index": partition, "timestamp": -1}]}
        ],
    )["topics"][0]["partitions"][0]
    expect_success("ListOffsets", answer)
    stable_end = int(answer["offset"])
    offset, _ = client.bounds(topic, partition)
    seen: Seen = []
    while offset < stable_end:
        found = _fetch(client, topic, partition, offset)
        headers = batches(found["records"])
        if not headers:
            raise WrongAnswer(f"read_committed: nothing at {topic.name}-{partition}@{offset}")
        aborted = sorted(
            (one["first_offset"], one["producer_id"]) for one in found["aborted_transactions"] or ()
        )
        left_out: set[int] = set()
        for header in headers:
            end = header["base_offset"] + header["last_offset_delta"]
            while aborted and aborted[0][0] <= end:
                left_out.add(aborted.pop(0)[1])
            if header["attributes"] & CONTROL:
                left_out.discard(header["producer_id"])
            elif header["producer_id"] not in left_out or not header["attributes"] & TRANSACTIONAL:
                seen += [one for one in records_of(header) if one[0] >= offset]
            offset = end + 1
    return stable_end, seen


def _fetch(
    client: CampaignClient, topic: TopicLedger, partition: int, offset: int
) -> dict[str, Any]:
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 8 << 20}
    answer = client.call(
        "fetch",
        12,
        replica_id=-1,
        max_wait=500,
        min_bytes=1,
        max_bytes=8 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": [asked]}],
    )["responses"][0]["partitions"][0]
    expect_success("Fetch", answer)
    return dict(answer)


def judge_committed(client: CampaignClient, topic: TopicLedger, partition: int) -> list[str]:
    """Compare what a reader of committed records gets with what it must get.

    The ledger holds what is in the log, and nothing else: see ``PartitionLedger.forget_lost``.
    """
    ledger = topic.partitions[partition]
    start, _ = client.bounds(topic, partition)
    stable_end, seen = read_committed(client, topic, partition)
    expected_end, expected = committed_records(ledger, start)
    problems = []
    if stable_end != expected_end:
        problems.append(f"{ledger.name}: last stable offset {stable_end}, not {expected_end}")
    if ledger.is_compacted:
        last = {key: (offset, key, value) for offset, key, value in expected}
        found = {key: (offset, key, value) for offset, key, value in seen}
        for key, record in last.items():
            if found.get(key) != record and not (record[2] is None and key not in found):
                problems.append(f"{ledger.name}: committed {key!r} is {found.get(key)}")
        if not set(seen) <= set(expected):
            problems.append(f"{ledger.name}: records that were not committed, or altered")
    elif seen != expected:
        problems.append(
            f"{ledger.name}: {len(seen)} committed records are not the {len(expected)} expected"
        )
    return problems
