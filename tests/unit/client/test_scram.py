"""SCRAM by the example of RFC 7677, and against a server that lies."""

import base64

import pytest

from ottla.client.wire.scram import Scram
from ottla.client.wire.security import SCRAM_SHA_256, Credentials
from ottla.errors import KafkaError

PENCIL = Credentials(SCRAM_SHA_256, "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def scram():
    return Scram(PENCIL, base64.b64decode(NONCE))


def test_the_example_of_the_rfc(scram):
    assert scram.first() == b"n,,n=user,r=" + NONCE.encode()
    assert scram.next(SERVER_FIRST) == CLIENT_FINAL
    assert scram.next(SERVER_FINAL) is None


def test_a_name_may_have_commas_and_equal_signs():
    scram = Scram(Credentials(SCRAM_SHA_256, "a,b=c", ""), b"n")
    assert scram.first().startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"e=unknown-user", "unknown-user"),
        (b"", "iterations"),
        (SERVER_FIRST.replace(b"rOpr", b"xxxx"), "belong"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "belong"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095"),
        (SERVER_FIRST.replace(b"4096", b"99999999"), "99999999"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5000), "iterations"),
        (SERVER_FIRST.replace(b"W22Z", b"!!!!"), "no SCRAM"),
        (b"\xff\x00=,,,", "iterations"),
    ],
)
def test_what_a_server_may_not_say_first(scram, answer, why):
    with pytest.raises(KafkaError, match=why):
        scram.next(answer)


@pytest.mark.parametrize("answer", [b"", b"v=", b"v=" + b"A" * 44, b"e=invalid-proof", b"x"])
def test_a_server_that_does_not_know_the_password_is_left(scram, answer):
    scram.next(SERVER_FIRST)
    with pytest.raises(KafkaError):
        scram.next(answer)
