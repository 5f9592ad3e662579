import pytest

from ottla.config.files import broker_config
from ottla.config.listeners import Endpoint
from ottla.config.option import InvalidConfig
from ottla.supervision.layout import (
    ListenerPorts,
    check_options,
    node_directory,
    node_ids,
    node_texts,
    plan_ports,
)

PLAIN = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
TLS = Endpoint("SSL", "", 19092)


def test_node_one_is_where_a_single_node_is():
    directories = [node_directory("/d", node) for node in node_ids(3)]
    assert directories == ["/d", "/d/nodes/2", "/d/nodes/3"]


@pytest.mark.parametrize(
    ("first", "plain", "tls"),
    [
        (None, (9093, 9094), (19093, 19094)),
        (0, (0, 0), (0, 0)),
        (5000, (5000, 5001), (5002, 5003)),
    ],
)
def test_ports(first, plain, tls):
    assert plan_ports((PLAIN, TLS), 2, first) == (
        ListenerPorts("PLAINTEXT", "127.0.0.1", 9092, plain),
        ListenerPorts("SSL", "", 19092, tls),
    )


def test_behind_a_free_door_come_free_ports():
    assert plan_ports((PLAIN._replace(port=0),), 2)[0].nodes == (0, 0)


@pytest.mark.parametrize(
    ("listeners", "first", "named"),
    [
        (
            (PLAIN, TLS._replace(port=9093)),
            None,
            "port 9093 .* node 1 of PLAINTEXT and the door of",
        ),
        ((PLAIN, TLS._replace(port=9091)), None, "port 9092 .* PLAINTEXT and node 1 of SSL"),
        ((PLAIN,), 9091, "port 9092 .* node 2"),
        ((PLAIN._replace(port=65533),), None, "65536"),
        ((PLAIN,), 65534, "65536"),
    ],
)
def test_ports_that_cannot_be_are_named_before_anything_starts(listeners, first, named):
    with pytest.raises(InvalidConfig, match=named):
        plan_ports(listeners, 3, first)


def test_each_node_has_options_of_its_own():
    config = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://kafka.example:19092",
            "log.dirs": "/a,/b",
            "num.partitions": "7",
        }
    )
    bound = (ListenerPorts("PLAINTEXT", "127.0.0.1", 40_000, (41_000, 42_000)),)
    assert node_texts(config, node_ids(2)[1], bound) == {
        "node.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:42000",
        "advertised.listeners": "PLAINTEXT://kafka.example:19094",
        "log.dirs": "/a/nodes/2,/b/nodes/2",
        "num.partitions": "7",
    }


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"node.id": "5"}, "node.id is 5"),
        ({"advertised.listeners": "PLAINTEXT://h:65535"}, "65538"),
    ],
)
def test_options_that_several_nodes_cannot_have_are_refused(texts, named):
    with pytest.raises(InvalidConfig, match=named):
        check_options(broker_config(texts), 3)
