"""Which brokers an administrator is told to be down, by clusters new and old."""

import pytest

from ottla.client.asyncio.admin import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse


class OneBroker:
    """A cluster whose broker answers every request alike."""

    def __init__(self, answer):
        self.answer = answer

    async def any(self):
        return self

    async def call(self, request, answer):
        assert request.include_fenced_brokers
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer

    async def retrying(self, attempt):
        return await attempt()


def told(*brokers, error_code=0):
    named = [
        DescribeClusterBroker(broker_id=node, host="h", port=1, is_fenced=fenced)
        for node, fenced in brokers
    ]
    return DescribeClusterResponse(error_code=error_code, cluster_id="c", brokers=named)


async def test_brokers_that_are_fenced_are_told():
    assert await Admin(OneBroker(told((1, False), (2, True)))).fenced_brokers() == {2}


@pytest.mark.parametrize(
    "answer",
    [
        told(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        KafkaError(ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_none_are_told_where_one_may_not_ask_or_nobody_knows_the_request(answer):
    assert await Admin(OneBroker(answer)).fenced_brokers() == set()


async def test_a_cluster_that_cannot_answer_now_is_not_one_without_fenced_brokers():
    with pytest.raises(KafkaError):
        await Admin(OneBroker(KafkaError(ErrorCode.REQUEST_TIMED_OUT))).fenced_brokers()
