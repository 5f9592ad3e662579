"""How fast one address may connect, at a broker of the test's own: it is everybody's address."""

import contextlib
import socket
import struct
import time

import pytest

from tools.peer import API_VERSIONS_V0
from tools.wire_client import Closed, batch

KEY = "connection_creation_rate"
RATE = 5
BURST = 10 * RATE


def alter(wire, address, rate):
    ops = [{"key": KEY, "value": float(rate or 0), "remove": rate is None}]
    entity = [{"entity_type": "ip", "entity_name": address}]
    answer = wire.call(
        "alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False
    )
    assert answer["entries"][0]["error_code"] == 0


def is_served(client):
    try:
        return client.call("api_versions", 0)["error_code"] == 0
    except Closed:
        return False


@pytest.fixture
def broker(request, target_kind):
    return request.getfixturevalue(f"{target_kind}_server_factory")()


@pytest.mark.parametrize("address", ["127.0.0.1", None])
def test_who_connects_too_fast_is_held_and_closed(broker, connect, address):
    admin = connect(broker)
    alter(admin, address, RATE)
    time.sleep(0.3)  # Kafka's broker hears of it later than its controller.
    begin = time.monotonic()
    clients = [connect(broker) for _ in range(80)]
    served = [is_served(client) for client in clients]
    spent = time.monotonic() - begin
    assert BURST - 2 * RATE <= sum(served) <= BURST + RATE * (spent + 1) + 1
    assert not served[-1]
    assert is_served(admin), "who is there stays"
    alter(admin, address, None)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if all(is_served(connect(broker)) for _ in range(3)):
            return
    raise AssertionError("nobody is held without a quota")


def test_a_connection_that_is_held_back_is_idle_as_any_other(request, target_kind, connect_to):
    """Who goes away while muted would otherwise leave a connection for as long as the mute."""
    made = request.getfixturevalue(f"{target_kind}_server_factory")
    address = made({"connections.max.idle.ms": 2000}).bootstrap
    admin = connect_to(address)
    ops = [{"key": "producer_byte_rate", "value": 100.0, "remove": False}]
    entity = [{"entity_type": "client-id", "entity_name": "wire"}]
    admin.create_topic("t")
    admin.call("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}])
    time.sleep(0.3)  # Kafka's broker hears of it later than its controller.
    muted = connect_to(address)
    data = {"name": "t", "partition_data": [{"index": 0, "records": batch([bytes(100_000)])}]}
    answer = muted.call("produce", 9, acks=1, timeout=5000, topic_data=[data])
    assert answer["throttle_time"] > 500_000
    assert muted.is_closed_by_peer(within_seconds=20)


def served_in(broker, seconds):
    """Connect as fast as it goes; return how many connections were answered within ``seconds``."""
    ends = time.monotonic() + seconds
    lines = [socket.create_connection((broker.host, broker.port), timeout=20) for _ in range(40)]
    for line in lines:
        with contextlib.suppress(OSError):
            line.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
    served = 0
    for line in lines:
        line.settimeout(max(ends - time.monotonic(), 0.01))
        with contextlib.suppress(TimeoutError):
            served += bool(line.recv(4))
    for line in lines:
        line.close()
    return served


def test_a_broker_accepts_at_its_rate(request, target_kind, connect_to):
    """``max.connection.creation.rate``, altered while it runs: who is too fast waits."""
    made = request.getfixturevalue(f"{target_kind}_server_factory")
    windows = {"quota.window.num": 2, "quota.window.size.seconds": 1}
    broker = made(windows)
    admin = connect_to(broker.bootstrap)

    def alter_rate(operation, key="max.connection.creation.rate"):
        config = {"name": key, "config_operation": operation, "value": "4"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
        answer = admin.call("incremental_alter_configs", 1, resources=[resource])
        return answer["responses"][0]["error_code"]

    assert served_in(broker, 20) == 40
    assert alter_rate(0) == 0
    time.sleep(0.3)  # Kafka's broker hears of it later than its controller.
    begin = time.monotonic()
    served = served_in(broker, 3)
    spent = time.monotonic() - begin
    assert 3 <= served <= 4 * (2 + spent) + 2
    assert admin.call("api_versions", 0)["error_code"] == 0, "who is there is served"
    assert alter_rate(1) == 0
    deadline = time.monotonic() + 40
    while served_in(broker, 2) < 40:
        assert time.monotonic() < deadline


def test_a_listener_may_have_a_rate_of_its_own(request, target_kind):
    made = request.getfixturevalue(f"{target_kind}_server_factory")
    broker = made(
        {
            "listener.name.plaintext.max.connection.creation.rate": 4,
            "quota.window.num": 2,
        }
    )
    begin = time.monotonic()
    served = served_in(broker, 3)
    assert 3 <= served <= 4 * (2 + time.monotonic() - begin) + 2


def test_the_rate_of_a_listener_is_altered_and_told(broker, connect):
    key, admin = "listener.name.plaintext.max.connection.creation.rate", connect(broker)

    def alter_rate(operation):
        config = {"name": key, "config_operation": operation, "value": "100000"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
        answer = admin.call("incremental_alter_configs", 1, resources=[resource])
        assert answer["responses"][0]["error_code"] == 0

    def told():
        resource = {"resource_type": 4, "resource_name": "", "configuration_keys": [key]}
        (result,) = admin.call("describe_configs", 4, resources=[resource])["results"]
        return [(each["name"], each["value"]) for each in result["configs"]]

    def is_told_soon(expected):
        """Kafka's broker hears of it later than its controller."""
        ends = time.monotonic() + 10
        while (found := told()) != expected and time.monotonic() < ends:
            time.sleep(0.05)
        return found == expected

    alter_rate(0)
    assert is_told_soon([(key, "100000")])
    alter_rate(1)
    assert is_told_soon([])
