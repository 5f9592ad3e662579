"""Well-formed requests of every API and version, with values of all kinds: answered, or closed.

Each connection says what comes to its mind, from small pools of names, so that requests meet each
other's topics, groups and transactions. Nobody is left without an answer, nothing fails
unexpectedly, and an honest client is served throughout.
"""

import random
import socket
import struct
import threading
import time

import pytest

from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Wire
from ottla.protocol.header import encode_request_header
from tools.wire_client import WireClient, batch

SECONDS = 6
ANSWER_SECONDS = 30
NAMES = (
    "t",
    "u",
    "g",
    "h",
    "",
    "\0",
    "é" * 60,
    "x" * 300,
    "range",
    "consumer",
    "retention.ms",
    "1",
)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -2, 100, 32767, -(2**31), 2**31 - 1, 2**63 - 1, 255)
BITS = {Wire.INT8: 8, Wire.INT16: 16, Wire.INT32: 32, Wire.INT64: 64}


class Speaker:
    """Makes requests."""

    def __init__(self, seed, topic_ids):
        self.rng = random.Random(seed)
        self.topic_ids = [bytes(16), bytes(range(16)), *topic_ids]

    def message(self, table, version):
        fields = table.FIELDS.items()
        return table(**{name: self.value(name, f, version) for name, f in fields})

    def value(self, name, field, version):
        rng = self.rng
        if version in field.nullable and rng.random() < 0.2:
            return None
        if field.wire is Wire.ARRAY:
            return [self.one(name, field.of, version) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return self.one(name, field.of if field.wire is Wire.STRUCT else field.wire, version)

    def one(self, name, of, version):
        rng = self.rng
        if not isinstance(of, Wire):
            return self.message(of, version)
        if "timeout" in name or "wait" in name or name.endswith("_ms"):
            return rng.choice((0, 1, 100, 500, -1))
        if of in BITS:
            number = rng.choice(NUMBERS)
            return number if -(2 ** (BITS[of] - 1)) <= number < 2 ** (BITS[of] - 1) else 1
        return {
            Wire.BOOLEAN: lambda: rng.random() < 0.5,
            Wire.UINT16: lambda: rng.randrange(1 << 16),
            Wire.UINT32: lambda: rng.randrange(1 << 32),
            Wire.FLOAT64: rng.random,
            Wire.UUID: lambda: rng.choice(self.topic_ids),
            Wire.STRING: lambda: rng.choice(NAMES),
            Wire.BYTES: lambda: rng.randbytes(rng.choice((0, 1, 9, 40))),
            Wire.RECORDS: lambda: rng.choice(
                (batch(), batch([b"a", b"b"]), b"", rng.randbytes(70))
            ),
        }[of]()

    def frame(self, served):
        key = self.rng.choice(list(served))
        api = API_TABLE[key]
        version = self.rng.choice(list(api.versions))
        message = self.message(api.request, version)
        if key == ApiKey.PRODUCE and message.acks == 0:
            message.acks = -1
        made = encode_request_header(key, version, 7, "random") + bytes(message.encode(version))
        return f"{api.name} v{version} {message}"[:500], struct.pack(">i", len(made)) + made


def answered(connection, frame):
    """Whether it was answered; False: the connection is closed."""
    connection.sendall(frame)
    left = 4
    size = b""
    while len(size) < left:
        piece = connection.recv(left - len(size))
        if not piece:
            return False
        size += piece
    (left,) = struct.unpack(">i", size)
    while left:
        piece = connection.recv(min(left, 1 << 16))
        if not piece:
            return False
        left -= len(piece)
    return True


@pytest.mark.timeout(240)
def test_whatever_is_asked_is_answered_or_refused(ottla_server_factory):
    server = ottla_server_factory(
        {
            "group.min.session.timeout.ms": 50,
            "group.initial.rebalance.delay.ms": 50,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.num.partitions": 2,
        }
    )
    host, port = server.bootstrap.rsplit(":", 1)
    unanswered, counts = [], []
    with WireClient(server.bootstrap) as honest:
        ids = [honest.create_topic(name) for name in ("t", "u")]
        honest.create_topic("honest")
        served = [ApiKey(one) for one in API_TABLE if one in SERVED]
        over = time.monotonic() + SECONDS

        def talk(number):
            speaker = Speaker(500 + number, [getattr(one, "bytes", one) for one in ids])
            connection, count = None, 0
            while time.monotonic() < over:
                if connection is None:
                    connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
                said, frame = speaker.frame(served)
                try:
                    is_open = answered(connection, frame)
                except TimeoutError:
                    unanswered.append(said)
                    is_open = False
                except ConnectionError:
                    is_open = False
                count += 1
                if not is_open:
                    connection.close()
                    connection = None
            counts.append(count)
            if connection is not None:
                connection.close()

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert honest.produce("honest", batch())["error_code"] == 0
        assert not unanswered
        assert sum(counts) > 50
        assert honest.list_offsets("honest", [0])[0][0] == 0
    faults = [line for line in server.log_text().splitlines() if "unexpectedly" in line]
    assert not faults[:5]


SERVED = frozenset(ApiKey) - {ApiKey.WRITE_TXN_MARKERS}
"""Those markers end transactions as the coordinator would, which nobody but a broker may ask."""
