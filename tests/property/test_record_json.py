"""Whatever a record holds comes back as it was from the JSON line that ``consume`` prints."""

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.cli.record_json import read_record_json, record_json, rows_json
from ottla.ids import TopicPartition
from ottla.records.record import Record

data = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
names = st.text(st.characters(codec="utf-8"), max_size=8)
headers = st.lists(st.tuples(names, data), max_size=5).map(tuple)
timestamps = st.integers(-1, (1 << 63) - 1)


@given(data, data, headers, timestamps)
@example(b"\xff\xfe\x01", b"\\xff", (("b", b"\xff"), ("b", None), ("b", b"2")), -1)
@example(b'{"base64": "AA=="}', b"\xed\xa0\x80", (), 0)
def test_no_byte_and_no_header_is_lost(key, value, headers, timestamp):
    record = Record(timestamp=timestamp, key=key, value=value, headers=headers)
    line = record_json(TopicPartition("t", 3), record)
    assert b"\n" not in line
    assert (
        rows_json(TopicPartition("t", 3), [(0, timestamp, key, value, headers)] * 2) == [line] * 2
    )
    again = read_record_json(line)
    assert (again.key, again.value, again.headers) == (key, value, headers)
    assert (again.partition, again.timestamp_ms, again.has_key) == (3, timestamp, True)


@given(data, data)
def test_different_bytes_never_look_alike(one, other):
    def shown(value):
        return record_json(TopicPartition("t", 0), Record(value=value, timestamp=0))

    assert (shown(one) == shown(other)) == (one == other)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["key", "value", "headers", "partition", "timestamp", "base64", "x"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
@example(b'{"value": {"base64": "a"}}')
@example(b'{"value": "\\ud800"}')
@example(b'{"headers": [["a"]]}')
@example(b'{"headers": {"\\ud800": "1"}}')
@example(b'{"timestamp": 99999999999999999999}')
@example(b'{"partition": true}')
@example(b"[" * 100_000)
def test_a_line_that_is_wrong_is_refused_in_words(line):
    with suppress(ValueError):  # Nothing else comes out of it.
        read_record_json(line)


@pytest.mark.parametrize(
    ("line", "value"),
    [(b'{"value": {"n": 1}}', b'{"n": 1}'), (b'{"value": 7}', b"7"), (b'{"value": true}', b"true")],
)
def test_a_value_of_json_is_sent_as_its_text(line, value):
    assert read_record_json(line).value == value


def test_headers_may_be_an_object():
    assert read_record_json(b'{"headers": {"a": "1", "b": null}}').headers == (
        ("a", b"1"),
        ("b", None),
    )


texts = st.sampled_from(
    ["0.10", "1e999", "-0", "1E+5", "12345678901234567890.123456789", "true", '{"a":1,"a":2}']
)


@given(st.lists(texts | st.floats(allow_nan=False, allow_infinity=False).map(repr), max_size=3))
@example([])
@example(["[]", "{}", '{"x" : [ 1.50 , null ]}', '"\\"[,"'])
def test_other_json_is_sent_to_the_letter(inner):
    value = "[" + " , ".join(inner) + "]"
    pairs = ",".join(f' [ "h" , {each} ] ' for each in (value, *inner))
    line = f'{{ "headers" : [{pairs}] , "key":{value}\t,\r"value" : {value} }} '
    found = read_record_json(line.encode())
    assert found.key == found.value == value.encode()
    sent = [each if each[0] != '"' else json.loads(each) for each in (value, *inner)]
    assert found.headers == tuple(("h", each.encode()) for each in sent)
    named = read_record_json(f'{{"headers":{{"h" :{value}}}}}'.encode())
    assert named.headers == (("h", value.encode()),)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_is_refused(constant):
    with pytest.raises(ValueError, match="is no JSON"):
        read_record_json(f'{{"value": [{constant}]}}'.encode())
