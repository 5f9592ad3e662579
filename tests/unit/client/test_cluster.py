"""Which topics a cluster asks for when it asks anew."""

from ottla.client.asyncio.admin import Admin
from ottla.ids import TopicPartition
from ottla.protocol.apis import ApiKey


def asked(broker):
    return [
        None if request.topics is None else {each.name for each in request.topics}
        for request in broker.calls(ApiKey.METADATA)
    ]


async def test_a_list_of_all_topics_makes_no_later_question_long(broker, cluster):
    """After one list_topics each refresh named every topic of the cluster, for ever."""
    broker.topics = [f"other-{number}" for number in range(100)]
    await cluster.ensure(["mine"])
    assert len(await Admin(cluster).list_topics()) == 100
    await cluster.ensure(["also"])
    await cluster.refresh([])
    assert asked(broker) == [{"mine"}, None, {"mine", "also"}, {"mine", "also"}]


async def test_topics_of_a_list_that_are_used_stay_known(broker, cluster):
    broker.topics = ["a", "b", "c"]
    await Admin(cluster).list_topics()
    await cluster.ensure(["a"])
    await cluster.look([TopicPartition("b", 0)])
    await cluster.ensure_led([TopicPartition("c", 0)])
    assert asked(broker) == [None]
    await cluster.refresh([])
    assert asked(broker)[-1] == {"a", "b", "c"}


async def test_topics_that_were_used_before_the_leaders_were_forgotten_are_not_asked_for(
    broker, cluster
):
    await cluster.ensure(["old"])
    cluster.forget_leaders()
    await cluster.ensure(["new"])
    assert asked(broker) == [{"old"}, {"new"}]
