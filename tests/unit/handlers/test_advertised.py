"""Which addresses of a cluster's nodes a client is told."""

from types import SimpleNamespace

import pytest

from ottla.handlers.advertised import Advertised
from ottla.handlers.client import Client
from ottla.ids import NodeId
from ottla.metadata.image import BrokerImage
from ottla.metadata.values import BrokerValue, ListenerAddress

SHARED_PORT = 9092
"""The one that every node accepts on; the client came by it."""


def client(listener):
    return Client("client", 5, "10.0.0.1", SHARED_PORT, listener=listener)


@pytest.fixture
def image():
    """Two nodes of one host that listen on every address, and one of another host."""

    def broker(node_id, host, first_port):
        listeners = (
            ListenerAddress("OUT", host, first_port),
            ListenerAddress("IN", host, first_port + 1),
        )
        registration = BrokerValue(host, first_port, listeners=listeners)
        return BrokerImage(NodeId(node_id), 1, registration)

    brokers = [broker(1, "0.0.0.0", 101), broker(2, "0.0.0.0", 201), broker(3, "far", 301)]
    return SimpleNamespace(brokers={broker.node: broker for broker in brokers})


def addresses(image, listener, told):
    found = Advertised(NodeId(1), told).brokers(image, client(listener))
    return [(broker.host, broker.port) for broker in found]


def test_no_node_is_told_by_an_address_that_is_every_address(image):
    assert addresses(image, "OUT", {}) == [("10.0.0.1", 101), ("10.0.0.1", 201), ("far", 301)]


def test_other_nodes_are_told_by_the_listener_that_the_client_came_by(image):
    assert addresses(image, "IN", {}) == [("10.0.0.1", 102), ("10.0.0.1", 202), ("far", 302)]


def test_the_advertised_address_comes_first(image):
    told = addresses(image, "IN", {"IN": ("public", 7)})
    assert told == [("public", 7), ("10.0.0.1", 202), ("far", 302)]
