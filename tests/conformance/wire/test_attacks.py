"""Attacks on logins, rights and quotas, while an honest client works at the same broker.

Each attack is made twice: once so that what it needs is loaded, once while the honest client's
waits and the broker's memory are measured. When all are over, the broker's log is searched for
secrets and tracebacks. The table of all attacks is in docs/hostile-clients.md.
"""

import base64
import contextlib
import socket
import ssl
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.authorizing import ANY_ACL, AUTHORIZER
from tests.certificates import certificates
from tests.logging_in import MODULES, Scram, shake_hands, token
from tools.ottla_peer import OttlaPeer
from tools.wire_client import Closed, WireClient, batch

pytestmark = [pytest.mark.timeout(180)]
MIB = 1 << 20
ROUND_SECONDS = 0.8
HONEST_MIN = 20
"""So many requests of the honest client are measured at least, however long that takes."""
GROWN_MAX = 24 * MIB
PASSWORDS = {
    "root": "root-keeps-this-to-itself",
    "alice": "alice-keeps-this-to-herself",
    "bob": "bob-keeps-this-to-himself",
}
GUESS = "a-guess-that-is-wrong"
ELSEWHERE = "127.0.0.2"
"""Another address of the loopback: what holds for it does not hold for the honest client."""


@pytest.fixture(scope="module")
def broker(target_kind, tmp_path_factory):
    if target_kind != "ottla":
        pytest.skip("bounds of Ottla; what Kafka answers is compared in the other files")
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    options = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:root",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"{MODULES}.plain.PlainLoginModule required {users};"
        ),
        "ssl.keystore.location": str(certificates() / "server.pem"),
        "max.connections.per.ip": 100_000,
        "connections.max.idle.ms": 5000,
    }
    data = tmp_path_factory.mktemp("attacked") / "data"
    scram = f"SCRAM-SHA-256=[name=bob,password={PASSWORDS['bob']}]"
    protocols = ("SASL_PLAINTEXT", "SSL")
    with OttlaPeer(data, options, protocols=protocols, users=[scram]) as peer:
        peer.start()
        with WireClient(peer.bootstrap) as admin:
            for name in ("mine", "target"):
                admin.create_topic(name)
            grant(admin, "alice", "target", (4, 8))
            limit(admin, [("client-id", "greedy")], "producer_byte_rate", 1000)
            limit(admin, [("client-id", None)], "request_percentage", 1000)
            limit(admin, [("user", "bob")], "controller_mutation_rate", 1)
            limit(admin, [("ip", ELSEWHERE)], "connection_creation_rate", 5)
        yield peer
        log = peer.log_text()
    assert "Traceback" not in log, log[-4000:]
    for secret in (*PASSWORDS.values(), GUESS):
        assert secret not in log
        assert base64.b64encode(secret.encode()).decode() not in log


def grant(wire, user, topic, operations):
    creations = [
        {
            "resource_type": 2,
            "resource_name": topic,
            "resource_pattern_type": 3,
            "principal": f"User:{user}",
            "host": "*",
            "operation": operation,
            "permission_type": 3,
        }
        for operation in operations
    ]
    answer = wire.call("create_acls", 3, creations=creations)
    assert {one["error_code"] for one in answer["results"]} == {0}


def limit(wire, entity, key, bound):
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": float(bound), "remove": False}],
    }
    answer = wire.call("alter_client_quotas", 1, entries=[entry], validate_only=False)
    assert answer["entries"][0]["error_code"] == 0


class Attacker:
    """What the attacks have in common: addresses, and when to end."""

    def __init__(self, peer):
        self.peer = peer
        self.ends = time.monotonic() + ROUND_SECONDS
        self.count = 0
        self.host, port = peer.secured["SSL"].rsplit(":", 1)
        self.tls_port = int(port)

    def goes_on(self):
        self.count += 1
        return time.monotonic() < self.ends

    def stranger(self, client_id="attacker"):
        address = self.peer.secured["SASL_PLAINTEXT"]
        return contextlib.closing(WireClient(address, client_id=client_id))

    @contextlib.contextmanager
    def logged_in(self, user, client_id="attacker"):
        with self.stranger(client_id) as wire:
            shake_hands(wire, "PLAIN")
            assert token(wire, f"\0{user}\0{PASSWORDS[user]}")["error_code"] == 0
            yield wire

    def raw(self, *pieces):
        """Say something to the TLS listener, and hear the end of it."""
        line = socket.create_connection((self.host, self.tls_port), timeout=20)
        with line, contextlib.suppress(OSError):
            for piece in pieces:
                line.sendall(piece)
            line.shutdown(socket.SHUT_WR)
            while line.recv(65536):
                pass


