"""How fast addresses may connect."""

from ottla.ids import QUOTA_DEFAULT
from ottla.quota.connections import AcceptRates, ConnectionRates
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


def test_a_listener_waits_until_its_rate_is_what_it_may_be():
    rates = AcceptRates(Windows(), {"OUT": 5}, spared=None)
    waits = [rates.accept("OUT", NOW) for _ in range(60)]
    assert waits[:50] == [0] * 50
    assert waits[50:] == list(range(200, 2200, 200)), "each waits for those before it"
    assert rates.accept("IN", NOW) == 0
    assert rates.accept("OUT", NOW + 20_000) == 0


def test_the_rate_of_all_holds_for_each_but_the_nodes_own():
    rates = AcceptRates(Windows(2, 1000), {"": 1, "OUT": 2}, spared="PLAINTEXT")
    assert [rates.accept("OUT", NOW) for _ in range(2)] == [0, 1000]
    assert [rates.accept("PLAINTEXT", NOW) for _ in range(9)] == [0] * 9
    assert rates.accept("OTHER", NOW) == 1000, "it counts those of the others; a window at most"
    assert rates.accept("OUT", NOW) == 2000, "the longer wait counts, behind the one before"


def test_another_rate_holds_for_what_was_counted():
    rates = AcceptRates(Windows(), {"OUT": 5}, spared=None)
    for _ in range(50):
        rates.accept("OUT", NOW)
    rates.change(Windows(), {"OUT": 50})
    assert rates.accept("OUT", NOW) == 0
    rates.change(Windows(), {"OUT": 1})
    assert rates.accept("OUT", NOW) == 1000
    rates.change(Windows(), {})
    assert rates.accept("OUT", NOW) == 0


def test_a_rate_far_below_what_was_counted_does_not_shut_the_door():
    """As in Kafka nobody waits for more than a window, behind the one before."""
    rates = AcceptRates(Windows(), {"OUT": 1000}, spared=None)
    assert [rates.accept("OUT", NOW) for _ in range(5000)] == [0] * 5000
    rates.change(Windows(), {"OUT": 1})
    assert [rates.accept("OUT", NOW) for _ in range(3)] == [1000, 2000, 3000]
    assert rates.accept("OUT", NOW + 3000) == 1000
    assert rates.accept("OUT", NOW + 3500) == 1500
    rates.change(Windows(), {"OUT": 2})
    assert rates.accept("OUT", NOW + 3500) == 1000, "nobody waits any more who did"
    assert rates.accept("OUT", NOW + 40_000) == 0
