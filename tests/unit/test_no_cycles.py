"""Requests and answers are freed by reference counts as soon as they are done: no cycles are left.

The garbage collector looks at objects that it has set aside only after very many more were made,
and it counts objects, not bytes. So a cycle would keep whole requests and answers, deleted files
and connections alive. The collector belongs to the process, so the test has one of its own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SERVE = """
import asyncio, collections, gc, sys
sys.path.insert(0, ROOT)
from ottla.broker import Broker
from ottla.config.files import broker_config
from tools.wire_client import WireClient, batch

gc.disable()

def left():
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = collections.Counter(
        f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage
    )
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    return {name: count for name, count in found.items() if name.startswith("ottla.")}

async def main():
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    broker = Broker(broker_config(given), memory=True)
    await broker.start()
    bootstrap = "%s:%d" % broker.address
    await asyncio.to_thread(prepare, bootstrap)
    for work in works:
        await asyncio.to_thread(work, bootstrap)
        await asyncio.sleep(0.3)
        left()
        for _ in range(3):
            await asyncio.to_thread(work, bootstrap)
        await asyncio.sleep(0.3)
        found = left()
        assert not found, f"{work.__name__} leaves {found}"
    await broker.stop()

def prepare(bootstrap):
    with WireClient(bootstrap) as client:
        client.create_topic("t", 3)
        for kind, key in ((0, "g"), (1, "x")):
            while client.call(
                "find_coordinator", 4, key_type=kind, coordinator_keys=[key]
            )["coordinators"][0]["error_code"]:
                pass

def fetch_of(client, topics, **fields):
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return client.encode(
        "fetch", 12, replica_id=-1, max_bytes=1000, session_id=0, session_epoch=-1,
        topics=[{"topic": topic, "partitions": [asked]} for topic in topics], **fields,
    )

def produces(bootstrap):
    with WireClient(bootstrap) as client:
        client.produce("t", batch())
        client.call("produce", 9, acks=-1, timeout=1000, topic_data=[{"name": "t",
            "partition_data": [{"index": one, "records": batch()} for one in range(3)]}])

def fetches_that_wait(bootstrap):
    with WireClient(bootstrap) as client:
        client.fetch("t", max_wait=20, min_bytes=10**9)

def fetches_that_are_given_up(bootstrap):
    for topics in (["t"], ["t", *(f"no-{one}" for one in range(3000))]):
        with WireClient(bootstrap) as client:
            client.send_frame(fetch_of(client, topics, max_wait=60_000, min_bytes=10**9))
            with WireClient(bootstrap) as other:
                other.produce("t", batch())  # It has been read by now.

def long_requests(bootstrap):
    topics = [{"topic_id": None, "name": f"no-{one}"} for one in range(5000)]
    with WireClient(bootstrap) as client:
        client.call("metadata", 12, topics=topics, allow_auto_topic_creation=False)

def administration(bootstrap):
    with WireClient(bootstrap) as client:
        client.create_topic("u", 2)
        client.call("delete_topics", 5, topic_names=["u", "v"], timeout=5000)
        client.call("describe_log_dirs", 4, topics=None)

def groups(bootstrap):
    with WireClient(bootstrap) as client:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        client.call("offset_commit", 8, group_id="g", generation_id_or_member_epoch=-1,
            member_id="", topics=[{"name": "t", "partitions": [part]}])
        client.call("offset_fetch", 8, groups=[{"group_id": "g", "topics": None}],
            require_stable=True)
        client.call("consumer_group_heartbeat", 1, group_id="k", member_id="m", member_epoch=0,
            rebalance_timeout=1000, subscribed_topic_names=["t"], topic_partitions=[])
        client.call("consumer_group_heartbeat", 1, group_id="k", member_id="m", member_epoch=-1,
            rebalance_timeout=-1, subscribed_topic_names=None, topic_partitions=None)

def transactions(bootstrap):
    with WireClient(bootstrap) as client:
        code = 51
        while code == 51:
            begun = client.call("init_producer_id", 4, transactional_id="x",
                transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
            code = begun["error_code"]
        producer = {key: begun[key] for key in ("producer_id", "producer_epoch")}
        records = batch(attributes=16, base_sequence=0, **producer)
        client.call("produce", 12, transactional_id="x", acks=-1, timeout=1000, topic_data=[
            {"name": "t", "partition_data": [{"index": 0, "records": records}]}])
        client.call("end_txn", 5, transactional_id="x", committed=True, **producer)

"""


@pytest.mark.parametrize(
    "work",
    [
        "produces",
        "fetches_that_wait",
        "fetches_that_are_given_up",
        "long_requests",
        "administration",
        "groups",
        "transactions",
    ],
)
def test_nothing_that_is_over_waits_for_the_collector(work):
    code = f"ROOT = {str(ROOT)!r}\n{SERVE}works = [{work}]\nasyncio.run(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
