from argparse import ArgumentTypeError

import pytest

from ottla.cli.arguments import whole
from ottla.cli.start import start_timestamp
from ottla.client.wire.offsets import EARLIEST, LATEST

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("5", None),
        ("-10", None),
        ("-5m", NOW_MS - 300_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("@123", 123),
        ("2023-11-14T22:13:20+00:00", NOW_MS),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("1969-12-31T00:00", 0),  # else one of Kafka's names of places
        ("@99999999999999999999", (1 << 63) - 1),
    ],
)
def test_places(text, expected):
    assert start_timestamp(text, NOW_MS) == expected


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "-5x", "@x", "1.5", "\u0663", "-\u0663", "@\u0663", "-\u0663m"]
)
def test_what_is_no_place_is_told(text):
    with pytest.raises(ValueError, match=r"is not|does not begin"):
        start_timestamp(text, NOW_MS)


def test_digits_of_other_scripts_are_no_numbers():
    for text in ("\u0663", "1_0", " 1", "+1", ""):
        with pytest.raises(ArgumentTypeError, match="not a whole number"):
            whole(text)
    assert (whole("12"), whole("-3")) == (12, -3)
