"""Topics are taken in of which nobody knows the configs: no record goes until somebody says so."""

import contextlib

import pytest

from ottla.cluster.copies import Copy
from ottla.cluster.taking_in import AT_ONCE, KEPT_WHOLE, NAMED_MAX, TakingIn
from ottla.cluster.unsettled import Unsettled, mark
from ottla.config.broker import BROKER_TABLE
from ottla.config.config import Config, Layer
from ottla.config.option import Source
from ottla.config.topic import TOPIC_TABLE, stored_topic_config
from ottla.env.clock import ManualClock
from ottla.env.rng import SeededRng
from ottla.ids import NodeId, TopicId
from ottla.metadata.keys import ConfigType, Keys
from ottla.metadata.store import Put
from ottla.metadata.values import (
    PartitionState,
    TopicValue,
    decode_config,
    encode_partition,
    encode_topic,
)
from ottla.settings import internal_configs_of, internal_topics_of, partition_settings_of
from tests.failing_store import CutOff, FailingStore

ONE, TWO = NodeId(1), NodeId(2)
KEYS = Keys("test")
INTERNAL = {"__consumer_offsets": {"cleanup.policy": "compact"}}


@pytest.fixture
async def store():
    store = FailingStore(ManualClock())
    yield store
    await store.close()


def found(*names, count=1):
    copies = {}
    for name in names:
        topic_id = TopicId(name.encode().rjust(16, b".")[-16:])
        copies[name] = {
            index: Copy(topic_id, 0, 10, f"/d/{name}-{index}") for index in range(count)
        }
    return {ONE: copies}


def taking_in(store, alone=None):
    return TakingIn(store, KEYS, SeededRng(1), INTERNAL.get, alone)


async def configs(store, topic):
    entry = await store.get(KEYS.config(ConfigType.TOPIC, topic))
    return None if entry is None else decode_config(entry.value)


@pytest.mark.parametrize("alone", [ONE, None])
async def test_a_topic_that_is_taken_in_is_kept_whole(store, alone, caplog):
    """Retention took what was to stay for ever, right after the start."""
    names = [f"t{number:02}" for number in range(NAMED_MAX + 3)]
    await taking_in(store, alone).all(found(*names))
    for name in names:
        assert await configs(store, name) == KEPT_WHOLE
    (told,) = [one.getMessage() for one in caplog.records if "are kept" in one.getMessage()]
    assert ", t19 and 3 more" in told
    assert "t20" not in told
    assert "ottla config set topic/t00 cleanup.policy=compact" in told
    assert "ottla config unset topic/t00 cleanup.policy retention.bytes retention.ms" in told


@pytest.mark.parametrize("alone", [ONE, None])
async def test_an_internal_topic_has_the_configs_that_it_is_made_with(store, alone, caplog):
    """With the default policy, the offsets of all groups that rest were deleted."""
    await taking_in(store, alone).all(found("__consumer_offsets"))
    assert await configs(store, "__consumer_offsets") == INTERNAL["__consumer_offsets"]
    assert "are kept" not in caplog.text


async def test_configs_that_are_known_stay(store, caplog):
    topic_id = found("t")[ONE]["t"][0].topic_id
    state = PartitionState((ONE,), (ONE,), ONE, 0, 0)
    await store.commit(
        [],
        [
            Put(KEYS.topic("t"), encode_topic(TopicValue(topic_id, 1))),
            Put(KEYS.partition(topic_id, 0), encode_partition(state)),
        ],
    )
    await taking_in(store, ONE).all(found("t", count=3))  # Some more partitions were copied in.
    assert await store.get(KEYS.partition(topic_id, 2)) is not None
    assert await configs(store, "t") is None
    assert "are kept" not in caplog.text


@pytest.mark.parametrize("commits", range(5))
async def test_a_topic_is_never_there_without_its_configs(store, commits):
    await store.commit([], [mark(KEYS, Unsettled.METADATA)])
    has = found("t", count=2 * AT_ONCE)
    store.left = commits
    with contextlib.suppress(CutOff):
        await taking_in(store).all(has)
    is_there = await store.get(KEYS.topic("t")) is not None
    assert (await configs(store, "t") == KEPT_WHOLE) == is_there
    assert is_there == (commits > 2)
    store.left = None
    await taking_in(store).all(has)
    assert await configs(store, "t") == KEPT_WHOLE


def broker(**texts):
    texts = {key.replace("_", "."): text for key, text in texts.items()}
    return Config(BROKER_TABLE, Layer(Source.STATIC_BROKER, texts))


def test_no_default_deletes_or_compacts_what_is_kept_whole():
    defaults = broker(
        log_cleanup_policy="compact,delete", log_retention_ms="1", log_retention_bytes="1"
    )
    log = partition_settings_of(stored_topic_config(KEPT_WHOLE, defaults), defaults).log
    assert (log.is_compacted, log.retention_ms, log.retention_bytes) == (False, -1, -1)
    assert log.is_deleted  # So DeleteRecords is not refused.


def test_each_internal_topic_is_known_with_valid_configs():
    config = broker(transaction_state_log_min_isr="2")
    for topic in internal_topics_of(config):
        known = internal_configs_of(config, topic.name)
        assert known == dict(topic.configs)
        assert known["cleanup.policy"] == "compact"
        Config(TOPIC_TABLE, Layer(Source.TOPIC, known), beneath=config)
    assert internal_configs_of(config, "__transaction_state")["min.insync.replicas"] == "2"
    assert internal_configs_of(config, "t") is None
