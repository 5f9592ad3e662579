"""What a message says that may have been meant."""

import argparse

import pytest

from ottla.cli.arguments import Parser, one_of
from ottla.cli.near import did_you_mean, near_names


def test_names_nearly_right_are_found_however_capitalized():
    known = ("Stable", "Empty", "PreparingRebalance")
    assert near_names("EMPT", known) == ["Empty"]
    assert did_you_mean("stablex", known) == "did you mean Stable?"
    assert did_you_mean("xyz", known) == ""
    assert did_you_mean("order", ("orders", "border"), 2) == "did you mean orders or border?"


def test_one_of_takes_any_capitals_and_names_the_near_one():
    state = one_of("Stable", "Empty")
    assert state("eMPTY") == "Empty"
    with pytest.raises(argparse.ArgumentTypeError, match=r"'Emptyx' .*did you mean Empty\?"):
        state("Emptyx")
    with pytest.raises(argparse.ArgumentTypeError, match="there are Stable, Empty"):
        state("what")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--otput", "json"], "unknown option --otput; did you mean --output?\n"),
        (["--otput=json"], "unknown option --otput; did you mean --output?\n"),
        (["-z"], "unknown option -z\n"),
        (
            ["--otput", "json", "--bogus"],
            "unknown options --otput (did you mean --output?), --bogus\n",
        ),
        (["one", "two"], "too many words: one two\n"),
    ],
)
def test_the_values_of_unknown_options_are_not_called_unknown(typed, said, capsys):
    parser = Parser(prog="ottla")
    parser.add_argument("--output")
    parser.add_argument("--no-header", action="store_true")
    _, unknown = parser.parse_known_args(typed)
    with pytest.raises(SystemExit):
        parser.refuse(unknown)
    assert capsys.readouterr().err.startswith(f"error: {said}")
