"""What ``ottla serve`` does around a broker, in this process."""

import asyncio
import gc
import io
import os
import signal
import sys

import pytest

from ottla.cli import main as cli
from ottla.cli import serve, serve_nodes
from ottla.cli.serve import _serve, read_config
from ottla.cli.serving import Listening, ready_lines, tell
from ottla.client.wire.settings import parse_bootstrap


async def test_memory_is_collected_again_once_the_broker_serves(tmp_path):
    config = read_config(None, [], data=str(tmp_path / "data"), port=0)
    serving = asyncio.create_task(_serve(config, memory=True, quiet=True))
    try:
        while not gc.get_freeze_count():
            assert not serving.done()
            await asyncio.sleep(0)
        assert gc.isenabled()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    finally:
        gc.enable()
        gc.unfreeze()


@pytest.mark.parametrize("told", ["--cluster", "-D", "--config"])
@pytest.mark.parametrize("other", ["--memory", "--demo", "--secure", "--nodes"])
def test_one_of_several_hosts_is_nothing_else_however_it_is_told(
    tmp_path, monkeypatch, capsys, told, other
):
    """As an option it was passed over: several nodes served with metadata of their own."""
    for module, name in ((serve, "_run"), (serve_nodes, "run_nodes")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it serves"))
    monkeypatch.chdir(tmp_path)
    address = "etcd://127.0.0.1:2379/prod"
    (tmp_path / "server.properties").write_text(f"ottla.cluster={address}\n")
    value = {"-D": f"ottla.cluster={address}", "--config": "server.properties"}.get(told, address)
    with pytest.raises(SystemExit) as ended:
        cli.command_line(["serve", told, value, other, *(["2"] if other == "--nodes" else [])])
    name = told if told == "--cluster" else "ottla.cluster"
    assert ended.value.code == 2
    assert f"{other} and {name} exclude each other" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["server.properties"]


@pytest.mark.parametrize(
    ("host", "shown", "reached"),
    [
        ("::1", "[::1]:31110", "[::1]:31110"),
        ("127.0.0.1", "127.0.0.1:31110", "127.0.0.1:31110"),
        ("::", "[::]:31110", "127.0.0.1:31110"),
        ("", "*:31110", "127.0.0.1:31110"),
        ("0.0.0.0", "0.0.0.0:31110", "127.0.0.1:31110"),
    ],
)
def test_the_address_that_is_told_can_be_used(host, shown, reached):
    told = ready_lines(
        node_id=1,
        cluster_id="c",
        listeners=[Listening("PLAINTEXT", host, 31110)],
        data=None,
        data_is_new=True,
        is_durable=True,
        milliseconds=1,
    )
    assert f"Kafka    {shown} " in told
    assert f"produce hello -b {reached} " in told
    assert f"kcat -b {reached} " in told
    assert str(parse_bootstrap(reached)[0]) == reached


def test_the_first_lines_fit_a_narrow_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    told = ready_lines(
        node_id=1,
        cluster_id="-z11M4wSJT5UXMOkRks4Pg",
        listeners=[Listening("PLAINTEXT", "127.0.0.1", 44497)],
        data=None,
        data_is_new=True,
        is_durable=True,
        milliseconds=540,
    )
    monkeypatch.setenv("COLUMNS", "60")
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        tell(told)
        if stream.isatty():
            lines = stream.getvalue().splitlines()
            assert max(map(len, lines)) <= 60
            assert "           kcat -b 127.0.0.1:44497 -L" in lines
        else:
            assert stream.getvalue() == f"{told}\n"
