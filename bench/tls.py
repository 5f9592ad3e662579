"""What TLS costs a broker: CPU, memory, handshakes. ``python bench/tls.py [--kafka] [--rounds N]``.

With ``--unsynced`` Ottla leaves syncs to the kernel, as Kafka does: else there is one after the
other while requests come, and a request that takes longer has a larger part in them. With ``--cpu
N`` all processes share one processor: waking another one costs a virtual machine more than a small
request, and now happens, now not.

Ottla, and with ``--kafka`` Apache Kafka beside it, serve the same requests over PLAINTEXT and SSL
(TLS 1.3, a P-256 certificate made by the openssl command). The rounds of all are interleaved, and
each figure is the median of its rounds: CPU of the broker's whole process, in microseconds a
request. Requests go one at a time over one connection. Memory is the growth of the process when
many connections have been opened and each has asked something; handshakes are made one after the
other by two threads.
"""

import argparse
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.ottla_peer import OttlaPeer
from tools.peer import Peer
from tools.wire_client import WireClient, batch

COUNTS = {"1 record": 2000, "16 kB": 1500, "1 MB": 60, "fetch 1 MB": 150, "fetch 16 kB": 1500}
SIZES = {"1 record": 100, "16 kB": 16_000, "1 MB": 1_000_000}
FETCHED = {"fetch 16 kB": 16_000, "fetch 1 MB": 1_000_000}
FOR_EVER = "-1"
"""Records have a timestamp of 2023: a broker with usual retention deletes them after 30 s, and
answers fetches with an error, which is cheap."""
CONNECTIONS = 400
HANDSHAKES = 400


def make_certificate(directory: Path) -> Path:
    """Return a PEM file with key and certificate for 127.0.0.1."""
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(
        ["openssl", *command.split(), *files, "-subj", "/CN=bench"],
        cwd=directory,
        check=True,
        capture_output=True,
    )
    both = directory / "both.pem"
    both.write_text(
        (directory / "key.pem").read_text() + (directory / "certificate.pem").read_text()
    )
    return both


class Client(WireClient):
    """A connection over PLAINTEXT or, with a context, TLS."""

    def __init__(self, bootstrap: str, context: ssl.SSLContext | None) -> None:
        super().__init__(bootstrap, timeout_seconds=60)
        if context is not None:
            self.socket = context.wrap_socket(self.socket)

    def ask(self, body: bytes, bytes_min: int = 0) -> None:
        """Send one request and read its answer, which must not be smaller: an error is."""
        self.send_frame(body)
        answer = self.receive_frame()
        if len(answer) < bytes_min:
            raise AssertionError(f"{len(answer)} bytes, {bytes_min} expected: {answer[:200]!r}")


