"""InitProducerId: new ids, and the answer while there are none."""

import asyncio

import pytest

from ottla.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode
from ottla.handlers.apis.init_producer_id import InitProducerId
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.store import Ambiguous, Unavailable
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

CALL = Call(5, "me", Client("10.0.0.9", 5000, "10.0.0.1", 9092))


def request(*, transactional_id=None, **fields):
    return InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, **fields
    )


class FailingStore(MemoryStore):
    """A store that answers with ``error`` as long as there is one."""

    error = None

    async def commit(self, guards, ops):
        if self.error is not None:
            raise self.error
        return await super().commit(guards, ops)


@pytest.fixture
def store():
    return FailingStore(ManualClock())


@pytest.fixture
def ask(store):
    handler = InitProducerId(ProducerIds(store, "block"), None)

    async def ask(**fields):
        answer = handler.handle(request(**fields), CALL)
        for _ in range(20):
            await asyncio.sleep(0)
        return answer

    return ask


async def given(ask):
    answer = (await ask()).value
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


async def test_ids_are_new_also_across_blocks_and_nodes(ask, store):
    other = InitProducerId(ProducerIds(store, "block"), None)
    ids = [await given(ask) for _ in range(3)]
    answer = other.handle(request(), CALL)
    for _ in range(20):
        await asyncio.sleep(0)
    ids.append(answer.value.producer_id)
    assert ids == [0, 1, 2, BLOCK_SIZE]


@pytest.mark.parametrize("error", [Unavailable("gone"), Ambiguous("perhaps")])
async def test_a_store_that_does_not_answer_does_not_cost_the_connection(ask, store, error):
    store.error = error
    pending = await ask()
    assert pending.error is None, "an error here closes the connection"
    assert pending.value.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (pending.value.producer_id, pending.value.producer_epoch) == (-1, -1)
    store.error = None
    assert await given(ask) >= 0


@pytest.mark.parametrize(
    "fields",
    [{"producer_id": 5}, {"producer_epoch": 5}],
)
async def test_what_cannot_be_served_is_an_invalid_request(ask, fields):
    answer = await ask(**fields)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1)
