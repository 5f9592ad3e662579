"""What a live Kafka writes of KIP-848 groups is read, and written again to the byte."""

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]

OPTIONS = {"group.consumer.assignment.interval.ms": 0, "offsets.topic.num.partitions": 1}


def test_kafkas_records_are_ours(kafka_server_factory):
    from ottla.coordinator.group.consumer import records
    from ottla.coordinator.group.consumer.group import ConsumerGroup
    from ottla.coordinator.records import decode_slice
    from tools.differential import Play

    broker = kafka_server_factory(OPTIONS)
    with Play(broker.bootstrap) as play:
        topic_id = play.create_topic("t", 4)
        play.wait_for_coordinator("g")

        def beat(member, epoch, owned=None, **fields):
            if owned is not None:
                owned = [{"topic_id": topic_id, "partitions": owned}] if owned else []
            fields = {"subscribed_topic_names": None} | fields
            play.call(
                "c",
                "consumer_group_heartbeat",
                1,
                group_id="g",
                member_id=member,
                member_epoch=epoch,
                topic_partitions=owned,
                **fields,
            )

        asked = {"rebalance_timeout": 9_000, "subscribed_topic_names": ["t"]}
        beat("a", 0, [], **asked, instance_id="i", rack_id="r", server_assignor="range")
        beat("b", 0, [], **asked)
        beat("a", 2, [0, 1, 2, 3], instance_id="i")
        beat("a", 2, [0, 1], instance_id="i")
        beat("b", 3, [])
        beat("c", 0, [], rebalance_timeout=9_000, subscribed_topic_regex="t.*")
        beat("a", -2, instance_id="i")
        beat("b", -1)
        connection = play.connection("c")
        fetched = connection.fetch("__consumer_offsets", partition_max_bytes=1 << 20)

    group = ConsumerGroup("g")
    kinds = set()
    for one in decode_slice(bytes(fetched["records"])).entries:
        kind = int.from_bytes(one.key[:2], "big")
        if kind not in records.KEY_TYPES:
            continue
        name = records.read_key(kind, one).name
        records.replay(group, kind, name, one)
        if one.value is None:
            continue
        kinds.add(kind)
        again = {
            3: lambda: records.group_record("g", group.epoch, group.metadata_hash),
            5: lambda name=name: records.member_record("g", group.members[name]),
            6: lambda: records.target_epoch_record(
                "g", group.assignment_epoch, group.assignment_timestamp_ms
            ),
            7: lambda name=name: records.target_record("g", name, group.targets[name]),
            8: lambda name=name: records.current_record("g", group.members[name]),
            16: lambda name=name: records.regex_record("g", name, group.regexes[name]),
        }[kind]()
        assert (again.key, again.value) == (one.key, one.value), kind
    assert kinds >= {3, 5, 6, 7, 8}
    group.check()
