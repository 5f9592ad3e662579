"""What ``ottla serve`` does around a broker, in this process."""

import asyncio
import gc
import os
import signal

from ottla.cli.serve import _serve, read_config


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
