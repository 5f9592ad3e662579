"""A node with several listeners: all of them open, or none."""

import socket

import pytest

from ottla.broker import Broker
from ottla.config.files import broker_config


def broker(first_port, second_port):
    return Broker(
        broker_config(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{first_port},INSIDE://127.0.0.1:{second_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            }
        ),
        memory=True,
    )


def can_connect(address):
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_every_listener_has_its_address_and_none_is_left_open():
    node = broker(0, 0)
    doors = (await node.start()).doors
    addresses = list(doors.addresses.values())
    assert list(doors.addresses) == ["PLAINTEXT", "INSIDE"]
    assert doors.address == addresses[0] != addresses[1]
    assert all(map(can_connect, addresses))
    told = node.node.data.follower.image.brokers[1].registration
    assert [(at.name, at.host, at.port) for at in told.listeners] == [
        (name, *address) for name, address in doors.addresses.items()
    ]
    await node.stop()
    assert not any(map(can_connect, addresses))


async def test_a_port_in_use_leaves_no_other_listener_open():
    with socket.socket() as taken, socket.socket() as probe:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()
        probe.close()
        with pytest.raises(OSError, match="cannot listen on"):
            await broker(free[1], taken.getsockname()[1]).start()
        assert not can_connect(free)
