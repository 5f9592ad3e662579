"""Three replicas agree after any life, and lose nothing that was promised."""

import pytest

from tests.property.replication.lives import Life

pytestmark = pytest.mark.slow

SEEDS = [*range(59), 157]
"""The last one finds a checkpoint of leader epochs that forgets what lies before the log start."""
TOLD = 40
"""So many of the last things that happened are printed when a life fails."""


def live(seed):
    life = Life(seed)
    try:
        life.live()
    except BaseException:
        print(f"seed {seed}:", *life.story[-TOLD:], sep="\n    ")
        raise
    return life


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_agree_after_kills_power_cuts_and_refused_calls(seed):
    live(seed)


def test_a_seed_tells_a_whole_life():
    """Else who repeats a failing seed looks at another life."""
    assert live(3).story == live(3).story
