"""Regular expressions over topic names match as in RE2, are refused as in RE2, and are cheap."""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.consumer import topic_pattern
from ottla.coordinator.group.consumer.topic_pattern import TopicPattern
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("orders-.*", ["orders-", "orders-1"], ["orders", "xorders-1"]),
        ("^a|b$", ["a", "b"], ["ab", ""]),
        ("", [""], ["a"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("a{2}b{1,}", ["aab", "aabbb"], ["ab", "aa"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
        (r"\d+\.\w?", ["12.", "1.x"], ["1x", "x."]),
        ("[a-c_.-]+", ["a-b.c_"], ["d", ""]),
        (r"[^\d]x", ["ax"], ["1x"]),
        ("(?:ab)*?c", ["c", "ababc"], ["abab"]),
        ("(a|b)(c|d)", ["ac", "bd"], ["ab"]),
        ("[]a]", ["]", "a"], ["b"]),
    ],
)
def test_the_whole_name_matches(pattern, names, others):
    compiled = TopicPattern(pattern)
    assert [name for name in names + others if compiled.matches(name)] == names


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("\\", "trailing backslash at end of expression"),
        ("a{1001}", "invalid repeat count"),
        ("x{2,1}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        (r"\1", "invalid escape sequence"),
        (r"\y", "invalid escape sequence"),
        ("[b-a]", "invalid character class range"),
        ("a)", "unexpected )"),
        ("(" * 1000 + ")" * 1000, "expression nests too deeply"),
        ("((a{100}){100}){100}", "expression too large"),
        ("x" * 5000, "expression too large"),
    ],
)
def test_what_cannot_be_read_is_refused_in_re2s_words(pattern, why):
    with pytest.raises(KafkaError) as refused:
        TopicPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.why.endswith(f"is not a valid regular expression: {why}.")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+b", "(a|a)*b", "(.*a){20}b"])
def test_no_expression_explodes(pattern):
    """These take a backtracking matcher longer than the universe has been there."""
    compiled = TopicPattern(pattern)
    started = time.process_time()
    assert not compiled.matches("a" * 249)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("pattern", ["(.*a){90}b", "(.?.?.?.?a.?.?){60}", "(a|b|ab|.*b){80}"])
def test_nobody_waits_for_an_expression_however_many_topics_there_are(pattern):
    names = [f"{'ab' * (number % 100)}{number}" for number in range(20_000)]
    compiled = TopicPattern(pattern)
    started = time.process_time()
    with contextlib.suppress(KafkaError):
        for name in names:
            compiled.matches(name)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    "pattern", ["(?:[a-z]?){999}", f"(?:[{'!-!' * 1350}a-z]?){{999}}", r"(?:[^\WA-Z]?){999}"]
)
def test_others_have_their_turns_amid_a_name(pattern):
    """The second one held the loop for 10 s by one topic with a long name."""
    steps = TopicPattern(pattern).select(["a" * 249])
    longest = 0.0
    with contextlib.suppress(KafkaError, StopIteration):
        while True:
            started = time.process_time()
            next(steps)
            longest = max(longest, time.process_time() - started)
    assert longest < 0.05


def test_others_have_their_turns_amid_names_that_only_cost_look_ups():
    names = ["a" * 32_000] * 64
    turns = list(TopicPattern("a*").select(names))
    assert len(turns) >= 64 * 32_000 / topic_pattern.PAUSE_CHARACTERS / 2


def test_ranges_of_a_class_are_merged():
    compiled = TopicPattern("[b-dc-fx-zm-m]")
    members = [one for one in map(chr, range(32, 127)) if compiled.matches(one)]
    assert members == list("bcdefmxyz")
    negated = TopicPattern("[^b-dc-fx-zm-m]")
    assert [one for one in map(chr, range(32, 127)) if not negated.matches(one)] == members


def test_an_expression_that_costs_too_much_is_given_up(monkeypatch):
    monkeypatch.setattr(topic_pattern, "WORK_MAX", 20)
    compiled = TopicPattern("(.?a.?b){5}")
    with pytest.raises(KafkaError) as refused:
        compiled.matches("ab" * 50)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_what_is_forgotten_is_found_again(monkeypatch):
    monkeypatch.setattr(topic_pattern, "SETS_KEPT_MAX", 3)
    compiled = TopicPattern("(a|b)*abb(a|b){3}c*")
    for _ in range(2):
        assert compiled.matches("ababbaba")
        assert not compiled.matches("abababab")
        assert compiled.matches("abbabbabbccc")


def test_a_usual_expression_may_meet_many_topics():
    compiled = TopicPattern(r"team-(orders|events)\..*-v[0-9]+")
    names = [f"team-orders.{number:x}-v{number}" for number in range(20_000)]
    assert all(map(compiled.matches, names))


PIECES = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\.", r"\w"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}"])).map(
            lambda one: f"(?:{one[0]}){one[1]}"
        ),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda one: f"({one[0]}|{one[1]})"),
    ),
    max_leaves=6,
)


@given(PIECES, st.text("ab.", max_size=7))
def test_it_matches_what_python_matches(pattern, name):
    expected = re.fullmatch(pattern, name) is not None
    assert TopicPattern(pattern).matches(name) == expected
