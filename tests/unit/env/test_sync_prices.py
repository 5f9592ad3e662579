"""When many files are synced at once, and the way back when that has become dear."""

import pytest

from ottla.env.sync_prices import COUNT_MIN, HALF_LIFE_SECONDS, PROBE_SECONDS_MIN, SyncPrices

NOW = 1000.0


@pytest.fixture
def prices():
    prices = SyncPrices(NOW)
    for _ in range(200):
        prices.saw_one(200, NOW)
    prices.saw_probe(610, NOW)
    return prices


def test_at_the_start_the_first_files_that_are_due_together_find_out_the_price():
    prices = SyncPrices(NOW)
    assert not prices.prefers_all(1000, NOW)
    assert prices.wants_probe(COUNT_MIN, NOW)
    assert not prices.wants_probe(COUNT_MIN - 1, NOW)


def test_a_few_go_by_themselves_and_many_together(prices):
    assert [count for count in range(1, 20) if prices.prefers_all(count, NOW)] == [*range(4, 20)]


def test_however_cheap_all_is_one_or_two_files_are_synced_by_themselves(prices):
    prices.saw_probe(1, NOW)
    assert not prices.prefers_all(COUNT_MIN - 1, NOW)
    assert prices.prefers_all(COUNT_MIN, NOW)


def test_one_stop_of_the_device_does_not_end_syncs_of_all(prices):
    prices.saw_all(300_000, NOW)
    assert prices.prefers_all(20, NOW)


def test_a_neighbour_who_writes_on_is_believed_after_a_few(prices):
    dear = 0
    while prices.prefers_all(50, NOW):
        prices.saw_all(500_000, NOW)
        dear += 1
    assert 1 < dear < 6


def test_a_probe_finds_out_that_the_neighbour_has_ended(prices):
    while prices.prefers_all(50, NOW):
        prices.saw_all(500_000, NOW)
    now = NOW + PROBE_SECONDS_MIN
    assert prices.wants_probe(50, now)
    prices.saw_probe(400_000, now)
    assert not prices.wants_probe(50, now + 1)
    assert prices.wants_probe(50, now + 4), "it took little of the time"
    prices.saw_probe(700, now + 4)
    assert prices.prefers_all(50, now + 4)


def test_the_longer_it_stays_dear_the_rarer_are_the_probes(prices):
    now, waited = NOW, []
    for _ in range(5):
        prices.saw_probe(500_000, now)
        began = now
        while not prices.wants_probe(50, now):
            now += 0.25
        waited.append(now - began)
    assert waited == [4.0, 8.0, 10.0, 10.0, 10.0]


def test_nobody_waits_for_a_probe_much_longer_than_for_single_syncs(prices):
    prices.saw_probe(3_000_000, NOW)
    assert prices.patience_seconds(100, NOW, is_probe=True) == pytest.approx(0.02, rel=1e-3)
    assert prices.patience_seconds(3, NOW, is_probe=True) == 0.005


def test_a_price_of_one_that_is_old_is_looked_at_again(prices):
    assert prices.prefers_all(5, NOW)
    assert not prices.prefers_all(5, NOW + HALF_LIFE_SECONDS)
    prices.saw_one(200, NOW + HALF_LIFE_SECONDS)
    assert prices.prefers_all(5, NOW + HALF_LIFE_SECONDS)


def test_a_device_that_has_become_slow_is_believed_soon(prices):
    assert not prices.prefers_all(3, NOW)
    for _ in range(4):
        prices.saw_one(5_000, NOW)
    assert prices.prefers_all(3, NOW)


def test_patience_is_some_times_the_price_and_never_too_little(prices):
    assert prices.patience_seconds(10, NOW, is_probe=False) == 0.02
    prices.saw_probe(100_000, NOW)
    assert prices.patience_seconds(10, NOW, is_probe=False) == 0.8
