"""``ottla consume`` of a topic of which a disk, or a broker, is away."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.commands import run_command
from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def ottla(tmp_path):
    """Commands for a broker that has topic t, of two partitions, whose partition 1 is away."""
    one, two = tmp_path / "one", tmp_path / "two"
    with OttlaPeer(Path(f"{one},{two}")) as peer:
        peer.log_path = tmp_path / "output"
        peer.start()
        run = partial(run_command, peer.bootstrap)
        assert run("topic", "create", "t", "-p", "2")[0] == 0
        for partition in "01":
            assert run("produce", "t", "-p", partition, text=f"{partition}\n")[0] == 0
        peer.stop()
        lost = next(index for index in "01" if (two / f"t-{index}").exists())
        shutil.rmtree(two)
        two.write_text("a disk that is no directory any more")
        peer.start()
        yield partial(run_command, peer.bootstrap), lost


def test_partitions_that_are_offline_are_named_and_the_rest_is_read(ottla):
    run, lost = ottla
    code, out, err = run("consume", "t")
    assert (code, out) == (1, f"{1 - int(lost)}\n")
    assert f"note: t-{lost} is offline; the others are read" in err
    assert f"error: t-{lost} is offline" in err
    code, out, err = run("consume", "t", "-p", lost)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: t-{lost} is offline")
    assert run("consume", "t", "-p", str(1 - int(lost)))[:2] == (0, f"{1 - int(lost)}\n")
