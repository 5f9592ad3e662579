"""No secret is in a log at DEBUG, in an error, or in an answer of DescribeConfigs."""

import subprocess
import sys

import pytest

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.settings import read_settings
from ottla.errors import KafkaError
from tests.certificates import PASSWORD, certificates
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

JAAS = "org.apache.kafka.common.security"
PLAIN, SCRAM, LATER, WRONG = "plain-5Ns8", "scram-7Tq2", "later-9Xw4", "wrong-3Lk6"
WITH_DEBUG = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, force=True)
logging.Logger.setLevel = logging.Handler.setLevel = lambda self, level: None
for name in ("ottla", "ottla.audit", "asyncio"):
    logging.getLogger(name).level = logging.NOTSET
from ottla.cli.main import main
main()
"""


class Talkative(OttlaPeer):
    """A broker that logs all it can."""

    def command(self):
        command = list(super().command())
        return [command[0], "-c", WITH_DEBUG, *command[3:]]


def options():
    made = certificates()
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{JAAS}.plain.PlainLoginModule required user_alice="{PLAIN}";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": (made / "locked.key").read_text(),
        "ssl.keystore.certificate.chain": (made / "server.crt").read_text(),
        "ssl.key.password": PASSWORD,
    }


def secrets():
    key = (certificates() / "locked.key").read_text().splitlines()
    return [PLAIN, SCRAM, LATER, WRONG, PASSWORD, *(line for line in key if len(line) > 40)]


def shown(text):
    return [secret for secret in secrets() if secret in text]


def log_in(peer, mechanism, name, password):
    settings = {
        "bootstrap.servers": peer.secured["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates() / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    read = read_settings(settings)
    assert not shown(repr(read)), "the client's settings"
    client = BlockingClient(read)
    try:
        client.refresh([])
    finally:
        client.close()


def test_no_secret_is_told_by_logs_errors_and_answers(tmp_path):
    user = f"SCRAM-SHA-256=[name=bob,password={SCRAM}]"
    with Talkative(tmp_path / "data", options(), protocols=("SASL_SSL",), users=[user]) as peer:
        peer.start()
        log_in(peer, "PLAIN", "alice", PLAIN)
        log_in(peer, "SCRAM-SHA-256", "bob", SCRAM)
        for mechanism, name in (("PLAIN", "alice"), ("SCRAM-SHA-256", "bob")):
            with pytest.raises(KafkaError) as refused:
                log_in(peer, mechanism, name, WRONG)
            assert not shown(repr(refused.value) + str(refused.value))
        said = subprocess.run(
            [sys.executable, "-m", "ottla", "user", "set", "carol", "-b", peer.bootstrap],
            input=f"{LATER}\n",
            env=peer.environment(),
            text=True,
            capture_output=True,
            timeout=60,
        )
        assert said.returncode == 0, said.stderr
        log_in(peer, "SCRAM-SHA-256", "carol", LATER)
        answers = [said.stdout, said.stderr]
        with WireClient(peer.bootstrap) as wire:
            asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
            told = wire.call(
                "describe_configs", 4, resources=[asked],
                include_synonyms=True, include_documentation=True,
            )  # fmt: skip
            assert len(told["results"][0]["configs"]) > 100
            answers.append(repr(told))
            for name, value in (
                ("listener.name.sasl_ssl.plain.sasl.jaas.config", f'x required user_a="{WRONG}"'),
                ("ssl.key.password", WRONG),
                ("ssl.keystore.key", (certificates() / "locked.key").read_text()),
            ):
                config = {"name": name, "config_operation": 0, "value": value}
                told = wire.call(
                    "incremental_alter_configs", 1, validate_only=False,
                    resources=[{"resource_type": 4, "resource_name": "1", "configs": [config]}],
                )  # fmt: skip
                assert told["responses"][0]["error_code"] != 0
                answers.append(repr(told))
        assert not shown("".join(answers))
    log = peer.log_text()
    assert "DEBUG" in log
    assert not shown(log)


@pytest.mark.parametrize(
    "changed",
    [
        {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'x required user_a="{WRONG}" oh'},
        {"ssl.key.password": WRONG},
        {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nwrong-3Lk6\n-----END"},
    ],
)
def test_a_start_that_fails_shows_none(tmp_path, changed):
    peer = Talkative(tmp_path / "data", options() | changed, protocols=("SASL_SSL",))
    done = subprocess.run(
        peer.command(), env=peer.environment(), text=True, capture_output=True, timeout=60
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert not shown(done.stdout + done.stderr)
