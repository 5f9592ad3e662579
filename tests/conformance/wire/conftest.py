"""A broker with a listener that asks clients who they are, for the tests of logging in."""

import pytest

from tests.logging_in import OPTIONS, USERS
from tools.wire_client import WireClient


@pytest.fixture(scope="session")
def made(request, target_kind):
    """What makes a broker of the kind under test, for those with options of their own."""
    if target_kind == "kafka":
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer

        return KafkaPeer
    from tools.ottla_peer import OttlaPeer

    return OttlaPeer


@pytest.fixture(scope="session")
def secured(made, tmp_path_factory):
    data = tmp_path_factory.mktemp("secured") / "data"
    with made(data, OPTIONS, protocols=("SASL_PLAINTEXT",), users=USERS) as peer:
        peer.start()
        yield peer


@pytest.fixture
def stranger(connect_to, secured):
    """A connection to that listener, of whom nothing is known yet."""
    return connect_to(secured.secured["SASL_PLAINTEXT"])


@pytest.fixture
def connect_to():
    clients = []

    def connect(address):
        clients.append(WireClient(address))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def again(connect_to, secured):
    """Connect once more."""
    return lambda: connect_to(secured.secured["SASL_PLAINTEXT"])


@pytest.fixture
def admin(connect_to, secured):
    """A connection to the listener that asks nobody."""
    return connect_to(secured.bootstrap)
