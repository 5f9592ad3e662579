"""The rate of a client at its quota, as ``tests.campaigns.quota_rate`` measures it."""

import random

import pytest

from tests.campaigns.quota_rate import grown, of_the_arithmetic

BOUND = 1_000_000


def test_the_arithmetic_lets_pass_what_the_bound_says():
    rate, took = of_the_arithmetic(BOUND, 60)
    assert rate == pytest.approx(BOUND, rel=0.01)
    assert 60 <= took <= 72


@pytest.mark.parametrize("seed", range(20))
def test_there_is_a_figure_however_late_and_long_the_bursts_are(seed):
    """Bursts of any length that begin up to a second late: the rate is that of whole periods."""
    rng = random.Random(seed)
    period, burst = rng.uniform(10.5, 12), rng.uniform(0.1, 11)
    looks, begin = [], rng.uniform(0, 12)
    for tenth in range(900):
        passed = max(tenth / 10 - begin, 0)
        within = min(passed % period, burst) / burst
        looks.append((tenth / 10, BOUND * period * (passed // period + within)))
    rate, took = grown(looks, BOUND, 60)
    assert rate == pytest.approx(BOUND, rel=0.02)
    assert took >= 60
