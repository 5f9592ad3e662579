"""How producers of campaigns and of the simulation write: batches of numbered records.

Makes a batch and writes it down as sent, then what was answered. Knows neither the wire nor the
time; who uses it brings both.
"""

import random
from typing import Any

from tests.campaigns.administering.history import (
    BY_NAME,
    Batch,
    Call,
    History,
    Topic,
    Transaction,
    Verdict,
)
from tests.campaigns.administering.records import RecordId, is_tombstone, key_of, make_batch

COMES_BACK = {5, 6, 7, 13, 14, 15, 16, 19, 20, 51, 56}
"""Codes that pass."""
DUPLICATE_SEQUENCE = 46
REFUSED = {45, 47, 48, 87, 90}
"""Codes after which nothing was written."""


class Writer:
    """The records of one producer. ``number``: no other writer of the history has it."""

    def __init__(self, history: History, chance: random.Random, number: int) -> None:
        self._history = history
        self._random = chance
        self._number = number
        self._next = 0

    def choose(self) -> tuple[Topic, int] | None:
        """Return a topic and a partition to write to; None when there is no topic."""
        topics = self._history.living()
        if not topics:
            return None
        topic = self._random.choice(topics)
        return topic, self._random.randrange(topic.partition_count)

    def make(
        self,
        topic: Topic,
        partition: int,
        *,
        timestamp_ms: int,
        by_name: bool = False,
        transaction: Transaction | None = None,
        **fields: Any,
    ) -> tuple[Batch, bytes]:
        """Return a new batch and its bytes; it is written down as sent.

        ``fields``: of the batch's header, as ``make_batch`` takes them.
        """
        count = self._random.choice([1, 1, 2, 3, 6])
        ids: list[RecordId] = [(self._number, self._next + at) for at in range(count)]
        self._next += count
        topic_id = BY_NAME if by_name else topic.topic_id
        has_tombstones = not by_name
        data = make_batch(
            ids,
            topic_id,
            has_tombstones=has_tombstones,
            timestamp_ms=timestamp_ms,
            is_compressed=self._random.random() < 0.1,
            **fields,
        )
        batch = Batch(
            topic.name,
            topic_id,
            partition,
            ids,
            [key_of(*one) for one in ids],
            [has_tombstones and is_tombstone(*one) for one in ids],
            timestamp_ms,
            len(data),
            Call(),
            transaction=transaction,
            is_sequenced="base_sequence" in fields and transaction is None,
        )
        self._history.send(batch)
        return batch, data

    def judge(self, batch: Batch, code: int, base_offset: int) -> None:
        """Write an answer down."""
        if code == 0:
            self._history.acknowledge(batch, base_offset)
        elif code == DUPLICATE_SEQUENCE:
            self._history.acknowledge(batch, -1)
        elif code in REFUSED:
            batch.call.answer(Verdict.FAIL)
