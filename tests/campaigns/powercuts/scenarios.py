"""What a node is doing when it is cut: one scenario for each step that touches the disk.

A scenario is prepared once, on a whole disk; its directory is kept and put back before each cut.
Then it is acted again and again, cut at another change each time.
"""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from powercuts.client import CampaignClient
from powercuts.ledger import TopicLedger
from powercuts.transactions import TransactionWriter

Play = Callable[[CampaignClient], None]


class Scenario(NamedTuple):
    """``prepare`` makes the directory (None: an empty one); ``act`` is what is cut."""

    name: str
    prepare: Play | None
    act: Play
    cuts_start: bool = False
    """Whether the start counts, too; else counting begins behind it."""
    stops_cleanly: bool = False
    """Whether the prepared node is stopped in an orderly way, not killed."""
    window_us: int = 0
    """The cut comes within this time, not at a counted change; the play goes on until it does."""
    is_served: bool = False
    """Whether it is played with ``ottla serve`` in a process of its own."""
    log_dirs: tuple[str, ...] = (".",)
    """In the data directory; they are made by the campaign, as by an administrator."""
    writes_checkpoints: bool = False
    """Whether the played node writes its checkpoints by its clock, all the time."""
    loses_metadata: bool = False
    """Whether the prepared directory comes without its metadata store, as one of Kafka's does."""


def _topic(client: CampaignClient, name: str = "t") -> TopicLedger:
    return next(one for one in reversed(client.ledger.present) if one.name == name)


def _filled(client: CampaignClient) -> None:
    topic = client.create_topic("t")
    client.produce(topic, 0, 30)
    client.produce(topic, 1, 6)
    client.order("checkpoint")
    client.produce(topic, 0, 8)


def _filled_preallocated(client: CampaignClient) -> None:
    topic = client.create_topic("t", preallocate="true")
    client.produce(topic, 0, 30)
    client.order("checkpoint")
    client.produce(topic, 0, 8)


