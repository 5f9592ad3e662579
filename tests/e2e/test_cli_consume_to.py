"""``ottla consume --to``: between two places, on Ottla and on Apache Kafka."""

import json

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topic(ottla, topic_name):
    """One partition: ten records, a second apart."""
    assert ottla("topic", "create", topic_name, "-p", "1", "-c", "retention.ms=-1")[0] == 0
    records = [{"value": str(n), "timestamp": 1_700_000_000_000 + 1000 * n} for n in range(10)]
    text = "".join(json.dumps(each) + "\n" for each in records)
    assert ottla("produce", topic_name, "--jsonl", "-q", text=text)[0] == 0
    return topic_name


@pytest.mark.parametrize(
    ("start", "end", "values"),
    [
        ("earliest", "3", "012"),
        ("4", "6", "45"),
        ("-4", "-2", "67"),
        ("@1700000002000", "@1700000004000", "23"),
        ("earliest", "latest", "0123456789"),
        ("8", "100", "89"),
        ("5", "5", ""),
        ("5", "2", ""),
    ],
)
def test_what_lies_between_two_places_is_shown_and_nothing_else(ottla, topic, start, end, values):
    code, out, err = ottla("consume", topic, "--from", start, "--to", end)
    assert (code, out.split()) == (0, list(values)), err


def test_an_end_is_refused_where_reading_goes_on(ottla, topic):
    for more in (("--tail",), ("--group", topic)):
        assert ottla("consume", topic, "--to", "3", *more)[0] == 2
    assert ottla("consume", topic, "--to", "soon")[0] == 2
