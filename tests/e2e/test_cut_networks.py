"""The short form of tests/campaigns/cut_networks.py, and what its networks do."""

import shutil
import socket
import threading
from contextlib import closing, suppress

import pytest

from tests.campaigns.networks.network import Impossible, Network
from tests.etcd_server import needs_etcd
from tests.network_campaigns import report_of

PORT = 7777


@pytest.fixture
def network():
    try:
        with Network(["a", "b", "c"]) as network:
            yield network
    except Impossible as error:
        pytest.skip(f"no networks here: {error}")


class Machine:
    """What a thread in a machine says to other machines, and hears."""

    def __init__(self, network, name):
        made = []

        def make():
            network.machine(name).enter()
            made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        (self.socket,) = made
        self.socket.bind((network.address(name), PORT))
        self.socket.settimeout(1)

    def say(self, network, other, words):
        self.socket.sendto(words, (network.address(other), PORT))

    def hear(self):
        return self.socket.recv(100)


def heard(network, speaker, name, listener, words):
    """Let ``speaker`` say it to the machine ``name`` until that hears something; return what.

    A datagram may be lost where nothing is cut, while a neighbour's address is being looked up.
    """
    for _ in range(20):
        speaker.say(network, name, words)
        with suppress(TimeoutError):
            return listener.hear()
    raise AssertionError(f"{name} hears nothing")


@pytest.mark.timeout(60)
def test_a_way_is_cut_in_one_direction_and_mended(network):
    a, b, c = (Machine(network, name) for name in "abc")
    with closing(a.socket), closing(b.socket), closing(c.socket):
        network.cut([("a", "b")])
        a.say(network, "b", b"lost")
        of_b = heard(network, b, "a", a, b"from b")
        assert of_b == b"from b", "the other direction is as it was"
        assert heard(network, a, "c", c, b"from a") == b"from a", "and so are other machines"
        network.mend()
        assert heard(network, a, "b", b, b"mended") == b"mended", "what was lost is lost"


@pytest.mark.timeout(60)
def test_a_machine_that_is_plugged_in_again_knows_of_no_connection(network):
    a, b = Machine(network, "a"), Machine(network, "b")
    with closing(a.socket), closing(b.socket):
        network.cut([("a", "b")])
        network.unplug("b")
        network.plug_in("b")
        network.mend()
        again = Machine(network, "b")
        with closing(again.socket):
            assert heard(network, a, "b", again, b"after") == b"after"
            b.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                b.hear()


@pytest.mark.timeout(60)
def test_a_slow_machine_is_heard_all_the_same(network):
    a, b = Machine(network, "a"), Machine(network, "b")
    with closing(a.socket), closing(b.socket):
        network.slow_down("a")
        assert heard(network, a, "b", b, b"slow") == b"slow"
        network.speed_up("a")
        network.speed_up("a")


@needs_etcd
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("ip") is None, reason="needs ip (apt-get install iproute2)")
def test_power_cuts_and_cut_networks_break_no_promise():
    arguments = ["--rounds", "4", "--faults", "power+cut,power,cut,pause", "--seed", "3"]
    report = report_of("cut_networks.py", *arguments)
    assert sum(report["rounds"].values()) == 4
