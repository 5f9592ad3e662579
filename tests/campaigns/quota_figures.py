"""Are clients throttled for as long as Kafka's arithmetic says? The figures, beside a live Kafka.

    python -m tests.campaigns.quota_figures [--kafka]

Sends what 11 figures of a live Kafka 4.3 were seen with: produced and fetched bytes at 50,000 a
second, requests without an answer, partitions, connections. For each it prints the throttle time
that the arithmetic says for the moment when the request came, as far as the client knows it; what
was told; and how much later than that the connection was served. Then how long another client,
which has no quota, waits for its answers while a greedy one is throttled. Ends with 1 if a figure
of Ottla's is off by more than ``--within`` ms. ``--kafka``: a live Kafka after it, by the same
script. Needs Java and Kafka's jars for that. Some 70 s a broker, most of them waits.

A busy machine makes requests late, which is nobody's fault. So what is told is compared with what
the arithmetic says for any moment between a request and its answer, given any such moments of the
requests before it (``Histories``); and from how late a connection is served is taken off what one
without a quota had to wait meanwhile (``Beside``).
"""

import argparse
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, closing
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from ottla.quota.meter import Meter
from ottla.quota.rate import Windows
from ottla.quota.token_bucket import TokenBucket
from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

BOUND = 50_000
BATCHES = 8
BATCH_BYTES = 99_900
ELSEWHERE = "127.0.0.9"
"""An address of the loopback that has a quota for connections."""
CONNECTS_PER_SECOND = 5
PACE_SECONDS = 0.005
WATCH_SECONDS = 2.0
"""In quiet and beside a greedy client, each ``WATCHES`` times, so that both see the same load."""
WATCHES = 4
EARLY_SECONDS = 0.02
"""So much before the end of its wait a connection may be served."""
AROUND_SECONDS = 0.5
"""What others wait for so long before is what the machine does just now."""
MOMENTS_MAX, HISTORIES_MAX = 50, 20
"""How many moments of a request are looked at, and how many histories are remembered."""


class Figure(NamedTuple):
    """One throttle time, in ms."""

    what: str
    expected: float
    told: float
    off: float
    """How far it is from what the arithmetic says for any moment between send and answer."""
    late: float | None = None
    """How long after the end of its wait it was served, or before it (negative), apart from what a
    client without a quota waited meanwhile; None: not measured."""

    @property
    def worst(self):
        """The farthest that it is off."""
        return max(self.off, abs(self.late or 0))