def unknown_versions(attacker):
    """Attack 2."""
    while attacker.goes_on():
        with attacker.stranger() as wire, contextlib.suppress(Closed):
            for number in range(1000):
                wire.send(struct.pack(">ihhihB", 11, 18, 99, number, -1, 0))
            for number in range(1000):
                wire.receive_frame()
                assert number < 11, "not all are answered"


def lengths_before_login(attacker):
    """Attacks 8 and 12: frames, texts and sets of tags that say they were large."""
    bombs = (
        struct.pack(">i", 524_289),
        struct.pack(">i", (1 << 31) - 1),
        # ApiVersions v3 with a name of 2^31 - 1 bytes; SaslHandshake with one of 32,767
        struct.pack(">ihhih", 20, 18, 3, 1, -1) + b"\0\xff\xff\xff\xff\x07" + bytes(4),
        struct.pack(">ihhihh", 12, 17, 1, 1, -1, 32_767),
        # ApiVersions v3 with 2^31 - 1 tags in its header
        struct.pack(">ihhih", 20, 18, 3, 1, -1) + b"\xff\xff\xff\xff\x07" + bytes(5),
    )
    while attacker.goes_on():
        for bomb in bombs:
            with attacker.stranger() as wire, contextlib.suppress(Closed):
                wire.send(bomb)
                wire.socket.shutdown(1)
                wire.receive_frame()
                raise AssertionError(f"{bomb!r} was answered")


def guesses(attacker):
    """Attacks 10, 13 and 14: wrong passwords, of users that there are and others."""
    while attacker.goes_on():
        for name in ("alice", "nobody", "x" * 300):
            with attacker.stranger() as wire:
                shake_hands(wire, "PLAIN")
                assert token(wire, f"\0{name}\0{GUESS}")["error_code"] == 58
        for name in ("bob", "nobody"):
            with attacker.stranger() as wire:
                shake_hands(wire, "SCRAM-SHA-256")
                client = Scram("SCRAM-SHA-256", name=name, password=GUESS)
                final = client.final(token(wire, client.first())["auth_bytes"])
                assert token(wire, final)["error_code"] == 58


def odd_names(attacker):
    """Attacks 18 and 54: escapes, other scripts, control characters, lines, 64 KiB."""
    names = ("=3x", "\uff41dmin", "a\0b", "\u202eadmin", "a\nERROR b", "\x1b[31mred", "n" * 65_536)
    while attacker.goes_on():
        for name in names:
            with attacker.stranger(client_id=name[:100]) as wire:
                shake_hands(wire, "SCRAM-SHA-256")
                first = token(wire, Scram("SCRAM-SHA-256", name=name).first())
                assert first["error_code"] == 58 or first["auth_bytes"].startswith(b"r=")


def waiting_strangers(attacker):
    """Attack 9: many connections that never say who they are."""
    with contextlib.ExitStack() as stack:
        while attacker.goes_on() and attacker.count < 400:
            stack.enter_context(attacker.stranger())


def acl_storms(attacker):
    """Attack 36: more ACLs than a request may make, and filters that fit them all."""
    creation = {
        "resource_type": 2,
        "resource_pattern_type": 4,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    with WireClient(attacker.peer.bootstrap) as wire:
        many = [creation | {"resource_name": f"t-{number}"} for number in range(10_001)]
        answer = wire.call("create_acls", 3, creations=many)
        assert {one["error_code"] for one in answer["results"]} == {42}
        match = ANY_ACL | {"resource_type_filter": 2, "pattern_type_filter": 2}
        while attacker.goes_on():
            wire.call("describe_acls", 3, **(match | {"resource_name_filter": "t" * 249}))
            wire.call("delete_acls", 3, filters=[match | {"resource_name_filter": "u"}] * 1000)


def names_by_code(attacker):
    """Attack 37: is there such a topic? The one who may not see it is told nothing."""
    with attacker.logged_in("bob") as wire:
        while attacker.goes_on():
            codes = []
            for name in ("mine", f"no-{attacker.count}", "no name!"):
                answer = wire.call(
                    "metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True
                )
                codes += [one["error_code"] for one in answer["topics"]]
            assert codes == [29] * 3


def ever_new_client_ids(attacker):
    """Attack 38: a quota is looked up for each."""
    with attacker.logged_in("alice") as wire:
        while attacker.goes_on():
            wire._client_id = f"{attacker.count}-{'x' * 200}"
            assert wire.call("metadata", 12, topics=[])["brokers"]


def produce_frame(wire, acks, size):
    data = {"name": "target", "partition_data": [{"index": 0, "records": batch([bytes(size)])}]}
    body = wire.encode("produce", 9, acks=acks, timeout=5000, topic_data=[data])
    return struct.pack(">i", len(body)) + body


def ignored_throttles(attacker):
    """Attacks 39 and 40: far above the quota, without answers and without waiting."""
    while attacker.goes_on():
        with attacker.logged_in("alice", "greedy") as wire:
            wire.socket.settimeout(0.05)
            frame = produce_frame(wire, 0, 20_000)
            with contextlib.suppress(TimeoutError):
                while attacker.goes_on():
                    wire.send(frame)


def mutations(attacker):
    """Attack 42: topics in a loop, made or only checked."""
    with WireClient(attacker.peer.bootstrap) as admin:
        grant(admin, "bob", "made", (5, 6, 8))
    topic = {"name": "made", "num_partitions": 20, "replication_factor": 1}
    with attacker.logged_in("bob") as wire:
        wire.socket.settimeout(0.2)
        codes = set()
        with contextlib.suppress(TimeoutError):  # It is muted.
            while attacker.goes_on():
                answer = wire.call(
                    "create_topics", 7, topics=[topic], timeout=5000, validate_only=True
                )
                codes |= {one["error_code"] for one in answer["topics"]}
        assert codes <= {0, 89}


def connects(attacker):
    """Attack 44: an address that connects as fast as it can."""
    port = int(attacker.peer.bootstrap.rsplit(":", 1)[1])
    with contextlib.ExitStack() as stack:
        while attacker.goes_on() and attacker.count < 1500:
            line = socket.create_connection(
                ("127.0.0.1", port), timeout=20, source_address=(ELSEWHERE, 0)
            )
            stack.enter_context(line)


def hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(certificates() / "ca.pem"))
    engine = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        engine.do_handshake()
    return outgoing.read()


