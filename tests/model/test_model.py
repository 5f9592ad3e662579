"""The protocol of several replicas holds in the model, and each of its rules is needed there."""

from pathlib import Path

import pytest

from tests.model.happenings import OFTEN, RARE
from tests.model.mutants import MUTANTS, Stale, planted
from tests.model.protocol import first_state
from tests.model.walks import Broken, everywhere, follow, possible, walk

WALKS = 500
"""Two seconds. Without a rule most of the mutants are found within so many."""


def read_ways(text):
    """Return by mutant the names of the steps that break it."""
    parts = [part.strip().split("\n") for part in text.split("\n= ")[1:]]
    return {name: steps for name, *steps in parts}


WAYS = read_ways(Path(__file__).with_name("ways.txt").read_text())


@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_is_needed(name):
    with planted(name), pytest.raises(Broken) as broken:
        follow(WAYS[name])
    assert broken.value.names == WAYS[name], "some steps are not possible any more"


@pytest.mark.parametrize("name", MUTANTS)
def test_the_same_way_breaks_nothing_with_the_rule(name):
    assert follow(WAYS[name])


def test_random_ways_break_nothing_and_everything_happens_on_them():
    happened = set()
    acknowledged = 0
    for number in range(WALKS):
        count, names = walk(f"suite.{number}")
        acknowledged += count
        happened.update(name.partition(" ")[0] for name in names)
    assert happened == {*RARE, *OFTEN}
    assert acknowledged > WALKS


def test_every_way_of_a_few_steps_breaks_nothing():
    count, depth = everywhere(8_000)
    assert count >= 8_000
    assert depth >= 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_many_random_ways_break_nothing():
    for number in range(2_000):
        walk(f"slow.{number}", steps=100)


def walk_often(walks):
    for number in range(walks):
        walk(f"suite.{number}")


def test_random_ways_find_a_rule_that_is_missing():
    with planted("the heard configuration decides, not the ELR"), pytest.raises(Broken):
        walk_often(WALKS)


def test_a_step_has_one_name():
    state = first_state()
    for name in ("produce 0", "fetch 1>0", "shrink 0-2", "fetch 2>0", "expire 1"):
        state = possible(state)[name](state)
    names = [*possible(state)]
    assert len(names) == len({*names})
    assert "request 1 #1" in names
    assert "commit 0 #1" in names


def test_a_mutant_of_code_that_moved_on_is_an_error(monkeypatch):
    function, _, after = MUTANTS["a small ISR commits"]
    monkeypatch.setitem(MUTANTS, "a small ISR commits", (function, "no such text", after))
    with pytest.raises(Stale), planted("a small ISR commits"):
        pass
