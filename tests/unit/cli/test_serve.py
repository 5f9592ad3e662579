"""What ``ottla serve`` does around a broker, in this process."""

import asyncio
import gc
import io
import os
import signal
import sys

import pytest

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
