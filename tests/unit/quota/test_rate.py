"""Rates and waits, against the figures of a live Kafka 4.3 and a model without shortcuts."""

import random
from math import floor

import pytest

from ottla.quota.rate import INT32_MAX, Rate, Windows
from ottla.quota.token_bucket import TokenBucket

START_MS = 5_000
DEFAULT = Windows()


@pytest.fixture(name="meter_of")
def _meter_of(form):
    return form.meter.Meter


def test_producer_of_kafka(meter_of):
    """Bodies of 1091 and about 200,000 bytes against 50,000 B/s: 1991 ms, then 2012, 2018, 5998."""
    meter = meter_of(50_000, DEFAULT)
    now = START_MS
    assert meter.charge(1091, now) == 0
    assert meter.charge(1091, now + 15) == 0
    assert meter.charge(400_094, now + 30) == 0
    assert meter.charge(200_094, now + 56) == 1991
    now += 56 + 1991  # Muted for so long; then at once the next.
    assert meter.charge(1091, now + 1) == pytest.approx(2012, abs=20)
    now += 1 + 2012
    assert meter.charge(1091, now) == pytest.approx(2018, abs=20)
    now += 2018
    assert meter.charge(200_094, now + 2) == pytest.approx(5998, abs=20)


def test_a_throttled_fetch_takes_its_bytes_back(meter_of):
    """200,000 bytes pass, 400,000 do not: 2010 ms; 500,000, the most at once, wait for 3998."""
    meter = meter_of(50_000, DEFAULT)
    now = START_MS
    assert meter.charge(200_000, now) == 0
    wait = meter.charge(400_000, now + 4)
    meter.note(-400_000, now + 4)
    assert wait == pytest.approx(2010, abs=20)
    now += 4 + wait
    for _ in range(2):
        now += 3
        wait = meter.charge(500_000, now)
        meter.note(-500_000, now)
        assert wait == pytest.approx(3998, abs=20)
        now += 1  # It asks again at once: nothing was charged.
    assert meter.charge(300_000, now) == 0


def test_mutations_of_kafka():
    """One per second: 11 at first, below 0 after 15; the next is refused for 3652 ms."""
    bucket = TokenBucket(1, DEFAULT, START_MS)
    now = START_MS
    for later in (0, 120, 230):
        now += later
        assert bucket.wait_ms(now) == 0
        bucket.take(5, now)
    assert bucket.wait_ms(START_MS + 348) == pytest.approx(3652, abs=20)
    assert bucket.wait_ms(START_MS + 4000) == 0
    bucket.take(5, START_MS + 4000)
    assert bucket.wait_ms(START_MS + 4000) == 5000


def test_a_bucket_holds_no_more_than_its_burst():
    bucket = TokenBucket(2, Windows(3, 1000), START_MS)
    assert bucket.is_idle(START_MS)
    bucket.take(6, START_MS)
    assert bucket.wait_ms(START_MS) == 0
    bucket.take(1, START_MS)
    assert bucket.wait_ms(START_MS) == 500
    assert not bucket.is_idle(START_MS + 3000)
    assert bucket.is_idle(START_MS + 3500)
    bucket.take(7, START_MS + 1_000_000)
    assert bucket.wait_ms(START_MS + 1_000_000) == 500


def test_waits_are_bounded(meter_of):
    assert meter_of(1e-300, DEFAULT).charge(1e300, START_MS) == INT32_MAX
    assert meter_of(1.0, DEFAULT, cap_ms=1000).charge(1e9, START_MS) == 1000
    bucket = TokenBucket(1e-300, DEFAULT, START_MS)
    bucket.take(1000, START_MS)
    assert bucket.wait_ms(START_MS) == INT32_MAX


def test_a_rate_is_idle_when_nothing_counts(meter_of):
    meter = meter_of(10, DEFAULT)
    assert meter.is_idle(START_MS)
    meter.charge(1, START_MS)
    assert not meter.is_idle(START_MS + DEFAULT.all_ms - 1)
    assert meter.is_idle(START_MS + DEFAULT.all_ms)


def test_a_new_bound_counts_what_was_charged_before(meter_of):
    meter = meter_of(1000, DEFAULT)
    assert meter.charge(9000, START_MS) == 0
    meter.bound = 100
    assert meter.charge(0, START_MS) == 80_000
    meter.bound = 1000
    assert meter.charge(0, START_MS) == 0


class Plain:
    """A rate as the rules read, with all that was ever recorded; sums by hand."""

    def __init__(self, bound, windows):
        self.bound, self.windows = bound, windows
        self.samples = []  # [start, last, value], newest last; a reused place is forgotten.

    def charge(self, amount, now):
        count, size = self.windows
        if not self.samples:
            self.samples.append([now, now, 0.0])
        if now - self.samples[-1][0] >= size:
            self.samples.append([now, now, 0.0])
            self.samples = self.samples[-(count + 1) :]
        self.samples[-1][1] = now
        self.samples[-1][2] += amount
        for sample in self.samples:
            if now - sample[1] >= count * size:
                sample[:] = [now, now, 0.0]
        total = sum(value for _, _, value in self.samples)
        elapsed = now - min(start for start, _, _ in self.samples)
        elapsed += max(count - 1 - elapsed // size, 0) * size
        elapsed = max(elapsed, 1)
        rate = total / (elapsed / 1000)
        if rate <= self.bound:
            return 0
        return floor((rate - self.bound) / self.bound * elapsed + 0.5)


@pytest.mark.parametrize("seed", range(60))
def test_the_short_way_says_what_the_long_way_says(meter_of, seed):
    rng = random.Random(seed)
    windows = Windows(rng.choice([1, 2, 3, 11]), rng.choice([1000, 2000]))
    bound = rng.choice([1.0, 50.0, 50_000.0, 1e9])
    meter, plain = meter_of(bound, windows), Plain(bound, windows)
    now, throttled = START_MS, 0
    for _ in range(1000):
        now += rng.choice([0, 0, 1, 3, 30, 400, 999, 1000, 1001, 2500, 30_000])
        amount = rng.choice([0, 1, int(bound), bound / 7, bound, bound * 3, bound * 20])
        if rng.random() < 0.2:
            meter.note(amount, now)
            plain.charge(amount, now)
            continue
        is_short = seed % 2 == 1 and meter.takes(amount, now + rng.random())
        wait = 0 if is_short else meter.charge(amount, now)
        assert wait == plain.charge(amount, now)
        throttled += wait > 0
        if wait and rng.random() < 0.5:
            now += min(wait, 100_000)
    assert throttled


def test_sums_do_not_grow_with_time():
    rate = Rate(Windows(3, 1000))
    for now in range(START_MS, START_MS + 100_000, 500):
        rate.record(1, now)
    total, elapsed_ms = rate.measure(START_MS + 99_500)
    assert total == 6
    assert elapsed_ms == 2500
