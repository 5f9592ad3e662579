"""The hash of a group's topics is XXH3 as in hash4j 0.22, and that of a live Kafka 4.3."""

import pytest

from ottla.coordinator.group.consumer.metadata_hash import group_hash, topic_hash
from ottla.coordinator.group.consumer.xxh3 import xxh3_64
from ottla.ids import TopicId


@pytest.mark.parametrize(
    ("size", "hashed"),
    [
        (0, 0x2D06800538D394C2),
        (1, 0x4C5CCA45D0F4811F),
        (3, 0x6E3E2670E61106AC),
        (4, 0x5C4C63133443D03F),
        (8, 0xF9FD4DD0B04D78F5),
        (9, 0x7C20DF9712C26EDF),
        (16, 0x86ABF6BACCEA0858),
        (17, 0xB58BF5DC5022D071),
        (32, 0xE3712ED84C04A66E),
        (33, 0xA4DEE99B093E1F73),
        (65, 0x97C6BF83217E5EC9),
        (128, 0x10D17F72C0CCBA41),
        (129, 0x1648BDC3DB49D1A2),
        (240, 0xB6CFAF343FAB81E6),
        (241, 0x956CAE592C67279E),
        (1024, 0x70BD377D9574F4BB),
        (1025, 0x66C4487C41E127A7),
        (1089, 0x313BC7EE32BBFA2E),
        (5000, 0xE4007929540F095C),
    ],
)
def test_the_hash_is_xxh3(size, hashed):
    assert xxh3_64(bytes((index * 131 + 7) % 256 for index in range(size))) == hashed


def test_a_group_of_kafka_has_the_hash_that_stands_in_its_log():
    topic_id = TopicId(bytes.fromhex("194ac49bd92d4a478e5d6af18b39adbb"))
    assert group_hash([topic_hash("rec", topic_id, ((),) * 4)]) == 0x52D872C09D21D5FB


def test_partitions_racks_and_their_order_tell():
    topic_id = TopicId(bytes(16))
    hashes = {
        topic_hash("t", topic_id, racks)
        for racks in ((), ((),), ((), ()), (("a",),), (("a", "b"),), (("ab",),))
    }
    assert len(hashes) == 6
    assert topic_hash("t", topic_id, (("b", "a"),)) == topic_hash("t", topic_id, (("a", "b"),))
    assert group_hash([1, 2]) != group_hash([2, 1])
    assert group_hash([]) == 0
