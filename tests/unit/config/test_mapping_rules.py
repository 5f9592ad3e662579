"""Mapping rules: the user that a certificate's name becomes, and what is refused.

What Kafka's own class makes of many more is in ``tests/e2e/test_principal_names``.
"""

import pytest

from ottla.config.mapping_rules import NAME_CHARACTERS_MAX, NoRuleFits, read_mapping_rules
from tests.principal_names import DN, REFUSED


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", DN),
        (",, DEFAULT", DN),
        ("RULE:^CN=(.*?),OU=.*$/$1/", "kafka1.example.org"),
        ("RULE:^CN=(.*?),OU=.*$/$1/U", "KAFKA1.EXAMPLE.ORG"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$2@$1/L , DEFAULT", "test@kafka1.example.org"),
        ("RULE:^UID=(.*)$/$1/, RULE:.*O=(.*?),.*/$1/L", "ottla"),
        (r"RULE:^CN=(\w+)\..*$/$1\/x/", "kafka1/x"),
        ("RULE:^CN=(.*?),.*$/$1$7/", "kafka1.example.org$7"),
        ("RULE:^CN=(.*?),.*$/$10/", "kafka1.example.org0"),
        ("RULE:^(?<name>.*),O=(.*?),.*$/${name} $2/", "CN=kafka1.example.org,OU=Test Ottla"),
        ("RULE:^cn=(.*)$/$1/,DEFAULT", DN),
        ("RULE:(C.*)/$1/", DN),
    ],
)
def test_mapping_rules_make_users(rules, user):
    assert read_mapping_rules(rules).user_of(DN) == user


@pytest.mark.parametrize("letters", ["Jürgen", "\uff41dmin", "٣", "\u017f"])
def test_a_letter_that_java_does_not_count_makes_nobody_another_user(letters):
    """With Python's letters, whoever has a certificate for one of these names would be let in."""
    rules = read_mapping_rules(r"RULE:(?i)^CN=(\w+|\d+|s),.*$/$1/")
    with pytest.raises(NoRuleFits):
        rules.user_of(f"CN={letters},O=x")


@pytest.mark.parametrize("end", "\n\r\x85\u2028\u2029")
def test_a_line_that_ends_in_a_name_is_nothing_that_a_dot_matches(end):
    with pytest.raises(NoRuleFits):
        read_mapping_rules("RULE:^CN=(.*?),.*$/$1/").user_of(f"CN=admin{end},O=x")
    assert read_mapping_rules("RULE:(?s)^CN=(.).*$/$1/").user_of(f"CN={end},O=x") == end


@pytest.mark.parametrize(("rules", "why"), REFUSED.items())
def test_rules_that_would_mean_something_else_are_refused(rules, why):
    with pytest.raises(ValueError, match=why):
        read_mapping_rules(rules)


@pytest.mark.parametrize(
    ("pattern", "is_slow"),
    [
        ("^(a+)+$", True),
        (r"^CN=([a-z]*\d*)*,OU", True),
        ("^(?:x{1,9}y)*$", True),
        ("^CN=(.*?),.*$", False),
        (r"^CN=(\(a+\))$", False),
        ("^(abc)+$", False),
    ],
)
def test_a_pattern_that_may_take_for_ever_is_known(pattern, is_slow):
    assert bool(read_mapping_rules(f"RULE:{pattern}/x/").slow_patterns()) == is_slow


def test_a_name_that_no_rule_fits_is_nobody():
    with pytest.raises(NoRuleFits, match="no rule"):
        read_mapping_rules("RULE:^UID=(.*)$/$1/").user_of(DN)
    with pytest.raises(NoRuleFits, match="characters"):
        read_mapping_rules("DEFAULT").user_of("CN=" + "a" * NAME_CHARACTERS_MAX)
