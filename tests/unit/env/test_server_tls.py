"""The certificates of a listener: what can be read, what is refused, and that nothing is shown."""

import os
import ssl
import subprocess
import sys

import pytest

from ottla.env.server_tls import STORE_BYTES_MAX, ServerTls, ServerTlsFiles, ServerTlsUnusable
from tests.certificates import PASSWORD, certificates


@pytest.fixture
def given():
    directory = certificates()

    def text(name):
        return (directory / name).read_text()

    return directory, text


def test_files_texts_and_encrypted_keys_can_be_used(given):
    directory, text = given
    for files in (
        ServerTlsFiles(keystore_file=str(directory / "server.pem")),
        ServerTlsFiles(chain_text=text("server.crt"), key_text=text("server.key")),
        ServerTlsFiles(
            chain_text=text("server.crt"), key_text=text("locked.key"), key_password=PASSWORD
        ),
        ServerTlsFiles(
            keystore_file=str(directory / "server.pem"),
            trust_text="words, ö\n" + text("ca.pem") + "between\n" + text("other-ca.pem"),
            client_auth="required",
        ),
    ):
        assert ServerTls.load(files).open() is not None


def test_a_large_store_of_trusted_certificates_does_not_hold_the_loop(given, monkeypatch):
    """The library lets other threads work while it reads a file, and not while it reads a text.

    576 certificates (less than 1 MiB) kept the loop from everything for 100 ms.
    """
    directory, text = given
    ways, load = [], ssl.SSLContext.load_verify_locations

    def watched(self, **way):
        ways.extend(way)
        load(self, **way)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", watched)
    keystore = str(directory / "server.pem")
    ServerTls.load(ServerTlsFiles(keystore_file=keystore, trust_text=text("ca.pem") * 500))
    assert ways == ["cafile"]


def test_no_descriptor_stays_open(given):
    directory, _ = given
    before = os.listdir("/proc/self/fd")
    trusting = {"trust_file": str(directory / "ca.pem")}
    ServerTls.load(ServerTlsFiles(keystore_file=str(directory / "server.pem"), **trusting))
    with pytest.raises(ServerTlsUnusable):
        ServerTls.load(ServerTlsFiles(keystore_file=str(directory / "ca.pem")))
    assert os.listdir("/proc/self/fd") == before


def test_what_cannot_be_used_is_refused_and_no_secret_is_shown(given, tmp_path):
    directory, text = given
    stores = {
        "jks": b"\xfe\xed\xfe\xed" + bytes(20),
        "p12": b"\x30\x82" + bytes(20),
        "empty": b"",
        "large": b"x" * (STORE_BYTES_MAX + 1),
        "torn": text("server.pem")[:300].encode(),
        "odd": text("ca.pem").encode().replace(b"\nMII", b"\nM\xff\x00"),
        "broken": text("server.crt").replace("M", "@").encode() + text("server.key").encode(),
    }
    for name, content in stores.items():
        (tmp_path / name).write_bytes(content)
    mixed = {"chain_text": text("server.crt")}
    for files, why in (
        ({"keystore_file": str(tmp_path / "nothing")}, "No such file"),
        ({"keystore_file": str(tmp_path)}, "Is a directory"),
        ({"keystore_file": str(tmp_path / "jks")}, "keytool -importkeystore"),
        ({"keystore_file": str(tmp_path / "p12")}, "'openssl pkcs12 -in STORE.p12 -nodes"),
        ({"keystore_file": str(tmp_path / "empty")}, "has no certificate"),
        ({"keystore_file": str(tmp_path / "large")}, "is larger than"),
        ({"keystore_file": str(tmp_path / "torn")}, "cannot use the certificate or its key"),
        ({"keystore_file": str(tmp_path / "broken")}, "cannot use the certificate or its key"),
        ({"keystore_file": str(directory / "server.crt")}, "has no private key"),
        ({**mixed, "key_text": text("client.key")}, "the key is not that of the certificate"),
        ({**mixed, "key_text": text("locked.key")}, "cannot use the certificate or its key"),
        (
            {**mixed, "key_text": text("locked.key"), "key_password": "a wrong secret"},
            "ssl.key.password does not open the key",
        ),
        (
            {**mixed, "key_text": text("server.key"), "trust_file": str(tmp_path / "jks")},
            "ssl.truststore.location",
        ),
        (
            {**mixed, "key_text": text("server.key"), "trust_file": str(tmp_path / "odd")},
            "cannot use the trusted certificates in ",
        ),
        (
            {**mixed, "key_text": text("server.key"), "trust_text": text("server.key")},
            "ssl.truststore.certificates has no certificate",
        ),
    ):
        made = ServerTlsFiles(**files)
        with pytest.raises(ServerTlsUnusable) as refused:
            ServerTls.load(made)
        assert why in str(refused.value), files
        told = str(refused.value) + repr(refused.value) + repr(made)
        assert "a wrong secret" not in told
        assert "BEGIN PRIVATE KEY-----\n" not in told
        assert refused.value.__cause__ is None or "secret" not in repr(refused.value.__cause__)


def test_a_broker_without_tls_loads_nothing_of_it():
    story = (
        "import asyncio, sys\n"
        "from ottla.broker import Broker\n"
        "from ottla.config.files import broker_config\n"
        "async def main():\n"
        "    config = broker_config({'listeners': 'PLAINTEXT://127.0.0.1:0'})\n"
        "    broker = Broker(config, memory=True)\n"
        "    await broker.start()\n"
        "    await broker.stop()\n"
        "asyncio.run(main())\n"
        "names = ['ottla.network.tls', 'ottla.network.handshakes', 'ottla.node.tls',\n"
        "    'ottla.env.server_tls', 'ottla.config.mapping_rules',\n"
        "    'ottla.security.distinguished_name']\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", story], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
