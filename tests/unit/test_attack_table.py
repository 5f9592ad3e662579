"""Each attack of docs/hostile-clients.md names tests, and there are such tests."""

import re
from pathlib import Path

import pytest

from tests.conformance.wire.test_attacks import ATTACKS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hostile-clients.md"
ATTACKS_COUNT = 56


@pytest.fixture
def named():
    (section,) = re.findall(
        r"## Attacks on logins.*?\n(\| #.*?)\n\n## ", PAGE.read_text(), re.DOTALL
    )
    rows = re.findall(r"^\| (\d+) \| .+ \| ([^|]+) \|$", section, re.MULTILINE)
    return {int(number): re.findall(r"`([^`]+)`", tests) for number, tests in rows}


def test_every_attack_has_a_test(named):
    assert list(named) == list(range(1, ATTACKS_COUNT + 1))
    assert all(named.values())


def test_the_tests_that_are_named_exist(named):
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    floods = {"floods", *(f"floods[{attack.__name__}]" for attack in ATTACKS)}
    missing = {test for tests in named.values() for test in tests} - there - floods
    assert missing == set()


def test_every_flood_is_in_the_table(named):
    tests = {test for tests in named.values() for test in tests}
    assert {f"floods[{attack.__name__}]" for attack in ATTACKS} - tests == set()
