"""Transactions that hang: open in a partition, and no coordinator knows of them.

Nobody will end such a transaction: readers of committed records wait before it for ever, and so do
members of a group for the offsets in it. Source: KIP-664.
"""

from collections.abc import Iterable, Mapping
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