def half_handshakes(attacker):
    """Attacks 45 and 47: hellos without an end, byte by byte, and what is none."""
    whole = hello()
    while attacker.goes_on():
        attacker.raw(whole[:-1])
        attacker.raw(*(whole[index : index + 1] for index in range(60)))
        attacker.raw(whole, b"\x16\x03\x03\x40\x00" + bytes(0x4000))
        attacker.raw(b"GET / HTTP/1.1\r\n\r\n")


def static_options(attacker):
    """Attack 53: options that say who may come in, and where code and keys come from."""
    names = (
        *("super.users", "authorizer.class.name", "sasl.jaas.config"),
        *("sasl.oauthbearer.jwks.endpoint.url", "principal.builder.class"),
    )
    with WireClient(attacker.peer.bootstrap) as wire:
        while attacker.goes_on():
            for name in names:
                config = {"name": name, "config_operation": 0, "value": "User:alice"}
                resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
                answer = wire.call(
                    "incremental_alter_configs", 1, resources=[resource], validate_only=False
                )
                assert answer["responses"][0]["error_code"] in (40, 42), name


ATTACKS = [
    *(unknown_versions, lengths_before_login, guesses, odd_names, waiting_strangers, acl_storms),
    *(names_by_code, ever_new_client_ids, ignored_throttles, mutations, connects),
    *(half_handshakes, static_options),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_others_are_served_and_nothing_stays(broker, attack):
    quiet = waits(broker, lambda: False)
    attack(Attacker(broker))
    before = broker.rss_bytes()
    errors = []
    thread = threading.Thread(target=run, args=(attack, Attacker(broker), errors))
    thread.start()
    noisy = waits(broker, thread.is_alive)
    thread.join()
    assert errors == []
    # The attacker shares the processors and the interpreter with who measures.
    assert noisy[-2] < 2 + 10 * quiet[-2], (quiet, noisy)
    settled(broker)
    assert broker.rss_bytes() - before < GROWN_MAX


def run(attack, attacker, errors):
    try:
        attack(attacker)
    except Exception as error:  # noqa: BLE001 - the test tells it
        errors.append(repr(error))


def waits(broker, goes_on):
    """Seconds that each durable produce request of an honest client took, ascending."""
    found = []
    with WireClient(broker.bootstrap, client_id="honest") as client:
        while len(found) < HONEST_MIN or goes_on():
            begin = time.monotonic()
            assert client.produce("mine", batch())["error_code"] == 0
            found.append(time.monotonic() - begin)
    return sorted(found)


def settled(broker):
    """Wait until the connections are gone; what the broker listens on stays."""
    deadline = time.monotonic() + 30
    while sockets(Path(f"/proc/{broker.pid}/fd")) > 20:
        assert time.monotonic() < deadline, "connections stay open"
        time.sleep(0.02)


def sockets(directory):
    count = 0
    for each in directory.iterdir():
        with contextlib.suppress(OSError):
            count += str(each.readlink()).startswith("socket:")
    return count
