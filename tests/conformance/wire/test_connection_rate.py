"""How fast one address may connect, at a broker of the test's own: it is everybody's address."""

import time

import pytest

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
