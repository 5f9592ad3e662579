"""Which quota holds for whom, who shares a meter, and how many meters there are."""

import itertools

import pytest

from ottla.ids import QUOTA_DEFAULT as DEFAULT
from ottla.ids import Principal, QuotaEntity
from ottla.quota.clients import METER_IDLE_MS, MUTATION, PRODUCE, SWEPT_MAX, ClientQuotas, Kind
from ottla.quota.rate import Windows

LEVELS = [
    QuotaEntity("ann", "app"),
    QuotaEntity("ann", DEFAULT),
    QuotaEntity("ann"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
]
"""Whom a quota may hold for when ann asks with the client id app, the first that there is."""
NOW = 10_000
ANN, BOB = Principal("User", "ann"), Principal("User", "bob")


def made(*entities, meters_max=10_000):
    quotas = ClientQuotas(Windows(), Windows(), lambda meters: meters, meters_max)
    for bound, entity in enumerate(entities, 1):
        quotas.change(entity, {PRODUCE: float(bound)})
    return quotas


@pytest.mark.parametrize("taken", list(itertools.product([False, True], repeat=8)))
def test_the_most_specific_quota_counts(taken):
    present = [level for level, is_there in zip(LEVELS, taken, strict=True) if is_there]
    quotas = ClientQuotas(Windows(), Windows(), lambda meters: meters)
    for bound, level in enumerate(present, 1):
        quotas.change(level, {PRODUCE: float(bound)})
        quotas.change(QuotaEntity("other", level.client_id), {PRODUCE: 99.0})
    meters = quotas.of(ANN, b"app", NOW)
    if not present:
        assert meters is None
    else:
        assert meters.produce.bound == 1.0
        assert meters.fetch is meters.request is meters.mutation is None
    for level in present:
        quotas.change(level, {})
    assert quotas.of(ANN, b"app", NOW) is None


def test_keys_are_looked_up_apart():
    quotas = made(QuotaEntity("ann"))
    quotas.change(QuotaEntity(client_id="app"), {PRODUCE: 7.0, MUTATION: 8.0})
    meters = quotas.of(ANN, b"app", NOW)
    assert meters.produce.bound < 7
    assert meters.mutation.bound == 8


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (QuotaEntity("ann"), {"user"}),
        (QuotaEntity(DEFAULT), {"user"}),
        (QuotaEntity(client_id="app"), {"client"}),
        (QuotaEntity(client_id=DEFAULT), {"client"}),
        (QuotaEntity("ann", "app"), set()),
        (QuotaEntity(DEFAULT, DEFAULT), set()),
    ],
)
def test_who_shares_a_meter(entity, shared):
    quotas = made(entity)
    meter = quotas.of(ANN, b"app", NOW).produce
    same_user, same_client = quotas.of(ANN, b"x", NOW), quotas.of(BOB, b"app", NOW)
    assert (same_user is not None and same_user.produce is meter) == (shared == {"user"})
    assert (same_client is not None and same_client.produce is meter) == (shared == {"client"})
    assert quotas.of(ANN, b"app", NOW).produce is meter


@pytest.mark.parametrize("client_id", [b"", None])
def test_a_client_without_an_id_has_quotas_of_users_only(client_id):
    """As a live Kafka 4.3: no default of client ids holds for it, neither alone nor with a user."""
    defaults = [QuotaEntity(client_id=DEFAULT), QuotaEntity(ANN.name, DEFAULT)]
    quotas = made(*defaults, QuotaEntity(DEFAULT, DEFAULT))
    assert quotas.of(ANN, client_id, NOW) is None
    quotas.change(QuotaEntity(DEFAULT), {PRODUCE: 7.0})
    assert quotas.of(ANN, client_id, NOW).produce.bound == 7


def test_a_changed_bound_keeps_what_was_charged():
    quotas = ClientQuotas(Windows(), Windows(), lambda meters: meters)
    quotas.change(QuotaEntity("ann"), {PRODUCE: 1000.0})
    assert quotas.of(ANN, b"", NOW).produce.charge(9000, NOW) == 0
    quotas.change(QuotaEntity("ann"), {PRODUCE: 100.0})
    assert quotas.found == {}
    assert quotas.of(ANN, b"", NOW).produce.charge(0, NOW) == 80_000


def test_a_crowd_of_names_shares_one_meter_and_idle_ones_make_room():
    quotas = made(QuotaEntity(client_id=DEFAULT), meters_max=3)
    meters = [quotas.of(ANN, b"%d" % n, NOW).produce for n in range(3)]
    for meter in meters:
        meter.charge(1, NOW)
    later = [quotas.of(ANN, b"x%d" % n, NOW + 20 * n).produce for n in range(50)]
    assert len(set(map(id, later))) == 1
    assert later[0] not in meters
    later[0].charge(1, NOW + 1000)
    gone = NOW + Windows().all_ms
    meters[2].charge(1, gone - 1)
    assert quotas.of(ANN, b"new", gone).produce is not later[0]
    assert quotas.of(ANN, b"2", gone).produce is meters[2], "busy ones are kept"
    assert quotas.of(ANN, b"0", gone).produce is not meters[0]


