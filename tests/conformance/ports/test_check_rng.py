"""What every source of randomness promises."""

import pytest

from ottla.env.rng import SeededRng, SystemRng


@pytest.fixture(params=[SystemRng, lambda: SeededRng(7)])
def rng(request):
    return request.param()


def test_bytes_come_in_the_count_asked_for(rng):
    assert [len(rng.random_bytes(count)) for count in (0, 1, 16, 1000)] == [0, 1, 16, 1000]
    assert rng.random_bytes(16) != rng.random_bytes(16)


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 256, 257, 1 << 70])
def test_integers_stay_below_the_limit(rng, limit):
    assert all(0 <= rng.random_below(limit) < limit for _ in range(200))


def test_every_value_below_the_limit_comes(rng):
    assert {rng.random_below(5) for _ in range(500)} == {0, 1, 2, 3, 4}


def test_a_limit_below_one_is_refused(rng):
    with pytest.raises(ValueError):  # noqa: PT011
        rng.random_below(0)
