"""How fast addresses may connect."""

from ottla.ids import QUOTA_DEFAULT
from ottla.quota.connections import ConnectionRates
from ottla.quota.rate import Windows

NOW = 10_000


def test_so_many_at_first_then_at_the_rate():
    """As a live Kafka 4.3: of 80 at 5 per second 50 stay."""
    rates = ConnectionRates(Windows())
    rates.change("10.0.0.1", 5)
    waits = [rates.arrive("10.0.0.1", NOW) for _ in range(80)]
    assert [wait == 0 for wait in waits] == [True] * 50 + [False] * 30
    assert max(waits) <= 1000
    assert rates.arrive("10.0.0.2", NOW) == 0
    later = [rates.arrive("10.0.0.1", NOW + ms) for ms in range(1000, 21_000, 100)]
    assert 45 <= later.count(0) <= 101, "none is counted that is not let in"


def test_a_default_is_for_each_address_without_its_own():
    rates = ConnectionRates(Windows(2, 1000))
    rates.change(QUOTA_DEFAULT, 1)
    rates.change("10.0.0.9", 3)
    assert [rates.arrive("10.0.0.1", NOW) == 0 for _ in range(2)] == [True, False]
    assert rates.arrive("10.0.0.2", NOW) == 0
    assert [rates.arrive("::ffff:10.0.0.9", NOW) == 0 for _ in range(4)] == [True] * 3 + [False]
    rates.change(QUOTA_DEFAULT, None)
    assert rates.arrive("10.0.0.1", NOW) == 0
    assert len(rates) == 1


def test_a_crowd_of_addresses_takes_no_more_memory():
    rates = ConnectionRates(Windows(2, 1000), meters_max=10)
    rates.change(QUOTA_DEFAULT, 1)
    held = sum(rates.arrive(f"10.0.{n}.1", NOW) > 0 for n in range(200))
    assert held == 189, "ten of their own, and one among all others"
    assert rates.arrive("10.9.9.9", NOW + 2000) == 0
