"""The garbage collector is the process's: each test has a process of its own."""

import subprocess
import sys

import pytest

BEGIN = """
import gc, weakref
from ottla.env.clock import ManualClock
from ottla.env.collector import PASSES_PER_COUNT, PATIENCE_SECONDS, Collector

class Circle:
    def __init__(self):
        self.self = self

def passes(count):
    for _ in range(count):
        gc.collect()  # a pass over the oldest generation, as one that comes by itself

gc.disable()
kept = [[] for _ in range(50_000)]
clock = ManualClock()
collector = Collector(clock, more_max=10_000)
collector.start()
gc.set_threshold(0)  # only those of the test

full_passes = 0
# How many passes looked at everything: those that begin with nothing put aside.

def hear(phase, info):
    global full_passes
    full_passes += phase == "start" and gc.get_freeze_count() == 0

gc.callbacks.append(hear)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_survived_a_pass_is_not_looked_at_by_the_next_one():
    run(
        """
assert not gc.get_objects(generation=2)
more = [[] for _ in range(50_000)]
assert len(gc.get_objects(generation=0)) >= 50_000
passes(1)
assert len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=2)) < 1_000
assert gc.isenabled()
"""
    )


def test_what_is_put_aside_goes_when_nobody_refers_to_it():
    run(
        """
class Thing: pass
thing = Thing()
gone = weakref.ref(thing)
passes(1)
del thing
assert gone() is None
"""
    )


@pytest.mark.parametrize("count", [1_000, 200_000])
def test_circles_that_were_put_aside_are_found_when_they_are_many(count):
    run(
        f"""
circles = [Circle() for _ in range({count})]
passes(1)
last = weakref.ref(circles[-1])
del circles
passes(2 * PASSES_PER_COUNT)
assert last() is not None, "it may be a long request"
clock.advance(PATIENCE_SECONDS)
passes(2 * PASSES_PER_COUNT)
is_much = {count} > 100_000
assert (last() is None) == is_much
assert full_passes == is_much
clock.advance(PATIENCE_SECONDS)
passes(2 * PASSES_PER_COUNT)
assert full_passes == is_much, "what is left is the new measure"
"""
    )


def test_a_long_request_is_not_taken_for_circles():
    run(
        """
for _ in range(5):
    request = [[] for _ in range(200_000)]
    passes(PASSES_PER_COUNT)
    clock.advance(PATIENCE_SECONDS / 2)
    del request
    passes(PASSES_PER_COUNT)
    clock.advance(PATIENCE_SECONDS)
assert full_passes == 0
"""
    )
