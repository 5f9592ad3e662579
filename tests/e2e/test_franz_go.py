"""franz-go, the client library of many programs in Go, at a broker with TLS, SASL and ACLs.

The same at Ottla and at Apache Kafka. Needs Go, and its module proxy once.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.certificates import certificates
from tests.secured import COMING, secured_peer, token_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PROGRAM = Path(__file__).with_name("go")
PROTOCOLS = ("SSL", "SASL_SSL")


@pytest.fixture(scope="module")
def franz(tmp_path_factory):
    """Return the program, built."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    made = tmp_path_factory.mktemp("franz") / "franz"
    command = [go, "build", "-mod=readonly", "-o", str(made), "."]
    done = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, timeout=280)
    if done.returncode and "dial tcp" in done.stderr:
        pytest.skip(f"the modules cannot be had: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.kafka)])
def peer(request, tmp_path_factory):
    if request.param == "kafka":
        from tools.kafka_peer import KafkaPeer as Kind

        request.getfixturevalue("kafka_libs")
    else:
        from tools.ottla_peer import OttlaPeer as Kind

    data = tmp_path_factory.mktemp("franz") / "data"
    with secured_peer(Kind, data, [*(topic_of(name) for name in COMING), "throttled"]) as peer:
        yield peer


def topic_of(name):
    return f"franz-{name}"


@pytest.fixture
def run(franz, peer):
    def run(way, topic, *more, password=None, certificate="client"):
        protocol, mechanism, user, right = COMING[way]
        made = certificates()
        arguments = ["-broker", peer.secured[protocol], "-ca", str(made / "ca.pem")]
        if way == "token":
            token = token_of(peer, user, is_forged=password is not None)
            arguments += ["-mechanism", mechanism, "-password", token]
        elif mechanism is not None:
            arguments += ["-mechanism", mechanism, "-user", user, "-password", password or right]
        elif certificate is not None:
            arguments += ["-certificate", str(made / f"{certificate}.crt")]
            arguments += ["-key", str(made / f"{certificate}.key")]
        command = [str(franz), *arguments, "-topic", topic, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert "panic" not in done.stderr
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize("way", COMING)
def test_who_may_come_in_writes_and_reads(run, way):
    code, told = run(way, topic_of(way))
    assert code == 0, told
    # The user may have been told to wait for what another test has sent.
    assert re.fullmatch(r"read 2 records of 10 bytes, throttled \d+ ms\n", told), told


@pytest.mark.parametrize("way", [way for way in COMING if way != "certificate"])
def test_a_wrong_password_is_refused(run, way):
    code, told = run(way, topic_of(way), password="wrong")
    assert code == 1
    assert "SASL_AUTHENTICATION_FAILED" in told


@pytest.mark.parametrize("certificate", [None, "stranger", "expired"])
def test_a_certificate_that_does_not_count_is_refused(run, certificate):
    code, told = run("certificate", topic_of("certificate"), certificate=certificate)
    assert code == 1
    assert "tls: " in told or "EOF" in told or "connection reset" in told, told


@pytest.mark.parametrize("way", COMING)
def test_a_topic_that_is_denied_is_refused(run, way):
    code, told = run(way, "denied")
    assert code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in told


def test_who_sends_too_much_is_told_to_wait(run):
    code, told = run("plain", "throttled", "-count", "3", "-size", "400000")
    assert code == 0, told
    waited = re.fullmatch(r"read 3 records of 1200000 bytes, throttled (\d+) ms\n", told)
    assert waited is not None, told
    assert 1_000 < int(waited[1]) < 4_000, "1.2 MB at 0.1 MB a second, less ten seconds at first"
