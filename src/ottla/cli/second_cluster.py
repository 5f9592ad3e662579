"""The other side of a copy or a comparison: a cluster of its own, or the same one."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.cli.profile_files import settings_file
from ottla.cli.run import client_settings
from ottla.cli.waiting import Waiting
from ottla.client.asyncio.cluster import Cluster
from ottla.env.clock import SystemClock


@asynccontextmanager
async def second_cluster(options: Namespace, first: Cluster) -> AsyncIterator[Cluster]:
    """Give the second cluster, which is ``first`` unless options name another. Raises Failure."""
    if options.other_bootstrap is None and options.other_config is None:
        yield first
        return
    own = options.other_config is not None
    settings = client_settings(
        options.other_bootstrap,
        [] if own else options.settings,
        Path(options.other_config) if own else settings_file(options),
        options.timeout,
    )
    async with Cluster(settings, trouble=Waiting(SystemClock())) as cluster:
        yield cluster
