"""An etcd of Debian's package, started by a test on free ports of 127.0.0.1.

``--election-timeout`` is short, so that one starts in a few hundredths of a second.
"""

import asyncio
import http.client
import shutil
import signal
import socket
import subprocess
import time

import pytest

from ottla.env.clock import SystemClock
from ottla.metadata.etcd.members import Members
from ottla.metadata.etcd.store import EtcdStore

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None, reason="needs etcd (apt-get install etcd-server)"
)
START_SECONDS = 30


def free_ports(count):
    """Return ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Etcd:
    """An etcd of one member, in ``directory``; with a ``certificate`` (key and file) by TLS."""

    def __init__(self, directory, *options, certificate=None):
        self._directory = directory
        self._options = options
        self._scheme = "http"
        if certificate is not None:
            key, file = certificate
            self._scheme = "https"
            self._options += (f"--cert-file={file}", f"--key-file={key}")
        self._ports = None
        self._process = None

    @property
    def endpoint(self):
        return f"127.0.0.1:{self._ports[0]}"

    def address(self, name):
        scheme = "etcd" if self._scheme == "http" else "etcds"
        return f"{scheme}://{self.endpoint}/{name}"

    def start(self):
        """Start it, at the ports that it had before if there were any."""
        for _ in range(5):  # Somebody may take a free port before etcd does.
            ports = self._ports or free_ports(3)
            if self._try(ports):
                self._ports = ports
                return self
        raise AssertionError(f"etcd does not start: {self._log.read_text()[-2000:]}")

    def _try(self, ports):
        client = f"{self._scheme}://127.0.0.1:{ports[0]}"
        peer, health = (f"http://127.0.0.1:{port}" for port in ports[1:])
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "etcd",
                    f"--data-dir={self._directory / 'data'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                    f"--listen-metrics-urls={health}",
                    "--heartbeat-interval=50",
                    "--election-timeout=500",
                    "--logger=zap",
                    "--log-level=warn",
                    *self._options,
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            if self._is_healthy(ports[2]):
                return True
            time.sleep(0.01)
        self.kill()
        return False

    @staticmethod
    def _is_healthy(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/health")
            return b"true" in connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()

    @property
    def _log(self):
        return self._directory / "log"

    def kill(self):
        """End it at once. Harmless when it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def keep(self, name):
        """Copy its data as it is, under a name. It must not run."""
        shutil.copytree(self._directory / "data", self._directory / name)

    def go_back(self, name=None):
        """Put a copy in the place of its data; without a name: nothing. It must not run."""
        shutil.rmtree(self._directory / "data")
        if name is not None:
            shutil.copytree(self._directory / name, self._directory / "data")


def open_store(etcd, clock=None):
    """Return a store in ``etcd``; call on a loop."""
    return EtcdStore(Members([etcd.endpoint]), clock or SystemClock())


async def until(condition, seconds=30):
    """Wait until the awaitable that ``condition`` returns is true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - etcd is another process
            await asyncio.sleep(0.01)
