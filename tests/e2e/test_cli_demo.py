"""``ottla serve --demo``: there is traffic, and a group that lags."""

import json
import signal
import subprocess
import sys
from functools import partial

import pytest

from ottla.config.authorization import STANDARD_AUTHORIZER
from tests.commands import run_command
from tests.conftest import HELD
from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(90)
LOOKS_MAX = 60


def test_the_demo_writes_and_its_group_reads_behind_it():
    command = [sys.executable, "-m", "ottla", "serve", "--memory", "--port", "0", "--demo"]
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        lines = [process.stdout.readline()]
        while "Demo" not in lines[-1]:
            assert lines[-1], process.stderr.read()
            lines.append(process.stdout.readline())
        (kafka,) = (line for line in lines if line.startswith("  Kafka"))
        ottla = partial(run_command, kafka.split()[1])
        code, out, err = ottla("consume", "demo-orders", "--tail", "--from", "earliest", "-n", "5")
        assert code == 0, err
        orders = [json.loads(line) for line in out.splitlines()]
        assert {"id", "who", "total", "at"} <= orders[0].keys()
        for _ in range(LOOKS_MAX):  # Each look takes a while: a process.
            code, out, err = ottla("group", "describe", "demo-billing", "-o", "json")
            if code == 0 and "demo-orders" in out and '"lag": ' in out:
                break
        assert code == 0, err
        assert "demo-orders" in out
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert HELD.sub("", process.stderr.read()).strip() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize(
    "more", [("--nodes", "2"), ("-D", f"authorizer.class.name={STANDARD_AUTHORIZER}")]
)
def test_the_demo_is_refused_where_its_clients_could_not_log_in(more, tmp_path):
    command = [sys.executable, "-m", "ottla", "serve", "--demo", "--data", str(tmp_path / "d")]
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "--demo" in done.stderr
    assert not (tmp_path / "d").exists()
