"""What ``ottla serve --secure`` makes of a configuration and of a directory."""

import json
import os
import shutil

import pytest

from ottla.cli.client_files import Access, client_files
from ottla.cli.failure import Failure
from ottla.cli.secure import prepare
from ottla.cli.serve import read_config
from ottla.client.wire.security import Credentials, read_security
from ottla.config import authorization
from ottla.config import broker as options
from ottla.config.files import listeners_of, read_properties
from tests.certificates import certificates, make


@pytest.fixture
def directory(tmp_path):
    certificates()  # Skips where there is no program that makes them.
    return tmp_path / "secure"


def config_of(directory, *definitions, **more):
    return read_config(None, list(definitions), secure=str(directory), **more)


def prepared(directory, *definitions, **more):
    return prepare(config_of(directory, *definitions, **more), str(directory))


def test_the_option_alone_means_tls_users_and_acls(directory):
    config = config_of(directory, port=0)
    (served,) = listeners_of(config)
    assert (served.protocol, served.endpoint.port) == ("SASL_SSL", 0)
    assert served.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert served.tls.keystore_file == str(directory / "server.pem")
    assert authorization.has_authorizer(config)
    assert str(config[authorization.SUPER_USERS]) == "User:admin"


def test_what_is_given_stays(directory):
    config = config_of(
        directory,
        "super.users=User:root",
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
    )
    assert [each.protocol for each in listeners_of(config)] == ["PLAINTEXT", "SASL_SSL"]
    assert str(config[authorization.SUPER_USERS]) == "User:root;User:admin"
    assert prepare(config, str(directory)).listener == "SASL_SSL"
    without = config_of(directory, "authorizer.class.name=")
    assert not authorization.has_authorizer(without)


@pytest.mark.parametrize(
    ("definition", "what"),
    [
        ("ssl.keystore.location=server.pem", "--secure and ssl.keystore.location exclude each"),
        ("listeners=PLAINTEXT://127.0.0.1:0", "no listener has the protocol SSL or SASL_SSL"),
        ("listeners=SSL://127.0.0.1:0", "no listener has SASL_SSL with SCRAM-SHA-256"),
        ("sasl.enabled.mechanisms=SCRAM-SHA-512", "no listener has SASL_SSL with SCRAM-SHA-256"),
    ],
)
def test_what_cannot_be_had_together_is_refused_before_anything_is_made(
    directory, definition, what
):
    with pytest.raises(Failure, match=what):
        prepared(directory, definition)
    assert not directory.exists()