def test_who_takes_all_meters_takes_nothing_from_others():
    """One client with 10,000 client ids had each new client of others told to wait 93 s."""
    quotas = made(QuotaEntity(client_id=DEFAULT), meters_max=3)
    for number in range(50):
        quotas.of(ANN, b"%d" % number, NOW).produce.charge(1_000_000, NOW)
    assert quotas.of(ANN, b"new", NOW).produce.charge(1, NOW) > 0
    assert quotas.of(BOB, b"app", NOW).produce.charge(1, NOW) == 0


def test_users_without_room_are_bounded_too():
    quotas = made(QuotaEntity(client_id=DEFAULT), meters_max=3)
    users = [Principal("User", f"u{number}") for number in range(100)]
    found = {id(quotas.of(user, b"%d" % n, NOW).produce) for n, user in enumerate(users)}
    assert len(found) == 3 + 3 + 1


def test_who_shares_a_meter_gets_no_new_one_when_others_come_with_another_bound():
    """Names of two bounds in turn had a fresh burst each time: no quota at all."""
    quotas = ClientQuotas(Windows(), Windows(), lambda meters: meters, 1)
    quotas.change(QuotaEntity(client_id=DEFAULT), {PRODUCE: 100.0})
    quotas.change(QuotaEntity(BOB.name), {PRODUCE: 50.0})
    quotas.of(ANN, b"first", NOW).produce.charge(1, NOW)
    shared = quotas.of(ANN, b"second", NOW).produce
    assert shared.charge(2_000, NOW) > 0
    assert quotas.of(BOB, b"", NOW).produce is not shared
    assert quotas.of(ANN, b"third", NOW).produce is shared


def test_names_take_no_memory_without_end():
    quotas = made(QuotaEntity(client_id=DEFAULT), meters_max=100)
    for n in range(1000):
        quotas.of(ANN, b"%d" % n, NOW)
        quotas.of(ANN, b"long" * 1000 + b"%d" % n, NOW)
    assert len(quotas.found) <= 101
    assert sum(len(name) for _, name in quotas.found) < 2000


def test_meters_that_nobody_asks_for_are_forgotten_after_an_hour():
    quotas = made(QuotaEntity(client_id=DEFAULT))
    first = quotas.of(ANN, b"a", NOW).produce
    quotas.of(ANN, b"b", NOW + METER_IDLE_MS)
    assert quotas.of(ANN, b"a", NOW + METER_IDLE_MS).produce is not first


class NotWalked(dict):
    def __iter__(self):
        raise AssertionError("a change among 10,000 looked at all")


def test_a_change_does_not_look_at_all_other_quotas():
    """10,000 quotas of users took a start 2 s, and a commit of 100 changes the loop 40 ms."""
    quotas = made()
    quotas._quotas = NotWalked()
    values = {PRODUCE: 1.0}
    asked = []
    for entity, given in (
        (QuotaEntity("ann"), values),
        (QuotaEntity("ann", "app"), values),
        (QuotaEntity(client_id=DEFAULT), values),
        (QuotaEntity("ann", "app"), values),
        (QuotaEntity("ann", "app"), {}),
        (QuotaEntity("ann"), {}),
        (QuotaEntity(client_id="other"), {}),
        (QuotaEntity(client_id=DEFAULT), {}),
    ):
        quotas.change(entity, given)
        asked.append(quotas.asks_client_id)
    assert asked == [False, True, True, True, True, True, True, False]
    assert len(quotas) == 0


class Watched:
    """A meter that counts who looks whether it is idle."""

    looks = 0

    def __init__(self, bound):
        self.bound = bound
        self.is_busy = False

    def is_idle(self, now_ms):
        Watched.looks += 1
        return not self.is_busy


def test_meters_are_looked_at_some_at_a_time():
    """10,000 client ids with quotas of four kinds held the loop for 50 to 127 ms, every 11 s."""
    count = 5 * SWEPT_MAX
    kind = Kind(lambda bound, _: Watched(bound), count)
    meters = [kind.get((None, str(n)), 1.0, NOW) for n in range(count)]
    for meter in meters[::2]:
        meter.is_busy = True
    shared = [kind.get((None, "late"), float(n), NOW) for n in range(count)]
    shared[7].is_busy = True
    for call in range(5):
        Watched.looks = 0
        assert kind.make_room(NOW + METER_IDLE_MS + call, 0)
        assert 0 < Watched.looks <= 2 * SWEPT_MAX
    assert len(kind) == count / 2
    assert all(kind.get((None, str(n)), 1.0, NOW) is meters[n] for n in range(0, count, 2))
    assert list(kind._shared.values()) == [shared[7]]
    assert not kind.make_room(NOW + METER_IDLE_MS + 5, 10), "until it is time again"


def test_clients_of_a_user_share_one_meter_amid_a_sweep():
    quotas = made(QuotaEntity(DEFAULT), QuotaEntity("ann", "no quota of its own"))
    for number in range(3 * SWEPT_MAX):
        quotas.of(Principal("User", f"u{number}"), b"", NOW)
    quotas.of(ANN, b"one", NOW)
    later = NOW + METER_IDLE_MS
    for number in range(5):
        for name in (b"one", b"other"):
            if (ANN, name) not in quotas.found:
                quotas.of(ANN, name, later + number)
        quotas.of(BOB, b"%d" % number, later + number)
        kept = {id(meters.produce) for (who, _), meters in quotas.found.items() if who is ANN}
        assert len(kept) <= 1
    assert len(quotas._produce) == 2
