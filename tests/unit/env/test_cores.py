import pytest

from ottla.env.cores import cores_within, usable_cores


@pytest.mark.parametrize(
    ("cores", "quota", "usable"),
    [
        (8, "", 8),
        (8, "max 100000\n", 8),
        (8, "250000 100000\n", 2),
        (8, "50000 100000", 1),
        (2, "800000 100000", 2),
        (8, "-1 100000", 8),
        (8, "100000 0", 8),
        (8, "one two three", 8),
    ],
)
def test_the_quota_counts_and_at_least_one_core_is_left(cores, quota, usable):
    assert cores_within(cores, quota) == usable


def test_there_is_at_least_one_here():
    assert usable_cores() >= 1
