"""A sync of many logs that fails: nobody hears of success, and the directory is done for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch

CAMPAIGNS = Path(__file__).resolve().parent.parent / "campaigns"
PARTITIONS = 12
STORAGE_ERROR = 56
TOGETHER = f"""
import runpy, sys
sys.path.insert(0, {str(CAMPAIGNS)!r})
from powercuts.cutting import sync_together
sync_together()
sys.argv[0] = "ottla"
runpy.run_module("ottla", run_name="__main__", alter_sys=True)
"""


class TogetherPeer(OttlaPeer):
    """A broker that always syncs by one call what is due at once."""

    def command(self):
        python, _, _, *rest = super().command()
        return [python, "-c", TOGETHER, *rest]


def produce(client, value):
    """Send one record to each partition; return the error codes."""
    parts = [{"index": index, "records": batch([value])} for index in range(PARTITIONS)]
    data = [{"name": "t", "partition_data": parts}]
    answer = client.call("produce", 8, acks=-1, timeout=20_000, topic_data=data)
    return [one["error_code"] for one in answer["responses"][0]["partition_responses"]]


@pytest.mark.skipif(sys.platform != "linux", reason="syncfs is Linux'")
@pytest.mark.parametrize("nth", [1, 3])
def test_nothing_is_acknowledged_after_syncfs_has_failed(tmp_path, nth):
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    peer = TogetherPeer(tmp_path / "data")
    peer.start()
    told = tmp_path / "strace"
    acknowledged = 0
    strace = None
    try:
        with WireClient(peer.bootstrap, timeout_seconds=60) as client:
            client.create_topic("t", PARTITIONS)
            for _ in range(3):  # The first ones write down the leader epochs, too.
                assert produce(client, b"%d" % acknowledged) == [0] * PARTITIONS
                acknowledged += 1
            inject = f"inject=syncfs:error=EIO:when={nth}+"
            command = ["strace", "-f", "-p", str(peer.pid), "-e", "trace=syncfs", "-e", inject]
            strace = subprocess.Popen(
                [*command, "-o", str(told)], stderr=subprocess.PIPE, text=True
            )
            line = strace.stderr.readline()
            if "attached" not in line:
                pytest.skip(f"strace may not attach here: {line}")
            codes = [0] * PARTITIONS
            try:
                while codes == [0] * PARTITIONS and acknowledged < 50:
                    codes = produce(client, b"%d" % acknowledged)
                    acknowledged += codes == [0] * PARTITIONS
                assert acknowledged < 50, "no syncfs was called"
                assert set(codes) == {STORAGE_ERROR}
                assert set(produce(client, b"later")) == {STORAGE_ERROR}
            except (ConnectionError, EOFError):
                pass  # It has lost the directory with its metadata, and ended.
        assert "EIO (Input/output error) (INJECTED)" in told.read_text()
        assert told.read_text().count("INJECTED") == 1, "it was asked again"
        peer.process.wait(20)
    finally:
        if strace is not None:
            strace.kill()
            strace.communicate()
        peer.kill9()
    peer = OttlaPeer(tmp_path / "data")
    peer.start()
    try:
        with WireClient(peer.bootstrap) as client:
            for code, end in client.list_offsets("t", range(PARTITIONS)):
                assert code == 0
                assert end >= acknowledged
    finally:
        peer.kill9()
