"""Who publishes the keys of tokens does it badly, or on purpose: logins by known keys go on.

The broker asks a hostile key endpoint all the time. Whatever comes, or does not: who has a token of
a known key is let in at once, another's token is not, the broker's memory stays, its log has no
traceback, and when the issuer is itself again, with other keys, these hold.
"""

import base64
import contextlib
import gzip
import json
import socket
import struct
import threading
import time
import uuid

import pytest

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.settings import read_settings
from ottla.errors import KafkaError
from tests.bearer_tokens import AUDIENCE, ISSUER, Issuer
from tools.ottla_peer import OttlaPeer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MIB = 1 << 20
ASKED_MIN = 4
"""So often the hostile answer is asked for at least, unless it hangs."""
LOGINS_MIN = 20
LOGIN_SECONDS = 8.0
"""Longer than a login at a busy machine, shorter than the broker's patience with an endpoint."""
GROWN_MAX = 32 * MIB


class Endpoint:
    """A key endpoint that does what a test says."""

    def __init__(self):
        self.issuer, self.stranger = Issuer(), Issuer(kid="strange")
        self.attack = None
        self.asked = 0
        self.has_ended = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/keys"
        self._lines, self._threads = [], []

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self.has_ended.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._server.accept()
                self._lines.append(line)
                self._start(self._serve, line)

    def _serve(self, line):
        with line, contextlib.suppress(OSError):
            asked, attack = line.recv(65536), self.attack
            self.asked += 1
            if asked.startswith(b"GET /elsewhere"):
                line.sendall(answer(self.stranger.key_set().encode()))
            elif attack is None:
                line.sendall(answer(self.issuer.key_set().encode()))
            else:
                attack(self, line)


def answer(body, status="200 OK", *headers):
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def nothing(endpoint, _):
    endpoint.has_ended.wait()


def a_byte_now_and_then(endpoint, line):
    for byte in answer(endpoint.issuer.key_set().encode()):
        line.sendall(bytes([byte]))
        if endpoint.has_ended.wait(0.2):
            return


def no_end(_, line):
    line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        line.sendall(b" " * 65536)


def no_end_of_headers(_, line):
    line.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        line.sendall(b"x: " + b"y" * 60_000 + b"\r\n")


def no_end_of_answers_before_it(_, line):
    while True:
        line.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def said(body, status="200 OK", *headers):
    def attack(_, line):
        line.sendall(answer(body, status, *headers))

    return attack


def elsewhere(endpoint, line):
    where = endpoint.url.replace("/keys", "/elsewhere")
    line.sendall(answer(b"", "302 Found", f"Location: {where}"))


def a_reset(_, line):
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half(endpoint, line):
    line.sendall(answer(endpoint.stranger.key_set().encode())[:-20])


def packed(endpoint, line):
    body = gzip.compress(endpoint.stranger.key_set().encode())
    line.sendall(answer(body, "200 OK", "Content-Encoding: gzip"))


def strange_keys_in_an_error(endpoint, line):
    line.sendall(answer(endpoint.stranger.key_set().encode(), "500 Oops"))


def huge_numbers():
    number = base64.urlsafe_b64encode(b"\xff" * 7000).decode()
    key = {"kty": "RSA", "n": number, "e": number}
    return json.dumps({"keys": [{**key, "kid": str(each)} for each in range(13)]}).encode()


HANGING = {
    "nothing": nothing,
    "a byte now and then": a_byte_now_and_then,
    "answers before it": no_end_of_answers_before_it,
}
ATTACKS = {
    **HANGING,
    "no end": no_end,
    "no end of headers": no_end_of_headers,
    "elsewhere": elsewhere,
    "a reset": a_reset,
    "half": half,
    "packed": packed,
    "an error with keys": strange_keys_in_an_error,
    "an error": said(b"", "503 Away"),
    "no content": said(b"", "204 No Content"),
    "a page": said(b"<html>log in here</html>", "200 OK", "Content-Type: text/html"),
    "no HTTP": lambda _, line: line.sendall(b"\0\xff" * 1000),
    "a negative length": lambda _, line: line.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"
    ),
    "a chunk of all": lambda _, line: line.sendall(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}"
    ),
    "no keys": said(b'{"keys": []}'),
    "many keys": said(b'{"keys":[' + b",".join([b"{}"] * 80_000) + b"]}"),
    "deep": said(b"[" * 250_000),
    "huge numbers": said(huge_numbers()),
    "a long number": said(b'{"keys":' + b"9" * 250_000 + b"}"),
}


def options_with(endpoint):
    """Return the options of a broker that asks ``endpoint`` for keys, and does so all the time."""
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": endpoint.url,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": 50,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": 50,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 100,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def broker(endpoint, tmp_path_factory):
    data = tmp_path_factory.mktemp("hostile") / "data"
    with OttlaPeer(data, options_with(endpoint), protocols=("SASL_PLAINTEXT",)) as peer:
        peer.start()
        yield peer
        log = peer.log_text()
    assert "Traceback" not in log, log[-4000:]


def log_in(broker, token, tmp_path):
    """Return whether the token lets in. A file is read once: its token is good for a while."""
    file = tmp_path / uuid.uuid4().hex
    file.write_text(token)
    settings = {
        "bootstrap.servers": broker.secured["SASL_PLAINTEXT"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    try:
        with BlockingClient(read_settings(settings)) as client:
            client.refresh([])
    except KafkaError:
        return False
    return True


@pytest.mark.parametrize("attack", ATTACKS)
def test_known_keys_let_in_and_no_others(broker, endpoint, tmp_path, attack):
    before = broker.rss_bytes()
    known = endpoint.issuer.token()
    endpoint.attack = ATTACKS[attack]
    try:
        enough = endpoint.asked + (1 if attack in HANGING else ASKED_MIN)
        logins = 0
        while logins < LOGINS_MIN or endpoint.asked < enough:
            began = time.monotonic()
            assert log_in(broker, known, tmp_path)
            assert time.monotonic() - began < LOGIN_SECONDS
            assert not log_in(broker, endpoint.stranger.token(), tmp_path)
            logins += 1
    finally:
        endpoint.issuer.rotate(f"after {attack}", "ES256", keep=False)
        endpoint.attack = None
    while not log_in(broker, endpoint.issuer.token(), tmp_path):
        pass
    assert not log_in(broker, known, tmp_path), "its key was withdrawn"
    assert broker.rss_bytes() - before < GROWN_MAX
