"""Who is told of retries hears of each one, and that they are over: a refusal is an answer, too."""

import pytest

from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.trouble import Trouble
from ottla.client.wire.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError

AGAIN, NO = ErrorCode.NOT_COORDINATOR, ErrorCode.GROUP_ID_NOT_FOUND


class Heard(Trouble):
    def __init__(self):
        self.all = []

    def retrying(self, error, of=None):
        self.all.append(error.code)

    def answered(self, of=None):
        self.all.append("answered")


async def heard(*codes, timeout_ms=30_000):
    """What is heard while attempts fail with ``codes``, and then succeed."""
    listener = Heard()
    settings = ClientSettings(retry_backoff_ms=1, retry_timeout_ms=timeout_ms)
    left = list(codes)

    async def attempt():
        if left:
            raise KafkaError(left.pop(0))

    error = None
    try:
        await Cluster(settings, trouble=listener).retrying(attempt)
    except KafkaError as failed:
        error = failed.code
    return error, listener.all


@pytest.mark.parametrize(
    ("codes", "error", "told"),
    [
        ((), None, []),
        ((NO,), NO, []),
        ((AGAIN, AGAIN), None, [AGAIN, AGAIN, "answered"]),
        ((AGAIN, NO), NO, [AGAIN, "answered"]),
    ],
)
async def test_every_trouble_that_is_told_ends(codes, error, told):
    assert await heard(*codes) == (error, told)


async def test_who_gives_up_was_not_answered():
    error, told = await heard(*[AGAIN] * 1000, timeout_ms=20)
    assert error is AGAIN
    assert "answered" not in told
