"""The walks of docs/ARCHITECTURE.md: each file once, and each is met by such a request."""

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from ottla.broker import Broker
from ottla.config.files import broker_config
from tools.wire_client import WireClient, batch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
SOURCES = str(ROOT / "src" / "ottla") + "/"
NAMES = ("Produce", "Fetch", "Commit", "The end of a transaction")


def walks():
    (section,) = re.findall(r"## Four walks\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    found = {}
    for title, body in re.findall(r"\*\*(.+?)\*\*\n\n((?:\d+\. .*\n(?: .*\n)*)+)", section):
        found[title.split(":")[0]] = re.findall(r"\]\(\.\./src/ottla/(.+?)\)", body)
    return found


def test_no_walk_comes_by_a_file_twice():
    assert tuple(walks()) == NAMES
    for files in walks().values():
        assert len(files) > 10
        assert len(set(files)) == len(files)


class Met:
    """The files in which something was called on the loop's thread."""

    def __init__(self):
        self.files = set()

    def __call__(self, frame, event, _):
        path = frame.f_code.co_filename
        if path.startswith(SOURCES):
            self.files.add(path[len(SOURCES) :])


def until_there(client, kind, key):
    for _ in range(200):
        found = client.call("find_coordinator", 4, key_type=kind, coordinator_keys=[key])
        if found["coordinators"][0]["error_code"] == 0:
            return
        time.sleep(0.05)
    raise AssertionError("no coordinator")


def commit(client):
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return client.call(
        "offset_commit",
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [part]}],
    )["topics"][0]["partitions"][0]["error_code"]


def end_of_transaction(client):
    got = client.call(
        "init_producer_id",
        4,
        transactional_id="x",
        transaction_timeout=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    known = {"producer_id": got["producer_id"], "producer_epoch": got["producer_epoch"]}
    client.call(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        **{f"v3_and_below_{key}": value for key, value in known.items()},
    )
    return client.call("end_txn", 3, transactional_id="x", committed=True, **known)["error_code"]


REQUESTS = {
    "Produce": lambda client: client.produce("t", batch([b"x"]))["error_code"],
    "Fetch": lambda client: client.fetch("t")["error_code"],
    "Commit": commit,
    "The end of a transaction": end_of_transaction,
}


def ask(bootstrap, request, met, wanted):
    """Send the request until it is served, and give what follows its time; blocks."""
    with WireClient(bootstrap) as client:
        client.create_topic("t")
        client.produce("t", batch([b"x"]))
        until_there(client, 0, "g")
        until_there(client, 1, "x")
        served = 0
        for _ in range(200):
            met.files.clear()
            served += request(client) == 0
            if served == 2:  # At first files are made, and synced another way.
                break
            time.sleep(0.05)
        else:
            raise AssertionError("not served")
        for _ in range(100):
            if wanted <= met.files:
                break
            time.sleep(0.02)


@pytest.mark.parametrize("name", NAMES)
async def test_every_file_of_a_walk_is_met(name, tmp_path):
    met = Met()
    broker = Broker(
        broker_config(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "data"),
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            }
        )
    )
    await broker.start()
    try:
        host, port = broker.address
        wanted = set(walks()[name])
        asked = asyncio.to_thread(ask, f"{host}:{port}", REQUESTS[name], met, wanted)
        before = sys.getprofile()
        sys.setprofile(met)
        try:
            await asked
        finally:
            sys.setprofile(before)
    finally:
        await broker.stop()
    assert wanted - met.files == set()
