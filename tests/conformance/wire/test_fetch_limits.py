"""What a Fetch gets, and whether it waits, when its limits do not fit together: as a live Kafka."""

import time
import uuid

import pytest

from tools.wire_client import WireClient, batch

pytestmark = pytest.mark.timeout(60)
WAIT_MS = 1500
LATE_SECONDS = 1.2
ONE, LARGE = 1070, 1 << 20
"""The bytes of one record of 1000, and more than there is."""


@pytest.fixture
def wire(target):
    with WireClient(target.bootstrap) as wire:
        yield wire


@pytest.mark.parametrize("session_epoch", [-1, 0])
@pytest.mark.parametrize(
    ("count", "min_bytes", "max_bytes", "of_partition", "got", "waits"),
    [
        (5, 100_000, 500, LARGE, ONE, False),
        (1, 100_000, 5000, LARGE, ONE, True),
        (5, 100_000, LARGE, 500, ONE, True),
        (5, 100_000, 500, 500, ONE, False),
        (3, 5000, 3000, LARGE, 3000, False),
        (2, 1, 0, LARGE, ONE, False),
        (2, 1, LARGE, 0, ONE, False),
        (2, -5, LARGE, LARGE, 2 * ONE, False),
        (2, 2**31 - 1, 2**31 - 1, 2**31 - 1, 2 * ONE, True),
        (0, 1, 0, 100, 0, False),
        (0, 0, 100, 100, 0, False),
    ],
)
def test_limits_that_do_not_fit(
    wire, session_epoch, count, min_bytes, max_bytes, of_partition, got, waits
):
    topic = f"t-{uuid.uuid4().hex[:12]}"
    wire.create_topic(topic)
    for _ in range(count):
        wire.produce(topic, batch([bytes(1000)]))
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": of_partition}
    began = time.monotonic()
    told = wire.call(
        "fetch",
        12,
        replica_id=-1,
        max_wait=WAIT_MS if waits else 20 * WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=0,
        session_epoch=session_epoch,
        topics=[{"topic": topic, "partitions": [part]}],
    )
    took = time.monotonic() - began
    (data,) = told["responses"][0]["partitions"]
    assert (data["error_code"], len(data["records"] or b"")) == (0, got)
    assert took > LATE_SECONDS if waits else took < 20 * LATE_SECONDS