def test_a_second_start_uses_what_the_first_has_made(directory):
    first = prepared(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    second = prepared(directory)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.user == second.user
    assert before == {path.name: path.read_bytes() for path in directory.iterdir()}
    assert sorted(before) == ["ca.key", "ca.pem", "password", "server.pem"]
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert first.user.password not in repr(first)


def test_keys_are_new_in_a_directory_with_other_files(directory):
    directory.mkdir(mode=0o700)
    (directory / "notes.txt").write_text("mine")
    assert prepared(directory).is_new
    assert not prepared(directory).is_new
    assert (directory / "notes.txt").read_text() == "mine"


def test_a_file_where_the_directory_should_be_is_told_with_the_way_out(directory):
    directory.write_text("mine")
    for path in (directory, directory / "below"):
        with pytest.raises(Failure) as told:
            prepared(path)
        assert "name a directory" in told.value.fix
    assert directory.read_text() == "mine"


def test_a_start_that_was_cut_off_is_gone_on_with(directory):
    prepared(directory)
    kept = (directory / "ca.key").read_bytes()
    (directory / "ca.pem").unlink()
    (directory / "server.pem").unlink()
    prepared(directory)
    assert (directory / "ca.key").read_bytes() == kept


def put(directory, **files):
    directory.mkdir(mode=0o700, exist_ok=True)
    for name, source in files.items():
        shutil.copy(certificates() / source, directory / name.replace("_", "."))
        os.chmod(directory / name.replace("_", "."), 0o600)


def test_certificates_from_elsewhere_are_used(directory):
    put(directory, server_pem="server.pem", ca_pem="ca.pem")
    assert not prepared(directory).is_new
    assert not (directory / "ca.key").exists()


@pytest.mark.parametrize(
    ("server", "authority", "why"),
    [
        ("expired.pem", "ca.pem", "certificate has expired"),
        ("server.pem", "other-ca.pem", "unable to get local issuer certificate"),
        ("ca.pem", "ca.pem", "has no private key"),
    ],
)
def test_a_certificate_that_clients_would_refuse_is_told_with_the_way_out(
    directory, server, authority, why
):
    put(directory, server_pem=server, ca_pem=authority)
    with pytest.raises(Failure, match=r"cannot use .*server\.pem") as error:
        prepared(directory)
    assert why in error.value.why
    assert "put a matching server.pem and ca.pem there" in error.value.fix


def test_an_expired_certificate_of_our_own_is_made_anew_when_it_is_removed(directory):
    prepared(directory)
    made = directory.parent / "made"
    made.mkdir()
    for name in ("ca.key", "ca.pem"):
        shutil.copy(directory / name, made / name)
    make(made, "expired", "-days", "-1")
    (directory / "server.pem").write_text((made / "expired.pem").read_text())
    with pytest.raises(Failure, match="cannot use") as error:
        prepared(directory)
    assert error.value.why.endswith("certificate has expired")
    assert error.value.fix.startswith(f"rm {directory / 'server.pem'} ")
    trusted = (directory / "ca.pem").read_bytes()
    (directory / "server.pem").unlink()
    prepared(directory)
    assert (directory / "ca.pem").read_bytes() == trusted


def test_the_end_of_a_certificate_is_told_in_time(directory, capsys):
    prepared(directory)
    assert "ends on" not in capsys.readouterr().err
    made = directory.parent / "made"
    made.mkdir()
    for name in ("ca.key", "ca.pem"):
        shutil.copy(directory / name, made / name)
    make(made, "short", "-days", "7")
    (directory / "server.pem").write_text((made / "short.pem").read_text())
    prepared(directory)
    assert f"note: the certificate {directory / 'server.pem'} ends on" in capsys.readouterr().err


def test_clients_are_not_told_a_name_that_the_certificate_does_not_have(directory):
    prepared(directory)
    with pytest.raises(Failure, match="cannot use") as error:
        prepared(directory, "advertised.listeners=SASL_SSL://kafka.example.org:9092")
    assert "clients are told kafka.example.org, and it is for localhost" in error.value.why
    (directory / "server.pem").unlink()
    secured = prepared(directory, "advertised.listeners=SASL_SSL://kafka.example.org:9092")
    assert secured.told == ("kafka.example.org", 9092)


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        (("ca.key", "server.pem"), "there is no ca.key to sign it"),
        (("ca.pem",), "it is missing, and it signed server.pem"),
    ],
)
def test_what_is_missing_and_cannot_be_made_is_told(directory, missing, why):
    prepared(directory)
    for name in missing:
        (directory / name).unlink()
    with pytest.raises(Failure, match="cannot use") as error:
        prepared(directory)
    assert why in error.value.why


def test_a_key_that_others_can_read_is_refused(directory):
    prepared(directory)
    (directory / "server.pem").chmod(0o644)
    with pytest.raises(Failure, match="is not private") as error:
        prepared(directory)
    assert error.value.fix == f"chmod 600 {directory / 'server.pem'}"


def test_an_empty_password_lets_nobody_in(directory):
    prepared(directory)
    (directory / "password").write_text("\n")
    with pytest.raises(Failure, match=r"cannot use .*password"):
        prepared(directory)


def test_without_the_program_the_ways_out_are_told(directory, monkeypatch):
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(Failure, match="there is no openssl") as error:
        prepared(directory)
    assert "install openssl" in error.value.fix
    assert "ca.pem" in error.value.fix


def test_clients_settings_are_for_the_address_that_is_bound(directory):
    secured = prepared(directory, listen="0.0.0.0")
    secured.write_client_files(("0.0.0.0", 31110))
    texts = read_properties((directory / "java.properties").read_text())
    assert texts.pop("bootstrap.servers") == "127.0.0.1:31110"
    security = read_security(texts)
    assert security.sasl == Credentials("SCRAM-SHA-256", "admin", secured.user.password)
    assert security.tls.ca_file == str(directory / "ca.pem")
    secured.write_client_files(("0.0.0.0", 31111))
    assert "127.0.0.1:31111" in (directory / "librdkafka.conf").read_text()
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_every_form_says_the_same():
    access = Access("[::1]:9092", "admin", "pass-word_1", "/with space/ca.pem")
    files = client_files(access)
    read = [
        read_properties(files["java.properties"]),
        read_properties(files["librdkafka.conf"]),
        json.loads(files["librdkafka.json"]),
        {key.removeprefix("kafka."): text for key, text in json.loads(files["spark.json"]).items()},
    ]
    assert {texts.pop("bootstrap.servers") for texts in read} == {"[::1]:9092"}
    assert len({read_security(texts) for texts in read}) == 1
    python = json.loads(files["kafka-python.json"])
    assert python.pop("ssl_cafile") == "/with space/ca.pem"
    assert python == json.loads(files["aiokafka.json"])
    assert "pass-word_1" not in repr(access)
    assert "[::1]:9092" in files["README.md"]
    assert "pass-word_1" not in files["README.md"]


def test_the_option_has_no_part_in_other_starts():
    assert options.LISTENERS.default == read_config(None, [])[options.LISTENERS]
