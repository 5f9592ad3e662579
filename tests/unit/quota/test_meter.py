"""The extension with the meter, and its two forms side by side."""

import os
import random
import subprocess
import sys

import pytest

from ottla.quota import meter as imported
from ottla.quota.rate import Windows
from tests.unit.quota.forms import COMPILED, INTERPRETED, skip_unless_it_is_there


def test_the_extension_is_built_where_it_must_be():
    if os.environ.get("OTTLA_REQUIRE_COMPILED") != "1":
        pytest.skip("OTTLA_REQUIRE_COMPILED=1 asks for the compiled meter")
    assert imported.COMPILED, "the meter runs interpreted: was there no C compiler?"


def test_without_cython_installed_the_meter_runs_interpreted():
    code = """if True:
        import importlib.util, sys
        sys.modules["cython"] = None
        spec = importlib.util.spec_from_file_location("meter", sys.argv[1])
        meter = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(meter)
        from ottla.quota.rate import Windows
        print(meter.COMPILED, meter.Meter(1.0, Windows()).charge(20, 5000))
    """
    source = imported.__file__.split("meter.")[0] + "meter.py"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, source], capture_output=True, text=True, env=env
    )
    assert done.stdout == "False 10000\n", done.stderr


@pytest.mark.parametrize("seed", range(20))
def test_both_forms_say_the_same_to_the_last_bit(seed):
    """Fractions (percent of time) and whole bytes, in turn and mixed."""
    skip_unless_it_is_there(COMPILED)
    rng = random.Random(seed)
    bound, windows = rng.choice([0.3, 12.5, 1e6]), Windows(rng.choice([2, 11]), 1000)
    meters = [form.meter.Meter(bound, windows, 5000) for form in (COMPILED, INTERPRETED)]
    now = 5_000
    for _ in range(3000):
        now += rng.choice([0, 1, 7, 130, 999, 1000, 4000])
        amount = rng.choice([rng.random(), rng.randrange(5), rng.random() * bound])
        way = rng.choice(["charge", "charge", "charge", "note", "takes", "wait_ms", "is_idle"])
        given = (now,) if way in {"wait_ms", "is_idle"} else (amount, now)
        told = [getattr(meter, way)(*given) for meter in meters]
        assert told[0] == told[1], (way, given)
        assert type(told[0]) is type(told[1])
        if rng.random() < 0.01:
            bound = rng.choice([0.3, 12.5, 1e6])
            for meter in meters:
                meter.bound = bound
        assert meters[0].bound == meters[1].bound
