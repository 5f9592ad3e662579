"""Transactions that hang: open in a partition, and no coordinator knows of them.

Nobody will end such a transaction: readers of committed records wait before it for ever, and so do
members of a group for the offsets in it. An operator can: with the marker that the coordinator has
skipped. Source: KIP-664.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.wire_client import WireClient

IDLE_STATES = frozenset(("Empty", "CompleteCommit", "CompleteAbort"))


class Open(NamedTuple):
    """A transaction as a partition has it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    coordinator_epoch: int


def open_in(wire: WireClient, partitions: Mapping[str, Iterable[int]]) -> list[Open]:
    """Return the transactions that are open in these partitions of the broker."""
    asked = [
        {"name": topic, "partition_indexes": list(indexes)} for topic, indexes in partitions.items()
    ]
    answer = wire.call("describe_producers", 0, topics=asked)
    return [
        Open(
            topic["name"],
            part["partition_index"],
            one["producer_id"],
            one["producer_epoch"],
            one["current_txn_start_offset"],
            one["coordinator_epoch"],
        )
        for topic in answer["topics"]
        for part in topic["partitions"]
        for one in part["active_producers"]
        if one["current_txn_start_offset"] >= 0
    ]


def hanging_in(wire: WireClient, partitions: Mapping[str, Iterable[int]]) -> list[Open]:
    """Return those of them that no coordinator will end.

    A transaction that ends meanwhile is not told of: it has to be there before and after.
    """
    before = open_in(wire, partitions)
    listed = wire.call("list_transactions", 1, duration_filter=-1)["transaction_states"]
    known = {one["producer_id"] for one in listed if one["transaction_state"] not in IDLE_STATES}
    after = set(open_in(wire, partitions))
    return [one for one in before if one in after and one.producer_id not in known]


def is_committed(one: Open, directory: Path) -> bool:
    """Tell how the transaction was decided, by the markers that its other partitions have.

    False where none has one: an operator aborts it then. ``directory``: the broker's logs.
    """
    epochs = (one.producer_epoch, one.producer_epoch + 1)  # A decision may raise it (KIP-890).
    return any(
        commits
        for file in directory.glob("*/*.log")
        for producer_id, epoch, commits in _markers_of(file.read_bytes())
        if producer_id == one.producer_id and epoch in epochs
    )


def write_marker(wire: WireClient, one: Open, *, commit: bool) -> int:
    """End the transaction in its partition; return the error code."""
    topics = [{"name": one.topic, "partition_indexes": [one.partition]}]
    marker = {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "transaction_result": commit,
        "topics": topics,
        "coordinator_epoch": max(one.coordinator_epoch, 0),
    }
    (answer,) = wire.call("write_txn_markers", 1, markers=[marker])["markers"]
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


_HEADER = struct.Struct(">qiibIhiqqqhii")
_CONTROL = 0x20
_KEY_TYPE = _HEADER.size + 8
"""Of the only record: five bytes of lengths and deltas, then the key: version and type, 16 bit."""


def _markers_of(log: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (producer id, epoch, whether it commits) of each marker in a log."""
    position = 0
    while position + _HEADER.size <= len(log):
        fields = _HEADER.unpack_from(log, position)
        attributes, producer_id, epoch = fields[5], fields[9], fields[10]
        size = 12 + fields[1]
        if size <= 12 or position + size > len(log):
            return
        if attributes & _CONTROL and producer_id >= 0:
            yield producer_id, epoch, log[position + _KEY_TYPE] == 1
        position += size
