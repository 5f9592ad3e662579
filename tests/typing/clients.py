"""A client's answer has the class that was asked for, in both rooms."""

from typing import assert_type

from ottla.client.asyncio.connection import Connection
from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.connection import BlockingConnection
from ottla.ids import TopicPartition
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


def a_blocking_call_answers_as_asked(connection: BlockingConnection) -> None:
    answer = connection.call(MetadataRequest(topics=None), MetadataResponse)
    assert_type(answer, MetadataResponse)


async def an_awaited_call_answers_as_asked(connection: Connection) -> None:
    answer = await connection.call(MetadataRequest(topics=None), MetadataResponse)
    assert_type(answer, MetadataResponse)
    connection.call(MetadataRequest(topics=7), MetadataResponse)  # type: ignore[arg-type, unused-coroutine]


def a_retried_attempt_keeps_its_type(client: BlockingClient) -> None:
    assert_type(client.retrying(lambda: "done"), str)
    assert_type(client.partitions("orders"), list[TopicPartition])
