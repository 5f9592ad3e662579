"""Which of eight quotas holds for a client, and who shares it: on the wire, as a live Kafka does.

The bounds are so low that a throttle time tells whose bound it is, and how many requests counted.
"""

import hashlib
import time
import uuid

import pytest

from tests.conformance.wire.test_client_quotas import PRODUCE, alter
from tests.logging_in import Scram, shake_hands, token
from tools.wire_client import WireClient, batch

pytestmark = pytest.mark.timeout(120)
BYTES = 900_000
MECHANISM = "SCRAM-SHA-256"
LEVELS = [
    (("user", "{user}"), ("client-id", "{client}")),
    (("user", "{user}"), ("client-id", None)),
    (("user", "{user}"),),
    (("user", None), ("client-id", "{client}")),
    (("user", None), ("client-id", None)),
    (("user", None),),
    (("client-id", "{client}"),),
    (("client-id", None),),
]
"""Entities, the one that goes before the others first; ``{client}`` stands for an id."""
BOUNDS = [round(1000 * 1.2**level) for level in range(len(LEVELS))]
COUNTED = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2), (1, 2)]
"""By level, how many requests count after one of some user and client id: for one of the same user
with another client id, and for one of another user with the same; 0: the quota holds for neither.
"""


@pytest.fixture
def user(admin):
    """Return a function that makes users: what was counted for one is of one test only."""

    def make():
        name, salt = f"u-{uuid.uuid4().hex[:8]}", b"of the tests"
        salted = hashlib.pbkdf2_hmac("sha256", b"builder", salt, 4096)
        asked = {"name": name, "mechanism": 1, "iterations": 4096, "salt": salt}
        told = admin.call(
            "alter_user_scram_credentials",
            0,
            deletions=[],
            upsertions=[asked | {"salted_password": salted}],
        )
        assert [one["error_code"] for one in told["results"]] == [0]
        return name

    return make


@pytest.fixture
def quota(admin):
    """Set or remove (None) the quota of one level; what is left at the end is removed."""
    given = set()

    def change(level, user, client, bound):
        texts = {"user": user, "client": client}
        entity = [(kind, name and name.format(**texts)) for kind, name in LEVELS[level]]
        assert alter(admin, entity, [(PRODUCE, bound)]) == (0, None)
        (given.add if bound else given.discard)((level, user, client))
        time.sleep(0.3)  # Kafka's broker hears of it later than its controller.

    yield change
    for each in sorted(given):
        change(*each, None)


@pytest.fixture
def ask(secured, admin):
    """Send a Produce as a user with a client id; return the throttle time in seconds."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin.create_topic(topic)
    records = batch([bytes(BYTES)])

    def ask(user, client):
        address = secured.secured["SASL_PLAINTEXT"]
        with WireClient(address, client_id=client) as wire:
            assert shake_hands(wire, MECHANISM)["error_code"] == 0
            scram = Scram(MECHANISM, name=user)
            proof = scram.final(token(wire, scram.first())["auth_bytes"])
            assert token(wire, proof)["error_code"] == 0
            data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            told = wire.call("produce", 9, acks=-1, timeout=5000, topic_data=data)
            assert told["responses"][0]["partition_responses"][0]["error_code"] == 0
            return told["throttle_time"] / 1000

    return ask


def holding(seconds):
    """Return (level, how many requests counted) that this throttle time is of; (None, 0): none."""
    if seconds == 0:
        return None, 0
    found = {
        (level, count): abs((seconds + 10.5) / (count * BYTES / bound) - 1)
        for level, bound in enumerate(BOUNDS)
        for count in (1, 2, 3, 4)
    }
    return min(found, key=found.__getitem__)


def test_the_first_of_eight_that_is_there_holds(ask, quota, user):
    """All are there; then the one that held is gone, and so on until there is none."""
    name, client = user(), uuid.uuid4().hex
    for level, bound in enumerate(BOUNDS):
        quota(level, name, client, bound)
    for level in range(len(LEVELS)):
        assert holding(ask(name, client))[0] == level
        quota(level, name, client, None)
    assert holding(ask(name, client)) == (None, 0)


def test_each_of_eight_goes_before_those_behind_it(ask, quota, user):
    """They come one by one, the one that every other goes before first."""
    name, client = user(), uuid.uuid4().hex
    for level in reversed(range(len(LEVELS))):
        quota(level, name, client, BOUNDS[level])
        assert holding(ask(name, client))[0] == level


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_who_shares_a_quota(ask, quota, user, level):
    name, client = user(), uuid.uuid4().hex
    quota(level, name, client, BOUNDS[level])
    assert holding(ask(name, client)) == (level, 1)
    for other, count in zip(
        ((name, uuid.uuid4().hex), (user(), client)), COUNTED[level], strict=True
    ):
        assert holding(ask(*other)) == ((level, count) if count else (None, 0))
