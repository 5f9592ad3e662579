"""A fresh producer id from any broker, for idempotent producers. Source: KIP-98."""

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.sending import ProducerIdentity, init_producer_request, read_init_producer
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse


async def fresh_identity(cluster: Cluster) -> ProducerIdentity:
    """Return a producer id that nobody has had, with epoch 0. Raises KafkaError, ConnectionFailed.

    Asked again as long as that may help.
    """

    async def attempt() -> ProducerIdentity:
        connection = await cluster.any()
        return read_init_producer(
            await connection.call(init_producer_request(), InitProducerIdResponse)
        )

    return await cluster.retrying(attempt)
