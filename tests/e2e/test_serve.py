"""``ottla serve`` as its user meets it: quick, small, and clear when it cannot start."""

import json
import os
import re
import subprocess
import sys

import pytest

from tools.ottla_peer import OttlaPeer
from tools.wire_client import WireClient, batch, values_of

HEAVY = ["pyspark", "numpy", "pandas", "pyarrow", "rich", "starlette", "typing_extensions"]


def test_start_is_quick_and_idle_memory_is_small(tmp_path):
    peer = OttlaPeer(tmp_path / "data")
    starts = []
    worked_seconds = []
    memory = 0
    try:
        for _ in range(5):
            peer.start()
            starts.append(peer.started_in_seconds)
            worked_seconds.append(peer.cpu_seconds())
            memory = peer.rss_bytes()
            assert peer.stop() == 0
    finally:
        peer.kill9()
    # The promise is 0.3 s on an idle machine. On a busy one the clock measures the others: the
    # processor time of the best of five says what the code costs.
    assert min(worked_seconds) < 0.6, (worked_seconds, starts)  # 0.2 where nothing else runs
    assert memory < 60_000_000


def test_the_broker_imports_nothing_heavy():
    code = "import json, sys; import ottla.broker; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)),
        check=True,
    )
    assert not set(HEAVY) & set(json.loads(done.stdout))


class Watched(OttlaPeer):
    """A broker that prints what it imports."""

    def command(self):
        python, *rest = super().command()
        return [python, "-X", "importtime", *rest]

    def imported(self):
        """Return the names of all modules that were imported, from its start to its end."""
        return set(re.findall(r"^import time:.*\| +(\S+)$", self.log_text(), re.MULTILINE))


MODULES_MAX = 265
"""Of our own, in a broker that nobody uses but for ApiVersions."""
FOR_USERS_ONLY = [
    "hashlib",
    "hmac",
    "ottla.cli.first_users",
    "ottla.cli.secure",
    "ottla.cluster.credentials",
    "ottla.config.jaas",
    "ottla.env.certificates",
    "ottla.handlers.authentication",
    "ottla.handlers.refusals",
    "ottla.security.exchange",
    "ottla.security.plain",
    "ottla.security.scram",
]
FOR_GROUPS_ONLY = [
    "ottla.coordinator.group",
    "ottla.coordinator.making",
    "ottla.coordinator.shard",
    "ottla.coordinator.transaction.coordinator",
    "ottla.node.coordinators",
]
RARE = ["dataclasses", "copy", "random", "json.tool", "urllib.request", "ottla.env.memory_disk"]


def test_a_broker_that_nobody_uses_imports_no_more_than_it_needs(tmp_path):
    peer = Watched(tmp_path / "data")
    try:
        peer.start()
        assert peer.stop() == 0
    finally:
        peer.kill9()
    imported = peer.imported()
    assert {"ottla.broker", "ottla.handlers.apis.api_versions"} <= imported
    assert not imported & {*HEAVY, *FOR_USERS_ONLY, *FOR_GROUPS_ONLY, *RARE}
    ours = {name for name in imported if name.startswith("ottla.")}
    handlers = {name for name in ours if name.startswith("ottla.handlers.apis.")}
    assert handlers == {"ottla.handlers.apis.api_versions"}
    messages = {name.rpartition(".")[2] for name in ours if ".protocol.messages." in name}
    assert messages <= {"api_versions", "produce"}
    assert len(ours) <= MODULES_MAX, sorted(ours)


def test_stop_answers_what_is_in_flight_and_exits_with_0(ottla_server_factory):
    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        client.create_topic("t")
        for number in range(200):
            records = [{"index": 0, "records": batch([b"%d" % number])}]
            data = [{"name": "t", "partition_data": records}]
            client.send_frame(client.encode("produce", 9, acks=-1, timeout=9000, topic_data=data))
        client.decode("produce", 9, client.receive_frame())
        assert server.stop() == 0
        acknowledged = 1
        try:
            while True:
                got = client.decode("produce", 9, client.receive_frame())
                assert got["responses"][0]["partition_responses"][0]["error_code"] == 0
                acknowledged += 1
        except ConnectionError:
            pass
    server.start()
    with WireClient(server.bootstrap) as client:
        (code, end), *_ = client.list_offsets("t", [0])
        assert code == 0
        assert end >= acknowledged
        assert values_of(client.fetch("t")["records"])[0] == (0, b"0")


def test_topics_and_ids_survive_a_restart(ottla_server_factory):
    server = ottla_server_factory()
    with WireClient(server.bootstrap) as client:
        topic_id = client.create_topic("kept", 3, retention_ms="1234567")
        cluster = client.call("describe_cluster", 0)["cluster_id"]
        client.create_topic("gone")
        client.call("delete_topics", 5, topic_names=["gone"], timeout=5000)
    for end in (server.stop, server.kill9):
        end()
        server.start()
        with WireClient(server.bootstrap) as client:
            got = client.call("metadata", 12, topics=None)
            assert [(t["name"], t["topic_id"]) for t in got["topics"]] == [("kept", topic_id)]
            assert len(got["topics"][0]["partitions"]) == 3
            assert client.call("describe_cluster", 0)["cluster_id"] == cluster
            asked = {"resource_type": 2, "resource_name": "kept"}
            keys = {"configuration_keys": ["retention.ms"]}
            told = client.call("describe_configs", 4, resources=[asked | keys])
            assert told["results"][0]["configs"][0]["value"] == "1234567"


def serve(*arguments):
    """Run ``ottla serve`` that must fail; return (exit code, what it said)."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=20,
        env=OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer)),
    )
    return done.returncode, done.stdout + done.stderr


def assert_clear(code, said, *words):
    assert code not in (0, None)
    assert "Traceback" not in said, said
    for word in ("error:", "fix:", *words):
        assert word in said, said


def test_port_in_use_is_one_clear_error(ottla_server, tmp_path):
    code, said = serve("--data", tmp_path / "data", "--port", ottla_server.port)
    assert_clear(code, said, str(ottla_server.port), "in use")


def test_data_directory_in_use_is_one_clear_error(ottla_server):
    code, said = serve("--data", ottla_server.data, "--port", 0)
    assert_clear(code, said, str(ottla_server.data))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_data_directory_is_one_clear_error(tmp_path):
    parent = tmp_path / "locked"
    parent.mkdir(mode=0o500)
    code, said = serve("--data", parent / "data", "--port", 0)
    assert_clear(code, said, "locked")


def test_data_directory_that_is_a_file_is_one_clear_error(tmp_path):
    path = tmp_path / "file"
    path.write_text("not a directory")
    code, said = serve("--data", path, "--port", 0)
    assert_clear(code, said, str(path))


@pytest.mark.parametrize("nodes", [(), ("--nodes", 2)])
@pytest.mark.parametrize("spelling", ["data/", "other/../data", "link"])
def test_one_directory_by_two_paths_is_one_clear_error(tmp_path, spelling, nodes):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    paths = f"{tmp_path}/data,{tmp_path}/{spelling}"
    code, said = serve("-D", f"log.dirs={paths}", "--port", 0, *nodes)
    assert_clear(code, said, f"{tmp_path}/{spelling}", f"the same directory as {tmp_path}/data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    "option", ["no.such.option=1", "num.partitions=many", "num.partitions=-3", "num.partitions"]
)
def test_bad_option_is_one_clear_error(tmp_path, option):
    code, said = serve("--data", tmp_path / "data", "--port", 0, "-D", option)
    assert code not in (0, None)
    assert "Traceback" not in said, said
    assert option.split("=")[0] in said
