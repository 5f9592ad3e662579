"""When many files are synced at once, and the way back when that has become dear."""

import pytest

from ottla.env.sync_prices import COUNT_MIN, HALF_LIFE_SECONDS, TRIAL_SECONDS_MIN, SyncPrices

NOW = 1000.0


@pytest.fixture
def prices():
    prices = SyncPrices(NOW)
    for _ in range(200):
        prices.saw_one(200, NOW)
    prices.saw_trial(610, NOW)
    return prices


def test_before_a_trial_every_file_goes_by_itself():
    prices = SyncPrices(NOW)
    assert not prices.prefers_all(1000, NOW)
    assert prices.wants_trial(COUNT_MIN, NOW)
    assert not prices.wants_trial(COUNT_MIN - 1, NOW)


def test_a_few_go_by_themselves_and_many_together(prices):
    assert [count for count in range(1, 20) if prices.prefers_all(count, NOW)] == [*range(7, 20)]


def test_however_cheap_all_is_one_or_two_files_are_synced_by_themselves(prices):
    prices.saw_trial(1, NOW)
    assert not prices.prefers_all(COUNT_MIN - 1, NOW)
    assert prices.prefers_all(COUNT_MIN, NOW)


def test_a_neighbour_who_writes_much_is_not_waited_for_twice(prices):
    assert prices.prefers_all(100, NOW)
    prices.saw_all(3_000_000)
    assert not prices.prefers_all(100, NOW)


def test_when_the_neighbour_has_ended_a_trial_finds_out(prices):
    prices.saw_all(3_000_000)
    now = NOW + TRIAL_SECONDS_MIN
    assert prices.wants_trial(100, now)
    prices.saw_trial(2_000_000, now)  # Still there: the next one can wait, for it costs much.
    assert not prices.wants_trial(100, now + 39)
    assert prices.wants_trial(100, now + 41)
    prices.saw_trial(600, now + 41)
    prices.saw_one(200, now + 41)
    assert prices.prefers_all(100, now + 41)


def test_a_price_of_one_that_is_old_is_looked_at_again(prices):
    assert prices.prefers_all(10, NOW)
    assert not prices.prefers_all(10, NOW + HALF_LIFE_SECONDS)
    prices.saw_one(200, NOW + HALF_LIFE_SECONDS)
    assert prices.prefers_all(10, NOW + HALF_LIFE_SECONDS)


def test_a_device_that_has_become_slow_is_believed_soon(prices):
    assert not prices.prefers_all(3, NOW)
    for _ in range(3):
        prices.saw_one(5_000, NOW)
    assert prices.prefers_all(3, NOW)


def test_patience_is_some_times_the_price_and_never_too_little(prices):
    assert prices.patience_seconds() == 0.02
    prices.saw_trial(100_000, NOW)
    assert prices.patience_seconds() == 0.8
