"""The short form of tests/campaigns/spark_programs.py: a random program over shared frames."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from tests.campaigns.programs.model import Model, answer, holds
from tests.campaigns.spark_programs import without

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "spark_programs.py"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
def test_a_random_program_over_shared_frames_gives_the_right_rows():
    arguments = ["--programs", "1", "--seed", "11", "--without", "connector"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments], capture_output=True, text=True, timeout=390
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["programs"] == 1
    assert report["rows"] > 0
    assert done.returncode == 0


def test_a_program_without_a_step_is_without_what_was_made_of_it():
    program = [
        ["base", {"subscribe": "@0"}], ["base", {"subscribe": "@1"}], ["restart"],
        ["filter", 0, ["offset", "<", 3]], ["union", 1, 2], ["distinct", 1],
        ["ask", 3, "count"], ["ask", 4, "rows"],
    ]  # fmt: skip
    assert without(program, 3) == [
        *program[:3], ["distinct", 1], ["ask", 2, "rows"],
    ]  # fmt: skip


class OneTopic:
    """What the model takes for the topics: one with three records."""

    def truth(self, name, isolation, *, anew=False):
        assert (name, isolation) == ("t", "read_uncommitted")
        keys = (None, "6B", "6B")
        return [
            {"topic": "t", "partition": 0, "offset": n, "ts": 1000 + n, "tt": 0, "k": key,
             "v": None, "n": None if n == 0 else n, "h": None}
            for n, key in enumerate(keys)
        ]  # fmt: skip


def test_the_model_knows_nulls_as_sql_does():
    model = Model(OneTopic(), ["t"])
    is_key = ["k", "=", "6B"]
    model.steps = [
        ["base", {"subscribe": "t", "includeHeaders": "true"}],
        ["filter", 0, is_key],
        ["filter", 0, ["not", is_key]],
        ["anti", 0, 1, ["k"]],
        ["inner", 0, 0, ["k"]],
        ["semi", 2, 0, ["k"]],
    ]
    offsets = [list(model.rows(frame)["offset"]) for frame in range(6)]
    assert offsets == [[0, 1, 2], [1, 2], [], [0], [1, 2], []]
    assert answer("by key", model.rows(0)) == [(None, 1, 0, 1000, None), ("6B", 2, 3, 1001, 2)]
    null = {"k": None, "offset": 5}
    assert holds(["and", is_key, ["offset", "<", 1]], null) is False
    assert holds(["or", is_key, ["offset", "<", 1]], null) is None
