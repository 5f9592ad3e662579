"""``ottla doctor HOST:PORT`` against an Ottla and a Kafka: what is odd is found, rights or not."""

import json

import pytest

from tests.authorizing import OPTIONS
from tests.certificates import certificates, make
from tests.commands import run_command
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
USERS = OPTIONS["listener.name.sasl_plaintext.plain.sasl.jaas.config"]


@pytest.fixture(params=["ottla", "kafka"], scope="module")
def broker(request, tmp_path_factory):
    """A broker where "admin" has the password of everybody's examples, and a group has left."""
    if request.param == "kafka":
        request.getfixturevalue("kafka_libs")
        from tools.kafka_peer import KafkaPeer as Made
    else:
        Made = OttlaPeer  # noqa: N806 - a class
    weak = USERS.replace("user_root", 'user_admin="admin" user_root')
    options = OPTIONS | {"listener.name.sasl_plaintext.plain.sasl.jaas.config": weak}
    data = tmp_path_factory.mktemp("examined") / "data"
    with Made(data, options, protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        peer.kind = request.param
        with WireClient(peer.bootstrap) as wire:
            wire.create_topic("read")
            assert wire.produce("read", batch([b"1", b"2"]))["error_code"] == 0
        told = run_command(
            peer.bootstrap, "consume", "read", "-g", "gone", "-n", "1", "-o", "jsonl"
        )
        assert told[0] == 0, told[2]
        yield peer


def examined(bootstrap, *arguments, login=None):
    """Return (exit code, the findings' checks by subject, the whole)."""
    code, out, err = run_command(
        "127.0.0.1:1", "doctor", bootstrap, "-o", "json", *arguments, login=login
    )
    told = json.loads(out) if out.startswith("{") else {"findings": []}
    return code, {(one["check"], one["subject"]) for one in told["findings"]}, (told, err)


def test_an_administrator_is_told_everything(broker):
    address = broker.secured["SASL_PLAINTEXT"]
    code, found, (told, err) = examined(address, login=("PLAIN", "root", "root"))
    assert code == 1, (found, err)
    assert ("login.default-password", "user admin") in found
    assert ("group.abandoned", "group gone") in found
    assert ("quota.none", "cluster") in found
    assert (told["brokers"], told["brokers_reached"]) == (1, 1)
    if broker.kind == "ottla":  # Kafka keeps super.users to itself.
        assert ("acl.super-users", "broker 1") in found
    code, found, _ = examined(address, "--no-logins", login=("PLAIN", "root", "root"))
    assert code == 0
    assert "login.default-password" not in {check for check, _ in found}
    assert examined(address, "--no-logins", "--strict", login=("PLAIN", "root", "root"))[0] == 1


def test_who_may_see_little_is_told_what_was_not_looked_at(broker):
    address = broker.secured["SASL_PLAINTEXT"]
    code, found, (told, err) = examined(address, "--no-logins", login=("PLAIN", "alice", "alice"))
    assert code == 0, (told, err)
    assert {check for check, _ in found} == {"not-looked-at"}
    assert "CLUSTER_AUTHORIZATION_FAILED" in told["findings"][0]["why"]


def test_a_certificate_that_ends_soon_and_an_address_that_leads_nowhere(tmp_path):
    make(certificates(), "soon", "-days", "5")
    options = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates() / "soon.pem"),
    }
    trusting = ("-X", "security.protocol=SSL", "-X")
    with OttlaPeer(tmp_path / "data", options) as peer:
        peer.ask_api_versions = lambda deadline: None  # It speaks TLS.
        peer.read_line = lambda line: _port_of(peer, line)
        peer.start()
        ours = (*trusting, f"ssl.ca.location={certificates() / 'ca.pem'}")
        code, found, (told, err) = examined(peer.bootstrap, *ours)
        assert code == 0, (told, err)
        assert ("tls.ends-soon", peer.bootstrap) in found
        assert ("acl.none", "cluster") in found
        assert not {check for check, _ in found} & {"tls.old", "tls.refused", "listener.open"}
        other = (*trusting, f"ssl.ca.location={certificates() / 'other-ca.pem'}")
        code, _, err = run_command("127.0.0.1:1", "doctor", peer.bootstrap, *other)
        assert code != 0
        assert "certificate was refused" in err


def _port_of(peer, line):
    found = line.partition("127.0.0.1:")[2]
    if line.startswith("  Kafka ") and found:
        peer.port = int(found.split()[0])
        return True
    return False


def test_a_broker_that_clients_cannot_reach_is_an_error(tmp_path):
    wrong = {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with OttlaPeer(tmp_path / "data", wrong) as peer:
        peer.start()
        code, found, (told, _) = examined(peer.bootstrap)
        assert code == 1
        assert ("broker.unreachable", "broker 1") in found
        assert told["brokers_reached"] == 0


def test_nobody_there():
    code, _, (_, err) = examined("127.0.0.1:1")
    assert code == 3
    assert "nothing listens on 127.0.0.1:1" in err
