"""Requests by URL: their answers, and their bounds of time and size, whatever the server does."""

import socket
import threading
import time

import pytest

from ottla.env.tls import TlsFiles
from ottla.env.web import WebFailed, fetch
from tests.certificates import certificates


class Server:
    """Accepts one connection, reads the request's head and says what it is told to."""

    def __init__(self, *pieces, context=None, holds=False):
        self.pieces, self.context, self.holds = pieces, context, holds
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.over = threading.Event()
        self.head = b""
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        connected, _ = self.listening.accept()
        try:
            if self.context is not None:
                connected = self.context.wrap_socket(connected, server_side=True)
            while b"\r\n\r\n" not in self.head:
                received = connected.recv(65_536)
                if not received:
                    return
                self.head += received
            for piece in self.pieces:
                connected.sendall(piece)
                if self.over.wait(0.02 if len(self.pieces) > 2 else 0):
                    return
            if self.holds:
                self.over.wait()
        except OSError:
            pass
        finally:
            connected.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.listening.close()
        self.thread.join()

    def ask(self, *, seconds=20, bytes_max=1000, scheme="http", **more):
        url = f"{scheme}://127.0.0.1:{self.port}/path?a=b"
        return fetch(url, seconds=seconds, bytes_max=bytes_max, **more)


def answer(body, status="200 OK", more=""):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n{body}".encode()


def test_an_answer_comes_back():
    with Server(answer("hello")) as server:
        assert server.ask() == b"hello"
    assert server.head.startswith(b"GET /path?a=b HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in server.head


def test_a_body_is_posted():
    with Server(answer("hello")) as server:
        assert server.ask(body=b"x=y", headers={"Authorization": "Basic eA=="}) == b"hello"
    assert server.head.startswith(b"POST ")
    assert b"Authorization: Basic eA==" in server.head


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer("x" * 1001), "more than 1000 bytes"),
        (answer("", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "answers 302"),
        (answer("<html>", "500 Oops"), "answers 500"),
        (b"no http\r\n\r\n", "no HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n", "no HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "the answer breaks off"),
        (b"", "no HTTP answer"),
    ],
)
def test_what_is_no_good_answer_is_named(said, why):
    with Server(said) as server, pytest.raises(WebFailed, match=why):
        server.ask()


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "said",
    [
        HEAD + (b"x: " + b"y" * 60_000 + b"\r\n") * 2,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 30_000,
    ],
)
def test_lines_without_an_end_are_not_read(said):
    """A hundred headers of 64 KiB kept 80 MiB of the broker's memory."""
    with Server(said) as server, pytest.raises(WebFailed, match="LinesTooLong"):
        server.ask(bytes_max=1 << 20)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTTP/1.1 200 OK\r\n", *([b"a"] * 10_000)],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", *([b"a"] * 10_000)],
    ],
)
def test_a_server_that_takes_its_time_is_cut_off(pieces):
    with Server(*pieces, holds=True) as server:
        began = time.monotonic()
        with pytest.raises(WebFailed, match=r"no answer within 0\.2 s"):
            server.ask(seconds=0.2)
        assert 0.2 <= time.monotonic() - began < 10


def test_a_handshake_that_does_not_end_is_cut_off():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(WebFailed, match="no answer within"):
            fetch(url, seconds=0.2, bytes_max=1)


def test_nobody_there_is_told():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(WebFailed, match=r"127\.0\.0\.1: Connection refused"):
        fetch(f"http://127.0.0.1:{port}/", seconds=5, bytes_max=1)


def test_tls_is_checked():
    import ssl

    made = certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "server.pem")
    with Server(answer("hello"), context=context) as server:
        assert server.ask(scheme="https", tls=TlsFiles(ca_file=str(made / "ca.pem"))) == b"hello"
    with (
        Server(answer("hello"), context=context) as server,
        pytest.raises(WebFailed, match="its certificate was refused"),
    ):
        server.ask(scheme="https")


def test_a_file_is_read_within_the_same_bound(tmp_path):
    path = tmp_path / "a b"
    path.write_bytes(b"12345")
    assert fetch(path.as_uri(), seconds=1, bytes_max=5) == b"12345"
    with pytest.raises(WebFailed, match="more than 4 bytes"):
        fetch(path.as_uri(), seconds=1, bytes_max=4)
    with pytest.raises(WebFailed, match="No such file"):
        fetch((tmp_path / "none").as_uri(), seconds=1, bytes_max=4)
