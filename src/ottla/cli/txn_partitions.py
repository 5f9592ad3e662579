"""``ottla txn producers`` and ``hanging``: transactions as partitions remember them.

Owns what a hanging transaction is: one that a partition waits for, and no coordinator will end.
Source: KIP-664.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import Row, age_text, note, utc_text, write_rows
from ottla.cli.partition_choice import chosen_partitions
from ottla.cli.run import run
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.partitions import ActiveProducer, Partitions
from ottla.client.asyncio.transactions import TransactionDescription, Transactions
from ottla.config.human import parse_duration_ms
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition

PRODUCER_COLUMNS = (
    "topic", "partition", "producer_id", "epoch", "last_sequence", "last_write", "age",
    "open_since_offset",
)  # fmt: skip
HANGING_COLUMNS = (
    "topic", "partition", "producer_id", "epoch", "open_since_offset", "last_write", "age", "why",
)  # fmt: skip
UNKNOWN = "no coordinator knows its producer"
NOT_IN_IT = "its coordinator does not know that the partition is in it"


class Found(NamedTuple):
    """A producer that a partition remembers."""

    partition: TopicPartition
    producer: ActiveProducer


def producers(options: Namespace) -> None:
    """List the producers that partitions remember."""

    async def command(cluster: Cluster) -> None:
        wanted = [
            each for text in options.topics for each in await chosen_partitions(cluster, text)
        ]
        now_ms = SystemClock().wall_ms()
        rows = [_row(each, now_ms) for each in await _found(cluster, wanted)]
        if not rows:
            note("no idempotent or transactional producer wrote there lately")
        write_rows(rows, PRODUCER_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def hanging(options: Namespace) -> None:
    """List transactions that nobody will end. Exits with 1 if there are any."""

    async def command(cluster: Cluster) -> None:
        wanted = await _partitions(cluster, options.topics)
        now_ms = SystemClock().wall_ms()
        before_ms = now_ms - _duration_ms(options.open_for)
        suspects = [
            each
            for each in await _found(cluster, wanted)
            if each.producer.first_offset is not None
            and each.producer.last_timestamp_ms <= before_ms
        ]
        known = await _transactions_of(cluster, {each.producer.producer_id for each in suspects})
        rows: list[Row] = [
            {**_row(each, now_ms), "why": why} for each, why in without_end(suspects, known)
        ]
        write_rows(rows, HANGING_COLUMNS, out.chosen(options.output), header=not options.no_header)
        if rows:
            count = len(rows)
            raise Failure(f"{count} hanging transaction{'' if count == 1 else 's'}")
        note("no hanging transaction")

    run(options, command)


def without_end(
    suspects: Iterable[Found], known: Mapping[int, TransactionDescription]
) -> list[tuple[Found, str]]:
    """Return the open transactions that no coordinator will end, and why not.

    ``known``: what the coordinators tell, by producer id.
    """
    lost: list[tuple[Found, str]] = []
    for each in suspects:
        transaction = known.get(each.producer.producer_id)
        if transaction is None:
            lost.append((each, UNKNOWN))
        elif each.partition not in transaction.partitions:
            lost.append((each, NOT_IN_IT))
    return lost


async def _partitions(cluster: Cluster, topics: list[str]) -> list[TopicPartition]:
    if topics:
        return [each for text in topics for each in await chosen_partitions(cluster, text)]
    return [
        TopicPartition(topic.name, each.partition)
        for topic in await Admin(cluster).list_topics()
        for each in topic.partitions.values()
        if each.leader >= 0
    ]


async def _found(cluster: Cluster, partitions: list[TopicPartition]) -> list[Found]:
    by_partition = await Partitions(cluster).producers(partitions)
    return [
        Found(partition, each)
        for partition in sorted(by_partition)
        for each in sorted(by_partition[partition])
    ]


async def _transactions_of(
    cluster: Cluster, producer_ids: set[int]
) -> dict[int, TransactionDescription]:
    transactions = Transactions(cluster)
    found: dict[int, TransactionDescription] = {}
    if not producer_ids:
        return found
    for listed in await transactions.list_transactions():
        if listed.producer_id not in producer_ids:
            continue
        try:
            found[listed.producer_id] = await transactions.describe(listed.transactional_id)
        except KafkaError as error:  # It has gone meanwhile.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return found


def _row(found: Found, now_ms: int) -> Row:
    at_ms = found.producer.last_timestamp_ms
    age_ms = max(now_ms - at_ms, 0) if at_ms >= 0 else None
    return {
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "producer_id": found.producer.producer_id,
        "epoch": found.producer.epoch,
        "coordinator_epoch": found.producer.coordinator_epoch,
        "last_sequence": found.producer.last_sequence,
        "last_write": utc_text(at_ms) if at_ms >= 0 else None,
        "last_write_ms": at_ms if at_ms >= 0 else None,
        "age": None if age_ms is None else age_text(age_ms),
        "age_ms": age_ms,
        "open_since_offset": found.producer.first_offset,
    }


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Failure(f"--open-for {text}: {error}", fix="30s, 15m", code=Exit.USAGE) from error
