"""Which records a condition finds; and that the sieve before it never hides one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_where import compile_where
from ottla.records.rows import pack_rows


def found(condition, *, key=None, value=None, headers=(), offset=0, time=0):
    where = compile_where([condition], None, None)
    row = (offset, time, key, value, headers)
    is_found = where.matching([row]) == [row]
    whole = b"\0".join([key or b"", value or b"", *(n.encode() + (v or b"") for n, v in headers)])
    assert where.may_hold(whole) or not is_found, condition
    return is_found


JSON = (
    b'{"id": 12, "a": {"b c": [1, {"d": "x\\u0041"}]}, "n": null, "t": true, "s": "12", "f": 1.5}'
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("value.id = 12", True),
        ("value.id == 12.0", True),
        ("value.id = 1", False),
        ('value.id = "12"', False),
        ("value.s = 12", True),
        ('value.s = "12"', True),
        ("value.id != 12", False),
        ("value.nowhere != 12", True),
        ("value.id >= 12", True),
        ("value.id > 12", False),
        ("value.s > 3", False),
        ('value.a["b c"][0] = 1', True),
        ('value.a["b c"][1].d = xA', True),
        ('value.a["b c"][*] = 1', True),
        ('value.a["b c"][7] = 1', False),
        ("value.n", False),
        ("value.n = null", True),
        ("value.s = null", False),
        ("value.t = true", True),
        ("value.t = 1", False),
        ("value.a", True),
        ("value.id.x", False),
        ("value.s ~ ^1.$", True),
        ("value.s !~ ^1", False),
        ("value.f = 1.5", True),
        ('value.a["b c"][1].d contains A', True),
        ("value.id contains 1", False),
    ],
)
def test_a_path_looks_into_json(condition, expected):
    assert found(condition, value=JSON) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("key = k1", True),
        ('key = "k1"', True),
        ("key != k1", False),
        ("key = 0x6b31", True),
        ("key", True),
        ("value", False),
        ("value = null", True),
        ("value != null", False),
        ("header.h = a", True),
        ("header.h = b", True),
        ("header.h != a", False),
        ("header.none != a", True),
        ("header.h", True),
        ("header.none", False),
        ('header["x y"] = null', True),
        ("header.h ~ [bc]", True),
        ("key ~ ^k", True),
        ("key !~ ^k", False),
        ("key contains 1", True),
        ("key < k2", True),
        ("key < 3", False),
        ("offset >= 7", True),
        ("offset != 7", False),
        ("timestamp = 5", True),
        ("value.id = 1", False),
    ],
)
def test_bytes_headers_and_numbers(condition, expected):
    headers = (("h", b"a"), ("h", b"b"), ("x y", None))
    assert found(condition, key=b"k1", headers=headers, offset=7, time=5) is expected


def test_what_is_no_json_matches_no_path():
    for data in (b"{", b"\xff\xfe", b"[" * 100_000, b""):
        assert not found("value.id = 1", value=data)
        assert found("value.id != 1", value=data)


def test_a_partition_is_judged_before_its_batches_are_opened():
    where = compile_where(["partition = 3", "key = a"], None, None)
    assert where.allows(3)
    assert not where.allows(2)


@pytest.mark.parametrize(
    "text",
    [
        "", "id = 1", "value.id >", "value.id 5", "value ~ (", "header = 1", "header[0] = 1",
        "offset = x", "offset ~ 1", "partition.a = 1", "value.id < true", "key < null",
    ],
)  # fmt: skip
def test_a_condition_that_means_nothing_is_refused(text):
    with pytest.raises(ValueError, match=r"\S"):
        compile_where([text], None, None)


SCALARS = st.one_of(
    st.integers(-50, 50),
    st.sampled_from([0, 12, 1200]),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.text(max_size=4),
    st.booleans(),
    st.none(),
)


@given(value=SCALARS, ascii_only=st.booleans(), name=st.text(min_size=1, max_size=3))
def test_the_sieve_hides_no_match_however_json_is_spelled(value, ascii_only, name):
    try:
        data = json.dumps({name: value}, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    literal = json.dumps(value)
    assert found(f"value[{json.dumps(name)}] = {literal}", value=data)


@pytest.mark.parametrize("spelling", [b"1200", b"12e2", b"1.2E3", b"1200.0", b'"\\u0031200"'])
def test_a_whole_number_is_found_in_each_spelling(spelling):
    assert found("value.n = 1200", value=b'{"n":' + spelling + b"}")


@given(st.text(st.characters(max_codepoint=0x2FF), min_size=1, max_size=4), st.booleans())
def test_the_sieve_hides_no_text_that_has_escapes(text, ascii_only):
    spelled = json.dumps(text, ensure_ascii=ascii_only).replace("/", "\\/").encode()
    assert found(f"value.a = {json.dumps(text)}", value=b'{"a":' + spelled + b"}")
    assert found(f"value.a contains {json.dumps(text)}", value=b'{"a":' + spelled + b"}")


def test_a_batch_of_many_records_without_the_text_is_not_taken_apart():
    rows = [(n, b"k%d" % n, b'{"user": "user-%d"}' % n, ()) for n in range(10_000)]
    payload = bytes(pack_rows(rows))
    assert b"\\" in payload  # It is a length or a distance: not an escape.
    for condition in ("value.user = nobody", "value.user contains x-", "value.other = user-7"):
        assert not compile_where([condition], None, None).may_hold(payload), condition
    assert compile_where(["value.user = user-77"], None, None).may_hold(payload)
