"""Which requests a fault strikes."""

import pytest

from ottla.env.rng import SeededRng
from ottla.testing.rules import Action, Facts, Rule, Rules

PRODUCE, FETCH = 0, 1


def facts(api_key=PRODUCE, client_id="app", groups=(), places=(("t", None), ("t", 0))):
    return Facts(api_key, client_id, frozenset(groups), frozenset(places))


def rules_of(*rules):
    made = Rules(SeededRng(7))
    return made, [made.add(rule) for rule in rules]


def error(**where):
    return Rule(Action.ERROR, where.pop("api_key", PRODUCE), 6, **where)


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        (error(), True),
        (error(api_key=None), True),
        (error(api_key=FETCH), False),
        (error(topic="t"), True),
        (error(topic="t", partition=0), True),
        (error(topic="t", partition=1), False),
        (error(topic="u"), False),
        (error(partition=0), True),
        (error(partition=3), False),
        (error(client_id="app"), True),
        (error(client_id="other"), False),
        (error(group="g"), False),
    ],
)
def test_a_rule_strikes_what_it_names(rule, is_met):
    rules, [number] = rules_of(rule)
    assert rules.strike(facts()) == ([rule] if is_met else [])
    assert rules.struck(number) == is_met


def test_a_group_is_met_by_its_name():
    rules, _ = rules_of(error(group="g"))
    assert rules.strike(facts(groups=["h"])) == []
    assert rules.strike(facts(groups=["g", "h"]))


@pytest.mark.parametrize(
    ("where", "struck"),
    [
        ({}, [0]),
        ({"nth": 3}, [2]),
        ({"nth": 2, "times": 3}, [1, 2, 3]),
        ({"times": None}, list(range(6))),
    ],
)
def test_the_nth_request_and_so_many_after_it(where, struck):
    rules, _ = rules_of(error(**where))
    assert [i for i in range(6) if rules.strike(facts())] == struck
    assert not rules.strike(facts(api_key=FETCH))


def test_a_rate_strikes_some_and_is_repeatable():
    found = []
    for _ in range(2):
        rules, _ = rules_of(error(rate=0.25, times=None))
        found.append([i for i in range(400) if rules.strike(facts())])
    assert found[0] == found[1]
    assert 60 < len(found[0]) < 140
    rules, _ = rules_of(error(rate=0.0, times=None), error(rate=1.0, times=None))
    assert all(len(rules.strike(facts())) == 1 for _ in range(50))


def test_a_healed_rule_strikes_no_more_and_remembers():
    rules, [number, other] = rules_of(error(times=None), error(api_key=FETCH))
    rules.strike(facts())
    assert rules.remove(number) == rules.remove(number) == 1
    assert rules.strike(facts()) == []
    assert rules
    assert (rules.concern(FETCH), rules.concern(PRODUCE)) == (True, False)
    rules.remove(other)
    assert not rules
    assert rules.add(error()) not in (number, other)


def test_several_rules_may_strike_one_request():
    delay = Rule(Action.DELAY, None, seconds=1.0)
    rules, _ = rules_of(delay, error())
    assert rules.strike(facts()) == [delay, error()]
    assert rules.strike(facts()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"nth": 0},
        {"nth": 1.5},
        {"times": 0},
        {"times": "2"},
        {"rate": -0.1},
        {"rate": 1.1},
        {"rate": float("nan")},
        {"topic": 5},
        {"client_id": b"a"},
        {"partition": "0"},
        {"partition": -1},
        {"code": 0},
        {"code": 9999},
        {"action": Action.DELAY, "seconds": 0.0},
        {"action": Action.DELAY, "seconds": float("nan")},
        {"action": Action.DELAY, "seconds": float("inf")},
    ],
)
def test_a_rule_that_can_never_strike_is_refused(wrong):
    given = {"action": Action.ERROR, "api_key": 0, "code": 6, **wrong}
    with pytest.raises(ValueError, match=r"expected|no error code"):
        Rule(**given)
