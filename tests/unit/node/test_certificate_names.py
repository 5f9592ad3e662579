"""Who a client is by its certificate, when its name was made to keep the rules busy."""

import ssl
import time

import pytest

from ottla.config.mapping_rules import read_mapping_rules
from ottla.errors import CloseConnection
from ottla.node import tls
from tests.certificates import certificates

pytestmark = pytest.mark.timeout(60)
OF_KAFKAS_PAGES = r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/,DEFAULT"


class Shown:
    """An entrance to which somebody has shown a certificate."""

    def __init__(self, certificate):
        self.certificate = certificate


@pytest.fixture
def certificate():
    return ssl.PEM_cert_to_DER_cert((certificates() / "client.crt").read_text())


def test_a_name_of_many_parts_does_not_hold_the_loop_for_half_a_minute(monkeypatch, certificate):
    """The rule is the one in Kafka's pages. Who comes again with the name is refused at once."""
    name = "CN=" + "".join(f",{part}=" * 70 for part in ("OU", "O", "L", "ST"))
    monkeypatch.setattr(tls, "subject_of", lambda _: name[:1024])
    names = tls.CertificateNames(read_mapping_rules(OF_KAFKAS_PAGES))
    began = time.process_time()
    for _ in range(1000):
        with pytest.raises(CloseConnection, match="takes the rules too long"):
            names.principal_of(Shown(certificate))
    assert time.process_time() - began < 5


def test_slow_names_are_forgotten_and_honest_ones_served(monkeypatch, certificate):
    monkeypatch.setattr(tls, "SLOW_NAMES_MAX", 2)
    monkeypatch.setattr(tls, "NAME_SECONDS_MAX", 0.01)
    names = tls.CertificateNames(read_mapping_rules("RULE:(a+)+b/x/,DEFAULT"))
    for length in range(60, 64):
        monkeypatch.setattr(tls, "subject_of", lambda _, length=length: "a" * length)
        with pytest.raises(CloseConnection):
            names.principal_of(Shown(certificate))
    assert len(names._slow) == 2
    monkeypatch.undo()
    assert names.principal_of(Shown(certificate)).name == "CN=client,O=Ottla\\, Test,C=AT"
    assert names.principal_of(Shown(None)).name == "ANONYMOUS"
