"""A fault of ours costs the partition that met it: nobody waits for ever, and a stop ends."""

import asyncio

from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.directories.taking_over import TakeOver
from ottla.log.flush import FlushJob

T0 = TopicPartition("t", 0)


async def test_a_fault_in_a_flush_takes_its_partition_and_answers_who_waits(
    node, words, monkeypatch
):
    """The flush never ended, and no other one began: every append waited for ever."""
    run = FlushJob.run

    def fault(job):
        monkeypatch.setattr(FlushJob, "run", run)
        raise MemoryError

    monkeypatch.setattr(FlushJob, "run", fault)  # The first flush saves the leader epoch, too.
    answer = node.append((0, words.batch()))
    stopping = asyncio.ensure_future(node.partition().idle())
    await asyncio.sleep(0)
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "a fault of ours" in node.replica_manager.offline(T0)
    await asyncio.wait_for(stopping, 5)
    other = node.append((1, words.batch()))
    node.executor.run_all()
    assert words.codes(other) == [ErrorCode.NONE]


async def test_a_fault_in_a_move_leaves_the_partition_where_it_is_and_lets_a_stop_end(
    make_node, words, monkeypatch, caplog
):
    node = make_node(log_dirs=("/a", "/b"))
    node.append((0, words.batch()))
    node.executor.run_all()

    def fault(self):
        raise RuntimeError("of ours")

    monkeypatch.setattr(TakeOver, "_put_in_place", fault)
    relocation = node.housekeeper.relocation
    relocation.move(T0, "/b")
    for _ in range(50):
        await asyncio.sleep(0)
        node.executor.run_all()
    assert "t-0 stays where it is, by a fault of ours" in caplog.text
    await asyncio.wait_for(relocation._in_progress.settle(), 5)
    assert node.log_manager.copying == {}
    answer = node.append((0, words.batch()))
    node.executor.run_all()
    assert words.codes(answer) == [ErrorCode.NONE]
    monkeypatch.undo()
    relocation.move(T0, "/b")
    for _ in range(50):
        await asyncio.sleep(0)
        node.executor.run_all()
    assert node.partition().log.directory == "/b/t-0"