def _preallocated(client: CampaignClient) -> None:
    _produce(client)
    client.delete_records(_topic(client), 0, _topic(client).partitions[0].acked_end // 2)
    client.produce(_topic(client), 0, 3)
    _stop(client)


MANY = 12
"""Partitions of a topic whose logs are synced by one call."""


def _filled_many(client: CampaignClient) -> None:
    topic = client.create_topic("t", partitions=MANY)
    client.produce_to_all(topic, 3)
    client.order("checkpoint")
    client.produce_to_all(topic, 2)


def _many(client: CampaignClient) -> None:
    topic = _topic(client)
    client.produce_to_all(topic, 6)
    client.produce(topic, 1, 8)
    client.consume(topic, 0)
    client.order("checkpoint")
    client.produce_to_all(topic, 6)
    client.order("expect sync_volume")


def _filled_page_cache(client: CampaignClient) -> None:
    topic = client.create_topic("t", flush_messages="1000000")
    client.produce(topic, 0, 20)
    client.order("checkpoint")
    client.produce(topic, 0, 4)


def _page_cache(client: CampaignClient) -> None:
    topic = _topic(client)
    client.produce(topic, 0, 16)
    client.consume(topic, 0)
    client.order("checkpoint")
    client.produce(topic, 0, 8)
    client.delete_records(topic, 0, topic.partitions[0].acked_end // 2)
    client.produce(topic, 0, 8)
    client.produce(topic, 1, 3)


def _filled_for_adoption(client: CampaignClient) -> None:
    _filled(client)
    _topic(client).configs[:] = [{}]


TWO = ("a", "b")
GROUPS = 3
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.0",
    "delete_retention_ms": "0",
    "file_delete_delay_ms": "0",
}


def _filled_compacted(client: CampaignClient) -> None:
    topic = client.create_topic("t", **COMPACTED)
    client.produce(topic, 0, 60)
    client.order("compact")
    client.produce(topic, 0, 40)
    client.produce(topic, 1, 8)


def _compaction(client: CampaignClient) -> None:
    topic = _topic(client)
    client.order("compact")
    client.consume(topic, 0)
    client.produce(topic, 0, 12)
    client.order("compact")
    client.order("checkpoint")
    client.order("compact")
    client.consume(topic, 0)


def _transactional(client: CampaignClient, **configs: str) -> TopicLedger:
    topic = client.create_topic("t", partitions=1, **configs)
    topic.partitions[0].is_transactional = True
    return topic


def _filled_transactions(client: CampaignClient) -> None:
    TransactionWriter(client, _transactional(client), 0).write(50)
    client.order("checkpoint")
    TransactionWriter(client, _topic(client), 0).write(12)


def _transactions(client: CampaignClient) -> None:
    writer = TransactionWriter(client, _topic(client), 0)
    writer.write(20)
    client.order("checkpoint")
    writer.write(6)
    client.delete_records(_topic(client), 0, _topic(client).partitions[0].acked_end // 2)
    writer.end_all()
    writer.write(8)


def _filled_compacted_transactions(client: CampaignClient) -> None:
    writer = TransactionWriter(client, _transactional(client, **COMPACTED), 0)
    writer.write(90)
    client.order("compact")
    writer.end_all()
    writer.write(40)


def _compacted_transactions(client: CampaignClient) -> None:
    writer = TransactionWriter(client, _topic(client), 0)
    client.order("compact")
    writer.write(15)
    writer.end_all()
    client.order("compact")
    client.order("compact")


def _commit(client: CampaignClient, count: int) -> None:
    topic = _topic(client)
    for number in range(count):
        partition = number % 2
        end = topic.partitions[partition].acked_end
        group = f"group-{number % GROUPS}"
        before = client.ledger.offsets.get((group, topic.name, partition), [0])[-1]
        client.commit_offset(group, topic, partition, before + 1 if before < end else 0)


def _filled_groups(client: CampaignClient) -> None:
    _filled(client)
    client.make_offsets_topic()
    _commit(client, 12)
    client.order("checkpoint")
    _commit(client, 5)


def _groups(client: CampaignClient) -> None:
    _commit(client, 10)
    client.order("compact")
    client.produce(_topic(client), 0, 2)
    _commit(client, 10)


def _moves(client: CampaignClient) -> None:
    topic = _topic(client)
    for _ in range(2):
        (here,) = client.places(topic, 0)
        parent, _, name = here.rpartition("/")
        there = f"{parent}/{'b' if name == 'a' else 'a'}"
        client.move(topic, 0, there)
        client.produce(topic, 0, 6)
        client.step = "move"
        while client.places(topic, 0) != {there: False}:
            client.produce(topic, 0, 1)
        client.consume(topic, 0)
    client.order("remove")
    client.produce(topic, 0, 2)


def _first_start(client: CampaignClient) -> None:
    topic = client.create_topic("t", partitions=1)
    client.produce(topic, 0, 3)


def _look(client: CampaignClient) -> None:
    client.consume(_topic(client), 0)
    client.produce(_topic(client), 1, 2)


def _produce(client: CampaignClient) -> None:
    topic = _topic(client)
    client.produce(topic, 0, 14)
    client.consume(topic, 0)
    client.order("checkpoint")
    client.produce(topic, 1, 5)
    client.produce(topic, 0, 6)


def _checkpoints(client: CampaignClient) -> None:
    """The recovery point is never behind what is acknowledged for long, through several rolls."""
    topic = _topic(client)
    for _ in range(8):
        client.produce(topic, 0, 3)
        client.order("checkpoint")
        client.produce(topic, 1, 1)
    client.delete_records(topic, 0, topic.partitions[0].acked_end // 2)
    client.order("checkpoint")
    client.produce(topic, 0, 3)


def _delete_records(client: CampaignClient) -> None:
    topic = _topic(client)
    ledger = topic.partitions[0]
    client.delete_records(topic, 0, ledger.acked_end // 3)
    client.produce(topic, 0, 4)
    client.delete_records(topic, 0, ledger.acked_end // 2 + 1)
    client.order("remove")
    client.order("checkpoint")
    client.delete_records(topic, 0, ledger.acked_end)
    client.produce(topic, 0, 3)
    client.consume(topic, 0)


def _retention(client: CampaignClient) -> None:
    topic = _topic(client)
    for ledger in topic.partitions:
        ledger.asked_to = ledger.acked_end
    client.alter_config(topic, retention_bytes="4096")
    client.order("retain")
    client.produce(topic, 0, 12)
    client.order("retain")
    client.alter_config(topic, retention_bytes="1")
    topic.partitions[0].asked_to = topic.partitions[0].acked_end
    client.order("retain")
    client.produce(topic, 0, 2)


def _topics(client: CampaignClient) -> None:
    other = client.create_topic("other", partitions=2)
    client.produce(other, 0, 3)
    client.alter_config(other, retention_ms="86400000")
    client.delete_topic(other)
    again = client.create_topic("other", partitions=1)
    client.produce(again, 0, 2)
    client.order("remove")
    client.delete_topic(_topic(client))
    client.order("remove")


def _made_anew(client: CampaignClient) -> None:
    """A topic goes that all checkpoints tell of, and another one takes its name."""
    topic = _topic(client)
    client.delete_records(topic, 0, topic.partitions[0].acked_end)
    client.order("checkpoint")
    for _ in range(2):
        client.delete_topic(_topic(client))
        again = client.create_topic("t")
        client.produce(again, 0, 3)
        client.consume(again, 0)
        client.delete_records(again, 1, 0)
        client.produce(again, 1, 2)
        client.order("remove")
    client.order("checkpoint")
    client.produce(_topic(client), 0, 2)


def _stop(client: CampaignClient) -> None:
    client.produce(_topic(client), 0, 2)
    client.step = "clean stop"
    client.close()
    client.node.stop()


def _metadata(client: CampaignClient) -> None:
    for number in count():
        topic = client.create_topic(f"m{number}", partitions=1)
        client.alter_config(topic, retention_ms=str(86400000 + number))
        client.new_producer_id()
        if number % 3:
            client.delete_topic(topic)


def _everything(client: CampaignClient) -> None:
    topic = _topic(client)
    for number in count():
        client.produce(topic, 0, 6)
        client.consume(topic, 0)
        other = client.create_topic(f"m{number}", partitions=1)
        client.produce(other, 0, 2)
        client.delete_records(topic, 0, topic.partitions[0].acked_end // 2)
        client.alter_config(other, retention_ms=str(86400000 + number))
        if number % 2:
            client.delete_topic(other)
        client.produce(topic, 1, 3)


def _first_hours(client: CampaignClient) -> None:
    client.create_topic("t")
    _everything(client)


SCENARIOS = (
    Scenario("first start", None, _first_start, cuts_start=True),
    Scenario("start after a crash", _filled, _look, cuts_start=True),
    Scenario("start after a clean stop", _filled, _look, cuts_start=True, stops_cleanly=True),
    Scenario("produce, roll, checkpoint", _filled, _produce),
    Scenario("a checkpoint after every append", _filled, _checkpoints),
    Scenario("produce to many partitions", _filled_many, _many),
    Scenario("produce to many partitions, two directories", _filled_many, _many, log_dirs=TWO),
    Scenario("preallocated segments", _filled_preallocated, _preallocated),
    Scenario("start with preallocated segments", _filled_preallocated, _look, cuts_start=True),
    Scenario("acknowledged in the page cache", _filled_page_cache, _page_cache),
    Scenario("delete records", _filled, _delete_records),
    Scenario("retention", _filled, _retention),
    Scenario("compaction", _filled_compacted, _compaction),
    Scenario("transactions", _filled_transactions, _transactions),
    Scenario(
        "start after a crash in transactions",
        _filled_transactions,
        lambda client: TransactionWriter(client, _topic(client), 0).write(4),
        cuts_start=True,
    ),
    Scenario("compacted transactions", _filled_compacted_transactions, _compacted_transactions),
    Scenario("committed offsets", _filled_groups, _groups),
    Scenario("topics", _filled, _topics),
    Scenario("topic made anew", _filled, _made_anew),
    Scenario("clean stop", _filled, _stop),
    Scenario("first start, two directories", None, _first_start, cuts_start=True, log_dirs=TWO),
    Scenario("topics, two directories", _filled, _topics, log_dirs=TWO),
    Scenario("moves, two directories", _filled, _moves, log_dirs=TWO),
    Scenario("clean stop, two directories", _filled, _stop, log_dirs=TWO),
    Scenario(
        "adoption",
        _filled_for_adoption,
        _look,
        cuts_start=True,
        stops_cleanly=True,
        loses_metadata=True,
    ),
    Scenario("metadata commits", _filled, _metadata, window_us=150_000),
    Scenario(
        "checkpoints all the time", _filled, _everything, window_us=300_000, writes_checkpoints=True
    ),
    Scenario("first start, by time", None, _first_hours, cuts_start=True, window_us=400_000),
    Scenario("ottla serve", _filled, _everything, window_us=300_000, is_served=True),
    Scenario(
        "produce to many partitions, ottla serve",
        _filled_many,
        _many,
        window_us=300_000,
        is_served=True,
    ),
    Scenario(
        "ottla serve, first start",
        None,
        _first_hours,
        cuts_start=True,
        window_us=700_000,
        is_served=True,
    ),
)