class Histories:
    """What may have been charged when: all that agrees with what was told so far.

    A request counts at some moment between its departure and its answer. A throttle time tells
    which; of a request without one any moment is possible.
    """

    def __init__(self, begin, charge):
        """``charge(copy, now_ms)`` does to a copy of ``begin`` what a request does to a quota."""
        self._states = [begin]
        self._charge = charge

    def ask(self, sent, answered, told, *what):
        """Return (what the arithmetic says, how far ``told`` is off), and remember the request."""
        first, last = int(sent * 1000), int(answered * 1000)
        moments = range(first, last + 1, max(1, (last - first) // MOMENTS_MAX))
        found = []
        for state in self._states:
            for now_ms in {*moments, last}:
                copy = deepcopy(state)
                said = self._charge(copy, now_ms, *what)
                found.append((abs(said - told), said, copy))
        found.sort(key=lambda one: one[0])
        off, said, _ = found[0]
        fitting = [copy for one, _, copy in found if one <= off + 1]
        self._states = fitting[:: max(1, len(fitting) // HISTORIES_MAX)]
        return said, off


class Beside:
    """A connection without a quota, which asks all the time: how long does anybody wait?"""

    def __init__(self, peer):
        self._wire = WireClient(peer.bootstrap, client_id="beside")
        self._waits = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self):
        while not self._stop.is_set():
            began = time.monotonic()
            self._wire.call("api_versions", 0)
            self._waits.append((began, time.monotonic()))
            self._stop.wait(PACE_SECONDS)

    def excess(self, due, served):
        """Return ms from ``due`` to ``served`` but for the longest wait here at that time."""
        late = (served - due) * 1000
        self._stop.wait(2 * PACE_SECONDS)  # The request that is on its way counts, too.
        begin = min(due, served) - AROUND_SECONDS
        waits = [b - a for a, b in self._waits if b >= begin]
        excused = 1000 * max(waits, default=0.0)
        return max(late - excused, 0.0) if late > 0 else min(late + excused, 0.0)

    def close(self):
        self._stop.set()
        self._thread.join()
        self._wire.close()


class Limited:
    """A connection whose client id has a quota, and what the arithmetic says about it."""

    def __init__(self, peer, key, bound):
        name = f"q-{uuid.uuid4().hex[:10]}"
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": name}],
            "ops": [{"key": key, "value": float(bound), "remove": False}],
        }
        with WireClient(peer.bootstrap) as wire:
            told = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
            assert told["entries"][0]["error_code"] == 0
        time.sleep(0.3)  # Kafka's broker hears of it later than its controller.
        self.wire = WireClient(peer.bootstrap, client_id=name)
        self.name = name
        self._histories = Histories(Meter(bound, Windows()), self._charged)
        self._beside = Beside(peer)
        self._free = 0.0

    @staticmethod
    def _charged(meter, now_ms, amount, is_kept):
        """Charge, and take back what a throttled Fetch does not give."""
        said = meter.charge(amount, now_ms)
        if said and not is_kept:
            meter.note(-amount, now_ms)
        return said

    def ask(self, what, amount, frame, read, *, is_kept=True):
        """Ask; return the Figure. ``read`` returns the throttle time of an answer's frame."""
        sent = time.monotonic()
        self.wire.send_frame(frame)
        answer = self.wire.receive_frame()
        answered = time.monotonic()
        late = self._beside.excess(self._free, answered) if self._free > sent else None
        came = min(max(sent, self._free - EARLY_SECONDS), answered)
        told = read(answer)
        said, off = self._histories.ask(came, answered, told, amount, is_kept)
        self._free = answered + told / 1000
        return Figure(what, said, told, off, late)

    def excess(self, due, served):
        """Return as ``Beside.excess``."""
        return self._beside.excess(due, served)

    def close(self):
        """Close both connections."""
        self._beside.close()
        self.wire.close()


def produce_frame(wire, topic, body_bytes, acks=-1):
    """Return a Produce request of one batch whose body has exactly so many bytes."""

    def frame(size):
        part = {"index": 0, "records": batch([bytes(size)])}
        data = [{"name": topic, "partition_data": [part]}]
        return wire.encode("produce", 9, acks=acks, timeout=5000, topic_data=data)

    header = 11 + len(wire._client_id)
    size = body_bytes - (len(frame(1000)) - header - 1000) - 10
    while len(frame(size)) - header < body_bytes:
        size += 1
    return frame(size)


def produced(peer, topic):
    """The bodies of the plan: two small ones, a burst, one above the bound, and more."""
    limited = Limited(peer, "producer_byte_rate", BOUND)
    bodies = (1091, 1091, 400_094, 200_094, 1091, 1091, 200_094)
    frames = [produce_frame(limited.wire, topic, size) for size in bodies]

    def read(answer):
        return limited.wire.decode("produce", 9, answer)["throttle_time"]

    with closing(limited):
        for size, frame in zip(bodies, frames, strict=True):
            yield limited.ask(f"produce {size}", size, frame, read)


def fetch_frame(wire, topic, count, epoch=-1):
    size = count * BATCH_BYTES + 1000 * count
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    fields = {
        "replica_id": -1,
        "max_wait": 200,
        "min_bytes": 1,
        "max_bytes": size,
        "session_id": 0,
        "session_epoch": epoch,
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    return wire.encode("fetch", 12, **fields)


def answer_size(peer, topic, count):
    """Return what the answer to such a Fetch counts: its body, and its length."""
    with WireClient(peer.bootstrap) as wire:
        wire.send_frame(fetch_frame(wire, topic, count))
        return len(wire.receive_frame()) - 5 + 4


def fetched(peer, topic):
    """Two batches pass, four do not, and five do not; then two again."""
    with WireClient(peer.bootstrap) as wire:
        for _ in range(BATCHES):
            assert wire.produce(topic, batch([bytes(BATCH_BYTES)]))["error_code"] == 0
    sizes = {count: answer_size(peer, topic, count) for count in (2, 3, 4)}
    limited = Limited(peer, "consumer_byte_rate", BOUND)

    def read(answer):
        told = limited.wire.decode("fetch", 12, answer)
        assert (told["throttle_time"] > 0) == (told["responses"] == [])
        return told["throttle_time"]

    with closing(limited):
        for count in (2, 4, 4, 4, 3):
            frame = fetch_frame(limited.wire, topic, count)
            yield limited.ask(f"fetch {sizes[count]}", sizes[count], frame, read, is_kept=False)


def without_answer(peer, topic):
    """900,000 bytes with acks=0: the next request is answered 8 s later."""
    limited = Limited(peer, "producer_byte_rate", BOUND)
    with closing(limited):
        wire = limited.wire
        frame = produce_frame(wire, topic, 900_000, acks=0)
        began = time.monotonic()
        wire.send_frame(frame)
        sent = time.monotonic()
        assert wire.call("api_versions", 0)["error_code"] == 0
        ended = time.monotonic()
        expected = 900_000 / BOUND * 1000 - 10_000
        late = limited.excess(sent + expected / 1000, ended)
        early = limited.excess(began + expected / 1000, ended)
    off = max(late, -early, 0)
    yield Figure("acks=0 of 900000, then served", expected, (ended - sent) * 1000, off)


def created(peer, _):
    """One partition a second: 11 at first."""
    limited = Limited(peer, "controller_mutation_rate", 1)
    bucket = TokenBucket(1, Windows(), int(time.monotonic() * 1000))
    histories, free = Histories(bucket, _taken), 0.0
    with closing(limited):
        for version, is_strict in ((7, True),) * 4 + ((5, False),) * 3:
            topic = {"name": f"q-{uuid.uuid4().hex[:12]}", "num_partitions": 5}
            sent = time.monotonic()
            told = limited.wire.call(
                "create_topics",
                version,
                topics=[topic | {"replication_factor": 1}],
                timeout=10_000,
                validate_only=True,
            )
            answered = time.monotonic()
            throttle = told["throttle_time"]
            came = min(max(sent, free - EARLY_SECONDS), answered)
            said, off = histories.ask(came, answered, throttle, is_strict)
            code = told["topics"][0]["error_code"]
            assert code == (89 if is_strict and said else 0), (code, said)
            yield Figure(f"partitions v{version}", said, throttle, off)
            free = answered + throttle / 1000


def _taken(bucket, now_ms, is_strict):
    """Take 5 partitions, if they are given; return the wait."""
    wait = bucket.wait_ms(now_ms)
    if is_strict and wait:
        return wait
    bucket.take(5, now_ms)
    return 0 if is_strict else bucket.wait_ms(now_ms)


def connected(peer, _):
    """80 connections at 5 a second: 50 stay, the others are held for a second and closed."""
    entry = {
        "entity": [{"entity_type": "ip", "entity_name": ELSEWHERE}],
        "ops": [{"key": "connection_creation_rate", "value": 5.0, "remove": False}],
    }
    with WireClient(peer.bootstrap) as wire:
        told = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
        assert told["entries"][0]["error_code"] == 0
    time.sleep(0.3)
    where = (peer.host, peer.port)
    with ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(where, 5, source_address=(ELSEWHERE, 0)))
            for _ in range(80)
        ]
        time.sleep(2.5)
        stayed = 0
        for line in lines:
            line.setblocking(False)
            try:
                line.recv(1)
            except BlockingIOError:
                stayed += 1
            except OSError:
                pass
    expected = CONNECTS_PER_SECOND * 10
    yield Figure("connections that stay", expected, stayed, abs(stayed - expected))


def waits(wire, seconds):
    """Return how long a client without a quota waits for each answer."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        assert wire.produce("other", batch())["error_code"] == 0
        found.append(time.perf_counter() - began)
        time.sleep(PACE_SECONDS)
    return found


def beside_a_greedy_one(peer, topic):
    """Return p99 in ms: in quiet, and while another client sends more than it may, in turns."""
    quiet, loud = [], []
    limited = Limited(peer, "producer_byte_rate", BOUND)
    frame = produce_frame(limited.wire, topic, 100_000)
    limited.close()
    with WireClient(peer.bootstrap, client_id="other") as wire:
        waits(wire, WATCH_SECONDS)
        for _ in range(WATCHES):
            quiet += waits(wire, WATCH_SECONDS)
            with greedy(peer, limited.name, frame):
                loud += waits(wire, WATCH_SECONDS)
    return [p99_ms(found) for found in (quiet, loud)]


def p99_ms(seconds):
    """Return what 99 of 100 answers took at most, in ms."""
    return 1000 * statistics.quantiles(seconds, n=100)[98]


@contextlib.contextmanager
def greedy(peer, name, frame):
    """Send ``frame`` all the time, from a connection that has used up its burst."""
    stop = threading.Event()

    def send():
        with contextlib.suppress(OSError):
            while not stop.is_set():
                wire.send_frame(frame)

    wire = WireClient(peer.bootstrap, client_id=name)
    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(1)
    try:
        yield
    finally:
        stop.set()
        with contextlib.suppress(OSError):  # It may be reset by then.
            wire.socket.shutdown(socket.SHUT_RDWR)
        thread.join()
        wire.close()


def measured(peer):
    """Return the figures of one broker, and p99 in quiet and beside a greedy client."""
    topics = {name: f"figures-{name}" for name in ("warm", "produced", "fetched", "other")}
    with WireClient(peer.bootstrap) as wire:
        for topic in (*topics.values(), "other"):
            wire.create_topic(topic)
        for _ in range(200):  # A JVM's first requests take long.
            wire.produce(topics["warm"], batch([bytes(1000)]))
            wire.fetch(topics["warm"], 0)
    figures = [
        figure
        for make, topic in (
            (produced, topics["produced"]),
            (fetched, topics["fetched"]),
            (without_answer, topics["other"]),
            (created, ""),
            (connected, ""),
        )
        for figure in make(peer, topic)
    ]
    return figures, beside_a_greedy_one(peer, topics["other"])


def main():
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kafka", action="store_true", help="a live Kafka after it")
    parser.add_argument("--within", type=float, default=20, help="ms that a figure may be off")
    options = parser.parse_args()
    kinds = [OttlaPeer]
    if options.kafka:
        from tools.kafka_peer import KafkaPeer

        kinds.append(KafkaPeer)
    found = {}
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as directory:
        for kind in kinds:
            with kind(Path(directory) / kind.name) as peer:
                peer.start()
                found[kind.name] = measured(peer)
    for name, (figures, (quiet, loud)) in found.items():
        print(f"{name + ': ms':32}{'arithmetic':>11}{'told':>8}{'off':>6}{'late':>7}")
        for figure in figures:
            late = "" if figure.late is None else f"{figure.late:.1f}"
            print(
                f"{figure.what:32}{figure.expected:11.0f}{figure.told:8.0f}{figure.off:6.0f}{late:>7}"
            )
        print(f"p99 of another client: quiet {quiet:.2f}, beside {loud:.2f}: {loud / quiet:.2f}")
    worst = max(figure.worst for figure in found["ottla"][0])
    return 0 if worst <= options.within else 1


if __name__ == "__main__":
    sys.exit(main())