class Side:
    """One broker and one of its protocols."""

    def __init__(self, peer: Peer, protocol: str, context: ssl.SSLContext | None) -> None:
        self.peer = peer
        self.protocol = protocol
        self.name = f"{peer.name} {protocol}"
        self.where = peer.bootstrap if context is None else peer.secured[protocol]  # type: ignore[attr-defined]
        self.context = context
        self.client = Client(self.where, context)
        self.bodies: dict[str, bytes] = {}

    def prepare(self) -> None:
        """Make the topics and the requests."""
        for what, size in SIZES.items():
            topic = f"{self.protocol}-{size}".lower()
            with WireClient(self.peer.bootstrap) as wire:  # It asks leaders, without TLS.
                wire.create_topic(topic, max_message_bytes="4000000", retention_ms=FOR_EVER)
            records = batch([(bytes(range(250)) * (size // 250 + 1))[:size]])
            data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            self.bodies[what] = self.client.encode(
                "produce", 9, acks=1, timeout=10_000, topic_data=data
            )
        for what, size in FETCHED.items():
            asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size + 1000}
            self.bodies[what] = self.client.encode(
                "fetch", 12, replica_id=-1, max_wait=500, min_bytes=1, max_bytes=size + 1000,
                topics=[{"topic": f"{self.protocol}-{size}".lower(), "partitions": [asked]}],
                session_id=0, session_epoch=-1,
            )  # fmt: skip

    def round(self, what: str, count: int) -> float:
        """Return the broker's CPU in microseconds a request."""
        body, ask, bytes_min = self.bodies[what], self.client.ask, FETCHED.get(what, 0)
        before = self.peer.cpu_seconds()
        for _ in range(count):
            ask(body, bytes_min)
        return (self.peer.cpu_seconds() - before) * 1e6 / count

    def memory_kib(self) -> float:
        """Return the growth of the process, in KiB a connection that has sent 64 KiB."""
        before = self.peer.rss_bytes()
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(Client(self.where, self.context))
            for what in ("16 kB", "fetch 16 kB"):
                clients[-1].ask(self.bodies[what], FETCHED.get(what, 0))
        grown = (self.peer.rss_bytes() - before) / 1024 / CONNECTIONS
        for client in clients:
            client.close()
        return grown

    def handshakes(self) -> tuple[float, float]:
        """Return handshakes a second, and the broker's CPU in microseconds for one."""
        before, began = self.peer.cpu_seconds(), time.perf_counter()

        def shake() -> None:
            for _ in range(HANDSHAKES // 2):
                Client(self.where, self.context).close()

        threads = [threading.Thread(target=shake) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        return HANDSHAKES / took, (self.peer.cpu_seconds() - before) * 1e6 / HANDSHAKES


def median(rounds: list[float]) -> str:
    """Return the median, and the least and most."""
    return f"{statistics.median(rounds):9.0f} ({min(rounds):.0f}..{max(rounds):.0f})"


def warm_rounds(sides: list[Side], what: str, count: int, rounds: int) -> list[list[float]]:
    """Return the CPU of one kind of request in interleaved rounds, a list for each side.

    The first half is left out and warms a JVM up: its compiler is busy for thousands of requests of
    a kind, which made it look two or three times as dear as it becomes.
    """
    turns = [[side.round(what, count) for side in sides] for _ in range(rounds)]
    return [list(each) for each in zip(*turns[rounds // 2 :], strict=True)]


def compare(sides: list[Side], what: str, count: int, rounds: int) -> None:
    """Print a line for each side: CPU of one kind of request."""
    for side, took in zip(sides, warm_rounds(sides, what, count, rounds), strict=True):
        print(f"{what:12} {side.name:16} {median(took)} us CPU a request", flush=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--unsynced", action="store_true")
    parser.add_argument("--cpu", type=int)
    arguments = parser.parse_args()
    if arguments.cpu is not None:
        os.sched_setaffinity(0, {arguments.cpu})
    with ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        certificate = make_certificate(directory)
        options: Mapping[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificate,
        }
        ours = dict(options)
        if arguments.unsynced:
            ours["log.flush.interval.messages"] = 2**63 - 1
        peers: list[Peer] = [OttlaPeer(directory / "ottla", ours, protocols=("SSL",))]
        if arguments.kafka:
            from tools.kafka_peer import KafkaPeer

            peers.append(KafkaPeer(directory / "kafka", options, protocols=("SSL",)))
        context = ssl.create_default_context(cafile=directory / "certificate.pem")
        context.check_hostname = False
        sides = []
        for peer in peers:
            stack.enter_context(peer)
            peer.start()
            sides += [Side(peer, "PLAINTEXT", None), Side(peer, "SSL", context)]
        for side in sides:
            side.prepare()
        for what, count in COUNTS.items():
            compare(sides, what, count, arguments.rounds)
        for side in sides:
            print(
                f"memory       {side.name:16} {side.memory_kib():9.1f} KiB a connection", flush=True
            )
        for side in sides:
            if side.context is not None:
                side.handshakes()
                rate, cost = side.handshakes()
                print(
                    f"handshake    {side.name:16} {rate:9.0f} a second, {cost:.0f} us CPU",
                    flush=True,
                )


if __name__ == "__main__":
    main()
