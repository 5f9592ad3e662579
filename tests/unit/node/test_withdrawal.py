"""A node without a log takes itself out of the ISR, unless it may be the only one that has all."""

from types import SimpleNamespace

import pytest

from ottla.config.topic import UNCLEAN_LEADER_ELECTION_ENABLE
from ottla.env.clock import ManualClock
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Put
from ottla.metadata.values import (
    NO_LEADER,
    PartitionState,
    TopicValue,
    decode_partition,
    encode_partition,
    encode_topic,
)
from ottla.node.replicas import withdraw_from
from ottla.replication.missing import Missing

TOPIC_ID = TopicId(b"0123456789abcdef")
ME, OTHER = NodeId(1), NodeId(2)
AWAY = ["not in log.dirs: /mnt/two"]


@pytest.fixture
async def withdrawn():
    """Start node 1 without the log of a partition; returns the partition's state then."""
    store, keys = MemoryStore(ManualClock()), Keys("c")
    follower = ImageFollower(store, keys, ManualClock())
    await follower.start()

    async def withdrawn(
        isr,
        elr=(),
        *,
        away=(),
        may_be_unclean=False,
        is_there=False,
        is_as_before=False,
        was_there=False,
    ):
        key = keys.partition(TOPIC_ID, 0)
        leader = isr[0] if isr else NO_LEADER
        state = PartitionState((ME, OTHER), isr, leader, LeaderEpoch(3), 5, elr=elr)
        topic = TopicValue(TOPIC_ID, 1)
        await store.commit(
            [],
            [Put(keys.topic("t"), encode_topic(topic)), Put(key, encode_partition(state))],
        )
        data = SimpleNamespace(
            store=store,
            keys=keys,
            follower=follower,
            logs=SimpleNamespace(away=lambda: list(away)),
            directories_are_as_before=is_as_before,
        )
        configuration = SimpleNamespace(
            node_id=ME, of_topic=lambda _: {UNCLEAN_LEADER_ELECTION_ENABLE: may_be_unclean}
        )
        which = [(TopicPartition("t", 0), TOPIC_ID)]
        if is_there:
            await withdraw_from(data, configuration, (), which)
        else:
            gone = [Missing(*each, was_there=was_there) for each in which]
            await withdraw_from(data, configuration, gone)
        return decode_partition((await store.get(key)).value)

    yield withdrawn
    await follower.close()
    await store.close()


@pytest.mark.parametrize("away", [(), AWAY], ids=["lost", "away"])
async def test_it_leaves_to_others_who_have_all(withdrawn, away):
    after = await withdrawn((ME, OTHER), away=away)
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (OTHER,), ())
    after = await withdrawn((), (ME, OTHER), away=away)
    assert (after.isr, after.elr) == ((), (OTHER,))


@pytest.mark.parametrize(("isr", "elr"), [((ME,), ()), ((), (ME,))])
async def test_it_stays_the_only_one_that_has_all_while_its_directory_may_come_back(
    withdrawn, isr, elr
):
    """A disk that is mounted late: else an unclean election would have to lose what is on it."""
    after = await withdrawn(isr, elr, away=AWAY)
    assert (after.isr, after.elr) == (isr, elr)


async def test_others_may_lead_that_lack_records_when_it_is_lost_or_that_is_allowed(withdrawn):
    after = await withdrawn((ME,))
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), ())
    after = await withdrawn((ME,), away=AWAY, may_be_unclean=True)
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), ())


async def test_a_leader_that_may_have_lost_its_end_leaves_to_those_in_sync(withdrawn):
    after = await withdrawn((ME, OTHER), is_there=True)
    assert (after.leader, after.isr, after.leader_epoch) == (NO_LEADER, (OTHER,), 4)
    after = await withdrawn((ME,), is_there=True)
    assert (after.leader, after.isr) == (ME, (ME,)), "nobody has more"
    after = await withdrawn((OTHER, ME), is_there=True)
    assert (after.leader, after.isr) == (OTHER, (OTHER, ME)), "a follower has synced it"


async def test_who_had_a_log_by_a_checkpoint_does_not_say_that_it_never_made_one(withdrawn):
    """Its directory was removed by hand: others may lack what was acknowledged."""
    after = await withdrawn((ME,), is_as_before=True)
    assert after.unmade == (ME,)
    after = await withdrawn((ME,), is_as_before=True, was_there=True)
    assert (after.leader, after.isr, after.unmade) == (NO_LEADER, (), ())
