"""The length of an answer to a Fetch is known before it is made."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.handlers.fetch_data import data_of
from ottla.handlers.fetch_size import answer_bytes
from ottla.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from ottla.replication.fetch import FetchedPartition, Isolation

SIZES = [None, 1, 126, 127, 128, 5000, 16_383, 16_384]


def fetched(topic, index, size, aborted=0):
    return FetchedPartition(
        TopicPartition(topic, index),
        ErrorCode.NONE,
        10,
        10,
        0,
        region=None if size is None else SimpleNamespace(length_bytes=size),
        aborted=[SimpleNamespace(producer_id=1, first_offset=n) for n in range(aborted)],
    )


ANSWERS = [
    [],
    [fetched("t", 0, None)],
    [fetched("t", 0, 200, aborted=3)],
    [fetched("t", 0, 200, aborted=200)],
    [fetched("topic", n, size) for n, size in enumerate(SIZES)],
    [fetched("t" * 126, 0, 1), fetched("u" * 127, 0, 1), fetched("v" * 249, 0, 1)],
    [fetched("t", n, 5) for n in range(200)] + [fetched("u", 0, 5)],
    [fetched(f"t{n}", 0, 5) for n in range(200)],
]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("answer", ANSWERS)
def test_it_is_that_of_the_encoded_answer(answer, version):
    topics = {}
    for one in answer:
        data = data_of(one, Isolation.READ_COMMITTED)
        data.records = b"" if one.region is None else bytes(one.region.length_bytes)
        topics.setdefault(one.topic_partition.topic, []).append(data)
    response = FetchResponse(
        session_id=5,
        responses=[
            FetchableTopicResponse(topic=name, topic_id=bytes(16), partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    assert answer_bytes(version, answer) == 4 + len(response.encode(version))
