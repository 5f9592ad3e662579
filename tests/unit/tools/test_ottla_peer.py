"""Where clients are served, taken from what ``ottla serve`` prints."""

from pathlib import Path

import pytest

from tools.ottla_peer import OttlaPeer


def port_of(*lines):
    peer = OttlaPeer(Path("data"))
    for line in lines:
        if peer.read_line(f"{line}\n"):
            return peer.port
    return None


@pytest.mark.parametrize(
    "line",
    [
        "[node 2] the loop was held for 312 ms: FETCH of 127.0.0.1:35696",
        "the loop was held for 312 ms: FETCH of 127.0.0.1:35696",
        "ottla 0.1.0  2 nodes  cluster 127.0.0.1:35696",
        "  why: a Kafka-like broker answers there",
        "  fix: ottla serve --port 9192   or   ottla topic list -b 127.0.0.1:35696",
    ],
)
def test_the_address_of_a_client_in_the_log_is_not_taken_for_the_brokers(line):
    """On a busy machine tests then waited at the port of a client."""
    assert port_of(line) is None
    assert port_of(line, "  Kafka    127.0.0.1:41233    PLAINTEXT (this machine only)") == 41233


def test_who_listens_everywhere_is_reached_as_the_hint_says():
    ready = (
        "  Kafka    0.0.0.0:41233    PLAINTEXT (no authentication)",
        "  Nodes    1 at 41234, 2 at 41235    clients find them by the address above",
        "  Data     ./data (new)    acks=all means fsynced",
        "  Try      ottla produce hello -b 127.0.0.1:41233   |   kcat -b 127.0.0.1:41233 -L",
    )
    assert port_of(*ready) == 41233
