"""What Spark's Python processes leave out of their search for garbage."""

import subprocess
import sys

import pytest

BEGIN = "import gc, os\nfrom ottla.spark.garbage import set_aside\n"
NEW = """
made = type("Node", (), {})
def cycle():
    one, other = made(), made()
    one.other, other.one = other, one
"""


def run(code, **environment):
    import os

    given = {k: v for k, v in os.environ.items() if k != "SPARK_REUSE_WORKER"} | environment
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, env=given, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_kept_process_searches_what_is_new_only():
    code = "set_aside('a')\nprint(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)"
    assert run(code, SPARK_REUSE_WORKER="1") == ["True", "True"]


def test_a_step_that_is_often_done_is_set_aside_twice():
    """A search for each call is what this is to save."""
    code = """
collect, calls = gc.collect, []
gc.collect = lambda: calls.append(collect())
for _ in range(5):
    set_aside('a')
set_aside('b')
print(len(calls))
"""
    assert run(code, SPARK_REUSE_WORKER="1") == ["3"]


def test_garbage_that_is_made_later_is_found():
    code = f"{NEW}\nset_aside('a')\ngc.collect()\ncycle()\nprint(gc.collect() >= 2)"
    assert run(code, SPARK_REUSE_WORKER="1") == ["True"]


def test_garbage_that_is_there_is_collected_not_kept():
    code = f"""{NEW}
import weakref
gc.disable()
one = made()
one.me = one
there = weakref.ref(one)
del one
set_aside('a')
print(there() is None)"""
    assert run(code, SPARK_REUSE_WORKER="1") == ["True"]


def test_a_users_own_process_is_left_alone():
    assert run("set_aside('a')\nprint(gc.get_freeze_count())") == ["0"]


def test_what_a_writing_task_brings_is_searched_twice_and_then_no_more():
    """A user's own code imports pandas, as here: 30,000 objects."""
    pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
    code = """
from ottla.spark.daemon import preload
preload()
import pyarrow
from ottla.spark.writing import sink, sink_task
sink_task.write_rows = lambda options, rows: options
for number in range(3):
    sink.write_task(None, None, iter(()))
    pyarrow.array([b"what Spark does with the message then"])
    pyarrow.array(["what somebody else does"])
print(len(gc.get_objects()) < 5000)"""
    assert run(code, SPARK_REUSE_WORKER="1") == ["True"]
