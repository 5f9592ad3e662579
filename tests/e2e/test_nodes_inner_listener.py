"""A client that reaches the ports on which nodes speak with each other: it gets nothing there.

The processes are real ones; the secret is that of their start, which nobody is told. For a replay
the test needs an exchange that succeeds: it has nodes of its own, whose secret it knows.
"""

import base64
import os
import socket
import struct
from pathlib import Path

import pytest

from ottla.node.interbroker import FRAME_BYTES_MAX
from ottla.protocol.apis import API_TABLE, ApiKey
from tests.logging_in import Scram, hang_up, shake_hands, token
from tests.nodes import SECRET, Nodes
from tools.nodes_peer import NodesPeer
from tools.wire_client import Closed, WireClient

pytestmark = [
    pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux"),
    pytest.mark.timeout(180),
]
MECHANISM = "SCRAM-SHA-256"
LISTENS = "0A"
BEFORE_THE_LOGIN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
GUESSES = ("", " ", "0" * 64, "inter.broker", "ottla", "secret", "1")


def ports_of(pid):
    """Return the ports at which a process listens."""
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    sockets = {line.split()[9]: line.split() for line in lines}
    held = [sockets.get(link[len("socket:[") : -1]) for link in links if "socket:" in link]
    return {int(one[1].split(":")[1], 16) for one in held if one and one[3] == LISTENS}


@pytest.fixture(scope="module")
def inner(tmp_path_factory):
    """The addresses of the listeners that no client is told of, of three processes."""
    with NodesPeer(tmp_path_factory.mktemp("nodes") / "data", 3) as peer:
        peer.start()
        brokers = []
        with WireClient(peer.bootstrap) as wire:
            while len(brokers) < 3:
                brokers = wire.call("metadata", 9, topics=[])["brokers"]
        told = {peer.port, *(each["port"] for each in brokers)}
        ports = set().union(*(ports_of(pid) for pid in peer.workers().values())) - told
        assert len(ports) == 3, "one of each node"
        yield [f"127.0.0.1:{port}" for port in sorted(ports)]


@pytest.mark.parametrize("key", [key for key in API_TABLE if key not in BEFORE_THE_LOGIN])
def test_no_request_is_served_before_the_login(inner, key):
    for address in inner:
        with WireClient(address, timeout_seconds=5) as wire:
            wire.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(64))
            assert hang_up(wire), ApiKey(key).name


@pytest.mark.parametrize("secret", GUESSES)
def test_a_wrong_secret_lets_nobody_in(inner, secret):
    for address in inner:
        for name in ("1", "2", "admin"):
            with WireClient(address) as wire:
                assert shake_hands(wire, MECHANISM)["error_code"] == 0
                scram = Scram(MECHANISM, name=name, password=secret)
                first = token(wire, scram.first())
                assert first["error_code"] == 0, "it does not tell names apart"
                last = token(wire, scram.final(first["auth_bytes"]))
                assert (last["error_code"], last["auth_bytes"]) == (58, b"")
                assert hang_up(wire)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", ""])
def test_there_is_no_weaker_way_in(inner, mechanism):
    with WireClient(inner[0]) as wire:
        told = shake_hands(wire, mechanism)
        assert (told["error_code"], told["mechanisms"]) == (33, [MECHANISM])
        assert hang_up(wire)


def test_a_large_frame_is_not_taken_before_the_login(inner):
    with WireClient(inner[0]) as wire:
        wire.send(struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(100))
        assert hang_up(wire)


def test_the_ports_are_of_this_machine_only(inner):
    port = int(inner[0].rpartition(":")[2])
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        address, number = line.split()[1].split(":")
        if int(number, 16) == port and line.split()[3] == LISTENS:
            assert socket.inet_ntoa(struct.pack("<I", int(address, 16))) == "127.0.0.1"


@pytest.fixture(scope="module")
def nodes():
    options = {"sasl.enabled.mechanisms": MECHANISM}
    with Nodes(options, scheme="SASL_PLAINTEXT") as nodes:
        nodes.start(1, 2)
        yield nodes


def test_an_exchange_that_was_heard_opens_no_second_door(nodes):
    """Whoever heard every byte of a node's login has nothing that lets him in."""
    where = nodes.address_for_nodes(1), nodes.address_for_nodes(2)
    scram = Scram(MECHANISM, name="1", password=SECRET)
    with WireClient(where[0]) as heard:
        shake_hands(heard, MECHANISM)
        first = scram.first()
        final = scram.final(token(heard, first)["auth_bytes"])
        told = token(heard, final)
        assert (told["error_code"], told["auth_bytes"]) == (0, scram.expected)
        assert heard.call("metadata", 9, topics=[])["brokers"]
        for address in where:  # Its own node, and another one, which knows the same secret.
            with WireClient(address) as wire:
                shake_hands(wire, MECHANISM)
                answer = token(wire, first)["auth_bytes"]
                assert base64.b64encode(scram.nonce.encode()) not in answer
                assert token(wire, final)["error_code"] == 58
                assert hang_up(wire)
            with WireClient(address) as wire:  # Not even with the first message left out.
                shake_hands(wire, MECHANISM)
                assert token(wire, final)["error_code"] == 58


def test_one_nodes_answer_is_no_proof_for_another(nodes):
    """Who stands between two nodes and passes on what they say learns what lets him in nowhere.

    The proof is made over both nonces: that of the node that is asked is part of it.
    """
    scram = Scram(MECHANISM, name="1", password=SECRET)
    with (
        WireClient(nodes.address_for_nodes(1)) as one,
        WireClient(nodes.address_for_nodes(2)) as other,
    ):
        for wire in (one, other):
            shake_hands(wire, MECHANISM)
        first = scram.first()
        asked = [token(wire, first)["auth_bytes"] for wire in (one, other)]
        assert asked[0] != asked[1]
        proof_for_one = scram.final(asked[0])
        assert token(other, proof_for_one)["error_code"] == 58
        assert token(one, proof_for_one)["error_code"] == 0
        with pytest.raises(Closed):
            other.call("metadata", 9, topics=[])
