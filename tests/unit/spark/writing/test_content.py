"""What rows hold as one number: the same in any order and division, another for other rows."""

import importlib.util
import random
from array import array
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records.columnar import row_sums
from ottla.spark.writing import content
from ottla.spark.writing.content import ContentSum
from ottla.spark.writing.identity import Content
from ottla.spark.writing.rows import HEADERS, find_rows, header_buffers, octets

SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)
BYTES = st.none() | st.binary(max_size=20)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.sampled_from(["t", "u"]),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 2**40),
        st.none()
        | st.lists(
            st.tuples(st.text(max_size=2), BYTES).map(
                lambda pair: dict(zip(("key", "value"), pair, strict=True))
            ),
            max_size=3,
        ),
    ),
    max_size=20,
)


def interpreted():
    spec = importlib.util.spec_from_file_location(
        "interpreted", Path(row_sums.__file__).parent / "row_sums.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INTERPRETED = interpreted()


def batch(rows):
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def total(*batches):
    summed = ContentSum()
    for each in batches:
        if each.num_rows:
            summed.add(find_rows(each, topic_given=False))
    return summed.content


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_division_have_no_part_in_it(rows, rng, cut):
    shuffled = (
        random.sample(rows, len(rows)) if not rng else sorted(rows, key=lambda _: rng.random())
    )
    whole = batch(rows)
    assert total(whole).rows == len(rows)
    assert total(batch(shuffled)) == total(whole)
    assert total(whole.slice(0, cut), whole.slice(cut)) == total(whole)


def written(rows):
    """Return what is written of ``rows``, sorted: an empty list of headers is as none."""
    return sorted(repr((*row[:-1], row[-1] or None)) for row in rows)


@given(ROWS, ROWS)
@example([(None, b"", "u", None, 0, None)], [(None, b"", "u", None, 0, [])])
def test_other_rows_are_another_number(rows, others):
    is_same = written(rows) == written(others)
    assert (total(batch(rows)) == total(batch(others))) is is_same


@given(ROWS)
def test_the_interpreted_form_says_the_same(rows):
    compiled = total(batch(rows))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("add_octets", "add_numbers", "add_headers", "total"):
            patch.setattr(content, name, getattr(INTERPRETED, name))
        assert not INTERPRETED.COMPILED
        assert total(batch(rows)) == compiled


def test_a_missing_column_is_one_of_nulls():
    bare = pa.record_batch({"value": [b"a"], "topic": ["t"]})
    full = batch([(b"a", None, "t", None, None, None)])
    assert total(bare) == total(full)
    assert total(full) != total(batch([(b"a", b"", "t", None, None, None)]))
    assert total() == Content(0, 0)


@pytest.mark.parametrize("module", [row_sums, INTERPRETED])
def test_sizes_that_do_not_fit_are_refused(module):
    three = octets(pa.array([b"a", None, b"b"]))
    for count in (2, 4):
        with pytest.raises(ValueError, match="fit"):
            module.add_octets(array("Q", bytes(8 * count)), three, 1)
    with pytest.raises(ValueError, match="shorter"):
        module.add_octets(array("Q", bytes(24)), three._replace(validity=b""), 1)
    with pytest.raises(ValueError, match="fit"):
        module.add_octets(array("Q", bytes(24)), three._replace(data=b"a"), 1)
    headers = header_buffers(pa.array([[{"key": "k", "value": b"v"}]], HEADERS))
    with pytest.raises(ValueError, match="fit"):
        module.add_headers(array("Q", bytes(16)), headers, 1)
