"""A task's message becomes an array without pandas, and nothing else is any different."""

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="extra 'spark' is not installed")

import pyarrow as pa

from ottla.spark.writing.message_array import spare_pandas


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """pyarrow's function, which is there again afterwards."""
    own = pa.array
    monkeypatch.setattr(pa, "array", own)
    return own


@pytest.mark.parametrize("message", [b"", b"x", bytes(range(256)) * 999])
def test_the_array_is_the_one_that_pyarrow_makes(own, message):
    spare_pandas()
    found = pa.array([message])
    found.validate(full=True)
    assert found.equals(own([message]))
    assert found.type == pa.binary()
    assert pa.array is own


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (([b"a", b"b"],), {}),
        ((["a"],), {}),
        (([None],), {}),
        (([],), {}),
        (((b"a",),), {}),
        (([b"a"], pa.large_binary()), {}),
        (([b"a"],), {"type": pa.large_binary()}),
    ],
)
def test_any_other_array_is_pyarrows(own, values, named):
    spare_pandas()
    assert pa.array(*values, **named).equals(own(*values, **named))
    assert pa.array is own


def test_a_task_without_a_message_leaves_one_behind_at_most(own):
    for _ in range(3):
        spare_pandas()
    pa.array([1])
    assert pa.array is own


def test_pandas_is_not_imported():
    code = """
import sys
import pyarrow as pa
from ottla.spark.writing.message_array import spare_pandas
spare_pandas()
pa.record_batch([pa.array([b"message"])], names=["m"])
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
