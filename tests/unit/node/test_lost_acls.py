"""ACLs are lost with the metadata: nothing that they closed is open to everybody."""

import asyncio

import pytest

from ottla.broker import Broker
from ottla.cluster.topics import NewTopic
from ottla.config.authorization import STANDARD_AUTHORIZER
from ottla.config.files import broker_config
from ottla.environment import Environment
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.supervision.shared import Outside, open_data

AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
OPEN = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
REFUSED = "start with -D allow.everyone.if.no.acl.found=false"


async def start(directory, options, *, with_topic=False):
    """Start one node, and stop it."""
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), **options}
    broker = Broker(broker_config(texts), environment=Environment.real(memory=False))
    await broker.start()
    try:
        if with_topic:
            made = asyncio.get_running_loop().create_future()
            broker.node.work.controller.create_topics([NewTopic("t", 1)]).on_done(made.set_result)
            await made
    finally:
        await broker.stop()


async def start_several(directory, options):
    """Open what two nodes share, and close it."""
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), **options}
    data = await open_data(broker_config(texts), 2, Outside.real())
    await data.store.close()


def lose_metadata(directory):
    for each in directory.glob("metadata.sqlite*"):
        each.unlink()


@pytest.mark.parametrize("begin", [start, start_several])
async def test_a_start_that_would_open_all_is_refused(tmp_path, begin):
    await start(tmp_path, OPEN, with_topic=True)
    await begin(tmp_path, OPEN)  # The metadata is there.
    lose_metadata(tmp_path)
    for _ in range(2):
        with pytest.raises(LogDirectoryUnusable) as refused:
            await begin(tmp_path, OPEN)
        assert refused.value.fix.startswith(REFUSED)
    await begin(tmp_path, AUTHORIZER)
    await begin(tmp_path, OPEN)  # Somebody has made the ACLs again, or there were none.


@pytest.mark.parametrize("options", [{}, AUTHORIZER])
async def test_what_stays_closed_or_was_open_is_not_refused(tmp_path, options):
    await start(tmp_path, options, with_topic=True)
    lose_metadata(tmp_path)
    await start(tmp_path, options)
    await start_several(tmp_path, options)


@pytest.mark.parametrize("begin", [start, start_several])
async def test_a_directory_without_partitions_is_not_refused(tmp_path, begin):
    await begin(tmp_path, OPEN)
    lose_metadata(tmp_path)
    await begin(tmp_path, OPEN)


async def test_a_directory_that_cannot_be_read_may_have_partitions(tmp_path):
    (tmp_path / "second").write_bytes(b"no directory")
    both = f"{tmp_path / 'first'},{tmp_path / 'second'}"
    with pytest.raises(LogDirectoryUnusable) as refused:
        await start(both, OPEN)
    assert refused.value.fix.startswith(REFUSED)


async def test_partitions_of_further_nodes_count(tmp_path):
    (tmp_path / "nodes" / "2" / "t-0").mkdir(parents=True)
    with pytest.raises(LogDirectoryUnusable) as refused:
        await start_several(tmp_path, OPEN)
    assert refused.value.fix.startswith(REFUSED)
