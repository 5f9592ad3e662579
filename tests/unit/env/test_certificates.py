"""Certificates that the program makes are ones that clients take; those they refuse are told."""

import ssl

import pytest

from ottla.env.certificates import (
    NoProgram,
    NotMade,
    Refused,
    covers,
    examine,
    make_authority,
    make_key,
    make_server,
    names_of_this_machine,
)
from tests.certificates import certificates

NAMES = ("localhost", "127.0.0.1", "::1", "kafka.example.org")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    certificates()  # Skips where there is no program.
    directory = tmp_path_factory.mktemp("made")
    authority_key, key = make_key(), make_key()
    authority = make_authority(authority_key, "an authority")
    certificate = make_server(
        key,
        names=NAMES,
        authority=authority,
        authority_key=authority_key,
        serial=1,
        name="broker",
    )
    (directory / "ca.pem").write_text(authority)
    (directory / "server.pem").write_text(key + certificate)
    return directory


def test_a_client_takes_what_is_made_and_learns_for_whom_it_is(made):
    found = examine(str(made / "server.pem"), str(made / "ca.pem"))
    assert set(found.names) == {"localhost", "127.0.0.1", "0:0:0:0:0:0:0:1", "kafka.example.org"}
    assert all(covers(found.names, name) for name in NAMES)
    assert ssl.cert_time_to_seconds(found.ends) == found.ends_at


def test_the_strictest_rules_of_the_library_are_met(made):
    """Python 3.13 asks for them by default."""
    context = ssl.create_default_context(cafile=made / "ca.pem")
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(made / "server.pem")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    broker = shown.wrap_bio(there, back, server_side=True)
    client = context.wrap_bio(back, there, server_hostname="kafka.example.org")
    for _ in range(4):
        for side in (client, broker):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()["subject"]


@pytest.mark.parametrize(
    ("server", "authority", "why"),
    [
        ("expired.pem", "ca.pem", "certificate has expired"),
        ("server.pem", "other-ca.pem", "unable to get local issuer certificate"),
    ],
)
def test_what_clients_would_refuse_is_refused_for_their_reason(server, authority, why):
    directory = certificates()
    with pytest.raises(Refused, match=why):
        examine(str(directory / server), str(directory / authority))


def test_a_machine_without_the_program_is_told_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoProgram):
        make_key()


def test_a_program_that_fails_is_quoted(monkeypatch, tmp_path):
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho the reason >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(NotMade, match="openssl genpkey: the reason"):
        make_key()


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("localhost", True),
        ("LocalHost.", True),
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("a.example.org", True),
        ("a.b.example.org", False),
        ("example.org", False),
        ("*.example.org", True),
        ("org", False),
    ],
)
def test_names_are_judged_as_clients_judge_them(host, is_covered):
    names = ("localhost", "127.0.0.1", "0:0:0:0:0:0:0:1", "*.example.org")
    assert covers(names, host) is is_covered


def test_this_machine_is_known_by_the_loopback_at_least():
    assert names_of_this_machine()[:3] == ("localhost", "127.0.0.1", "::1")
