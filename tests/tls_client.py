"""A client that speaks TLS on any net of asyncio's transports, for tests of a listener."""

import asyncio
import contextlib
import ssl

from tests.certificates import certificates


def trusting(name=None, *, version=None):
    """Return a client's context that trusts the CA, and shows the certificate ``name``."""
    context = ssl.create_default_context(cafile=certificates() / "ca.pem")
    if name is not None:
        context.load_cert_chain(certificates() / f"{name}.pem")
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class TlsClient(asyncio.Protocol):
    """A client on any net: shakes hands by itself, keeps what it receives, can stop reading."""

    def __init__(self, context, *, is_silent=False):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.is_shaken = False
        self.is_silent = is_silent
        self.received = bytearray()
        self.has_notified = False
        self.saw_end = False
        self.is_lost = False
        self.error = None
        self.refusal = None

    def connection_made(self, transport):
        self.transport = transport
        if not self.is_silent:
            self.go_on()

    def data_received(self, data):
        self.incoming.write(data)
        self.go_on()

    def go_on(self):
        try:
            if not self.is_shaken:
                self.engine.do_handshake()
                self.is_shaken = True
            while data := self.engine.read(65536):
                self.received += data
            self.has_notified = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_notified = True
        except ssl.SSLError as error:
            self.refusal = error
        self.flush()

    def flush(self):
        data = self.outgoing.read()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def send(self, *frames):
        self.engine.write(b"".join(frames))
        self.flush()

    def notify(self):
        """Say that nothing more is sent, and keep the connection."""
        with contextlib.suppress(ssl.SSLError):
            self.engine.unwrap()
        self.flush()

    def eof_received(self):
        self.saw_end = True

    def connection_lost(self, error):
        self.is_lost, self.error = True, error
