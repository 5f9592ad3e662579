"""Peers that are slow, silent, deaf or too many: rows 12-15 of the hostile-client table."""

import contextlib
import struct
import time

import pytest

from tools.wire_client import Closed, WireClient, batch, batches

MIB = 1 << 20


@pytest.fixture
def connections():
    """Open wire connections; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def connect(server, **options):
            return stack.enter_context(WireClient(server.bootstrap, **options))

        yield connect


def seconds_until_closed(client, limit_seconds=15.0):
    begin = time.monotonic()
    assert client.is_closed_by_peer(within_seconds=limit_seconds), "still open"
    return time.monotonic() - begin


def test_row_12_slowloris_is_closed_and_others_are_not(ottla_server_factory, connections):
    server = ottla_server_factory(
        {"ottla.request.read.timeout.ms": 1000, "connections.max.idle.ms": 60_000}
    )
    honest = connections(server)
    honest.create_topic("t")
    slow = [connections(server) for _ in range(20)]
    begin = time.monotonic()
    for client in slow:
        client.send(struct.pack(">i", 1000))
    number = 0
    open_clients = list(slow)
    while open_clients and time.monotonic() - begin < 10:
        assert honest.produce("t", batch([b"%d" % number]))["base_offset"] == number
        number += 1
        for client in list(open_clients):
            try:
                client.send(b"\0")
                client.socket.settimeout(0.002)
                with contextlib.suppress(TimeoutError):
                    client.receive(1)
            except Closed:
                open_clients.remove(client)
    assert not open_clients, f"{len(open_clients)} of 20 still open"
    assert time.monotonic() - begin > 0.9, "closed before its time was over"
    assert number > 1, "the honest client was hardly served"


def test_row_12_a_large_frame_gets_the_time_its_size_needs(ottla_server_factory, connections):
    server = ottla_server_factory(
        {"ottla.request.read.timeout.ms": 500, "ottla.request.read.min.bytes.per.second": 100_000}
    )
    client = connections(server)
    client.create_topic("t")
    records = batch([b"x" * 500_000])
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    body = client.encode("produce", 9, acks=-1, timeout=1000, topic_data=data)
    frame = struct.pack(">i", len(body)) + body
    begin = time.monotonic()
    step = 50_000
    for position in range(0, len(frame), step):
        client.send(frame[position : position + step])
        time.sleep(0.15)  # 330 kB/s: slower than the bare timeout, faster than the slowest rate
    assert time.monotonic() - begin > 1.0
    got = client.decode("produce", 9, client.receive_frame())
    assert got["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_row_13_idle_connection_is_closed_and_a_used_one_is_not(ottla_server_factory, connections):
    server = ottla_server_factory({"connections.max.idle.ms": 1500})
    idle, never_spoke, used = connections(server), connections(server), connections(server)
    idle.call("api_versions", 0)
    begin = time.monotonic()
    open_clients = [idle, never_spoke]
    while open_clients and time.monotonic() - begin < 12:
        used.call("api_versions", 0)
        for client in list(open_clients):
            client.socket.settimeout(0.05)
            try:
                client.receive(1)
            except TimeoutError:
                continue
            except Closed:
                open_clients.remove(client)
    assert not open_clients, f"{len(open_clients)} of 2 still open"
    assert time.monotonic() - begin > 1.0, "closed before its time was over"
    assert used.call("api_versions", 0)["error_code"] == 0


def test_row_13_a_waiting_fetch_is_not_idle(ottla_server_factory, connections):
    server = ottla_server_factory({"connections.max.idle.ms": 1000})
    client = connections(server)
    client.create_topic("t")
    got = client.fetch("t", max_wait=3000)
    assert (got["error_code"], got["high_watermark"]) == (0, 0)


def fetch_frame(client, number):
    body = client.encode(
        "fetch",
        12,
        replica_id=-1,
        max_wait=0,
        min_bytes=1,
        max_bytes=8 * MIB,
        session_epoch=-1,
        topics=[
            {
                "topic": "t",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 8 * MIB}],
            }
        ],
    )
    return struct.pack(">i", len(body)) + body


def fill(client, count=8):
    client.create_topic("t")
    for _ in range(count):
        assert client.produce("t", batch([b"x" * (MIB - 200)]))["error_code"] == 0


def test_row_14_peer_that_never_reads_costs_no_memory_and_is_cut_off(
    ottla_server_factory, connections
):
    server = ottla_server_factory({"ottla.write.stall.timeout.ms": 1500})
    honest = connections(server)
    fill(honest)
    honest.fetch("t", max_bytes=8 * MIB, partition_max_bytes=8 * MIB)
    before = server.rss_bytes()
    deaf = [connections(server) for _ in range(10)]
    for client in deaf:
        client.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError, Closed):
            client.send(b"".join(fetch_frame(client, number) for number in range(50)))
    highest = before
    number = 8
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        assert honest.produce("t", batch([b"y"]))["base_offset"] == number
        number += 1
        highest = max(highest, server.rss_bytes())
    assert highest - before < 64 * MIB, f"grew by {(highest - before) / MIB:.0f} MiB"
    for client in deaf:  # what was under way may still arrive; then the end
        seconds_until_closed(client)


def unknown_topics_frame(client):
    """Return a Fetch of 14 MB, whose answer repeats the names of the topics that are not there."""
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
    topics = [{"topic": f"{n:03}" + "n" * 32_000, "partitions": parts} for n in range(450)]
    body = client.encode(
        "fetch", 12, replica_id=-1, max_wait=0, min_bytes=1, max_bytes=1,
        session_epoch=-1, topics=topics,
    )  # fmt: skip
    return struct.pack(">i", len(body)) + body


@pytest.mark.slow
def test_row_14_peers_that_never_read_share_a_bound_of_memory(ottla_server_factory, connections):
    server = ottla_server_factory(
        {"ottla.queued.max.answer.bytes": 48 * MIB, "queued.max.request.bytes": 64 * MIB}
    )
    honest = connections(server)
    honest.create_topic("t")
    large = unknown_topics_frame(honest)
    honest.send(large)
    assert len(honest.receive_frame()) > 14_000_000
    before = highest = server.rss_bytes()
    deaf = [connections(server) for _ in range(24)]  # Of 340 MB of answers.
    for number, client in enumerate(deaf):
        client.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError, Closed):
            client.send(large)
            client.receive(4)
        assert honest.produce("t", batch([b"y"]))["base_offset"] == number
        highest = max(highest, server.rss_bytes())
    assert highest - before < 230 * MIB, f"grew by {(highest - before) / MIB:.0f} MiB"
    keys = [f"key-{number}" for number in range(5000)]
    found = honest.call("find_coordinator", 4, key_type=0, coordinator_keys=keys)["coordinators"]
    assert len(found) == len(keys), "who takes nothing makes room in the end"


def test_row_14_slow_reader_gets_everything_in_order(ottla_server_factory, connections):
    server = ottla_server_factory({"ottla.write.stall.timeout.ms": 3000})
    honest = connections(server)
    fill(honest, 4)
    slow = connections(server)
    slow.send(b"".join(fetch_frame(slow, number) for number in range(6)))
    for number in range(6):
        time.sleep(0.2)
        got = slow.decode("fetch", 12, slow.receive_frame())
        assert got["correlation_id"] == number + 1
        records = got["responses"][0]["partitions"][0]["records"]
        assert [(found["base_offset"], found["crc_ok"]) for found in batches(records)] == [
            (offset, True) for offset in range(4)
        ]


def test_row_14_2000_pipelined_requests_are_answered_in_order(ottla_server, connections):
    client = connections(ottla_server)
    frames = []
    for _ in range(2000):
        body = client.encode("metadata", 9, topics=[])
        frames.append(struct.pack(">i", len(body)) + body)
    client.send(b"".join(frames))
    got = [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in frames]
    assert got == list(range(1, 2001))


def test_row_14_pipelined_produce_of_one_connection_keeps_its_order(
    ottla_server, connections, topic_name
):
    client = connections(ottla_server)
    client.create_topic(topic_name)
    start = client.encode("metadata", 9, topics=[])
    client.send_frame(start)
    client.receive_frame()
    for number in range(500):
        data = [
            {
                "name": topic_name,
                "partition_data": [{"index": 0, "records": batch([b"%d" % number])}],
            }
        ]
        client.send_frame(client.encode("produce", 9, acks=-1, timeout=9000, topic_data=data))
    offsets = []
    for _ in range(500):
        got = client.decode("produce", 9, client.receive_frame())
        offsets.append(got["responses"][0]["partition_responses"][0]["base_offset"])
    assert offsets == list(range(500))


@pytest.mark.parametrize("option", ["max.connections", "max.connections.per.ip"])
def test_row_15_connection_too_many_is_closed_right_after_accept(
    ottla_server_factory, connections, option
):
    server = ottla_server_factory({option: 15})
    inside = []
    deadline = time.monotonic() + 10
    while len(inside) < 15 and time.monotonic() < deadline:
        client = connections(server)  # the start's own probe may still hold a place
        with contextlib.suppress(Closed):
            client.call("api_versions", 0)
            inside.append(client)
    assert len(inside) == 15
    for _ in range(20):
        assert connections(server).is_closed_by_peer(within_seconds=5)
    for client in inside:
        assert client.call("api_versions", 0)["error_code"] == 0
    inside.pop().close()
    while True:
        client = connections(server)
        with contextlib.suppress(Closed):
            assert client.call("api_versions", 0)["error_code"] == 0
            break
        assert time.monotonic() < deadline + 10, "the free place is never given away"


def test_row_15_a_flood_of_connections_leaves_nothing_behind(ottla_server_factory, connections):
    server = ottla_server_factory({})
    honest = connections(server)
    honest.create_topic("t")
    before = server.rss_bytes()
    for number in range(1000):
        client = WireClient(server.bootstrap)
        if number % 3 == 0:
            client.send(b"\0\0")
        client.close()
        if number % 100 == 0:
            assert honest.produce("t", batch())["base_offset"] == number // 100
    assert server.rss_bytes() - before < 64 * MIB
    import os

    deadline = time.monotonic() + 10
    while len(os.listdir(f"/proc/{server.pid}/fd")) > 100 and time.monotonic() < deadline:
        honest.call("api_versions", 0)
    assert len(os.listdir(f"/proc/{server.pid}/fd")) <= 100
