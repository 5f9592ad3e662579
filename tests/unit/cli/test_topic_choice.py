"""Which topics a command names, and how much is asked for them."""

from ottla.cli.topic_choice import chosen_topics
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.settings import read_settings
from ottla.testing import Broker


async def test_a_pattern_costs_one_question_however_many_topics_it_fits():
    with Broker() as broker:
        for number in range(20):
            broker.create_topic(f"t-{number}")
        settings = read_settings({"bootstrap.servers": broker.bootstrap})
        async with Cluster(settings) as cluster:
            before = len([each for each in broker.last_requests() if "METADATA" in each.upper()])
            found = await chosen_topics(cluster, [], "t-.*")
            asked = [each for each in broker.last_requests() if "METADATA" in each.upper()]
    assert len(found) == 20
    assert len(asked) - before == 1
