"""What a supervisor does when its nodes start, fail, hang, end and are stopped."""

import asyncio
import errno
import socket

import pytest

from ottla.supervision import shared
from ottla.supervision.shared import Doors
from ottla.supervision.supervisor import STOP_SECONDS, NodesFailed

STOP_TIMEOUT_SECONDS = 30


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def test_nodes_are_told_who_they_are_and_the_start_ends_when_all_serve(host):
    supervisor = host.supervise(3)
    starting = asyncio.ensure_future(supervisor.start())
    processes = [await host.welcomed(node) for node in (1, 2, 3)]
    for process in processes[:2]:
        process.is_ready()
    await host.settle()
    assert not starting.done()
    processes[2].is_ready()
    await starting
    data = str(host.directory)
    directories = [each.welcome.texts["log.dirs"] for each in processes]
    assert directories == [data, f"{data}/nodes/2", f"{data}/nodes/3"]
    assert len({each.welcome.inter_broker.port for each in processes}) == 3
    assert len({each.welcome.inter_broker.secret for each in processes}) == 1
    assert all(each.welcome.inter_broker.secret not in repr(each.welcome) for each in processes)
    assert supervisor.data_is_new
    assert supervisor.pids() == {node: 999 + node for node in (1, 2, 3)}
    await supervisor.stop()
    assert [each.heard for each in processes] == [["terminate"]] * 3


async def test_a_single_node_lets_no_others_in(host):
    supervisor = await host.started(1)
    assert host.processes.newest(1).welcome.inter_broker is None
    await supervisor.stop()


@pytest.mark.parametrize("last_words_first", [True, False])
async def test_a_first_start_that_fails_stops_everything_with_its_words(host, last_words_first):
    supervisor = host.supervise(2)
    starting = asyncio.ensure_future(supervisor.start())
    one, two = await host.welcomed(1), await host.welcomed(2)
    one.is_ready()
    two.has_failed(what="cannot use /d", why="it is another's", fix="choose another")
    await host.settle()
    two.end(1, last_words_first=last_words_first)
    with pytest.raises(NodesFailed) as failed:
        await starting
    told = failed.value
    assert (told.what, told.why, told.fix) == (
        "node 2: cannot use /d",
        "it is another's",
        "choose another",
    )
    assert one.heard == ["terminate"]
    assert one.has_ended
    assert supervisor.ports == () or is_free(supervisor.ports[0].door)


async def test_a_first_start_that_ends_without_a_word_is_told_by_its_exit_code(host):
    starting = asyncio.ensure_future(host.supervise(2).start())
    await host.welcomed(1)
    two = await host.welcomed(2)
    two.write_line("Segmentation fault")
    two.end(-11)
    with pytest.raises(NodesFailed, match=r"node 2 ended before it served \(exit code -11\)"):
        await starting
    assert host.lines == ["[node 2] Segmentation fault"]


async def test_a_node_that_ends_comes_back_after_its_pause_and_not_before(host):
    supervisor = await host.started(2)
    for times, pause_seconds in ((2, 0.05), (3, 0.1), (4, 0.2)):
        host.processes.newest(2).end(-9)
        await host.settle()
        host.clock.advance(pause_seconds - 0.01)
        await host.settle()
        assert host.processes.count(2) == times - 1
        host.clock.advance(0.01)
        process = await host.welcomed(2, times)
        assert process.welcome == host.processes.started[1].welcome, "the same node, ports, secret"
        process.is_ready()
        await host.settle()
    assert host.processes.count(1) == 1
    assert not supervisor.failed.is_set()
    await supervisor.stop()


async def test_a_node_that_cannot_come_back_says_why_once_until_the_reason_changes(host, caplog):
    """Its words were heard and dropped: it only ended, for ever."""

    async def ends(times, pause_seconds, *, served=False, **words):
        caplog.clear()
        process = await host.welcomed(2, times)
        if served:
            process.is_ready()
            await host.settle()
        if words:
            process.has_failed(**words)
            await host.settle()
        process.end(1)
        await host.settle()
        told = [each.getMessage() for each in caplog.records if "node 2" in each.getMessage()]
        last = told.pop()
        assert last.endswith(f"it starts again in {pause_seconds:.2f} s")
        assert ("for the same reason" in last) == (bool(words) and not told)
        host.clock.advance(pause_seconds)
        return told

    supervisor = await host.started(2)
    why = {"what": "cannot use /d", "why": "it is node 3's", "fix": "choose another"}
    words = "node 2: cannot use /d: it is node 3's; to mend it: choose another"
    assert await ends(1, 0.05) == []
    assert await ends(2, 0.1, **why) == [words]
    assert await ends(3, 0.2, **why) == []
    assert await ends(4, 0.4, what="no such directory") == ["node 2: no such directory"]
    assert await ends(5, 0.8, **why) == [words]
    assert await ends(6, 1.6, served=True, **why) == [words], "of its service, so it is news"
    await supervisor.stop()


async def test_a_node_that_cannot_be_started_again_for_a_moment_is_tried_again(host):
    """Once all other nodes ended as well: there was no process to be had."""
    supervisor = await host.started(2)
    host.processes.refuses = OSError(errno.EAGAIN, "no process to be had")
    host.processes.newest(1).end(-9)
    await host.settle()
    for pause_seconds in (0.2, 0.4, 0.8):
        host.clock.advance(pause_seconds)
        await host.settle()
    assert not supervisor.failed.is_set()
    host.processes.refuses = None
    host.clock.advance(1.6)
    again = await host.welcomed(1, 2)
    again.is_ready()
    await host.settle()
    assert host.processes.newest(2).heard == []
    await supervisor.stop()


async def test_a_node_that_cannot_be_started_again_by_a_fault_of_ours_ends_all(host):
    supervisor = await host.started(2)
    host.processes.refuses = RuntimeError("a fault")
    host.processes.newest(1).end(-9)
    await host.settle()
    host.clock.advance(0.2)
    await supervisor.failed.wait()
    assert supervisor.failure.what == "node 1 cannot be started again"
    assert "a fault" in supervisor.failure.why
    await supervisor.stop()
    assert host.processes.newest(2).heard == ["terminate"]


async def test_a_stop_starts_nobody_again_that_could_not_be_started(host):
    supervisor = await host.started(2)
    host.processes.refuses = OSError(errno.ENOMEM, "no memory")
    host.processes.newest(1).end(-9)
    await host.settle()
    host.clock.advance(0.2)
    await host.settle()
    host.processes.refuses = None
    await supervisor.stop()
    host.clock.advance(100.0)
    await host.settle()
    assert host.processes.count(1) == 1


async def test_a_silent_node_is_killed_after_half_a_minute_and_comes_back(host):
    supervisor = await host.started(3)
    silent = host.processes.newest(2)
    silent.is_deaf = True  # Stopped by a signal, for example.
    await host.pass_seconds(29, 1, 3)
    assert silent.heard == []
    await host.pass_seconds(2, 1, 3)
    assert silent.heard == ["kill"]
    host.clock.advance(0.2)
    again = await host.welcomed(2, 2)
    again.is_ready()
    await host.settle()
    assert [host.processes.count(node) for node in (1, 2, 3)] == [1, 2, 1]
    await supervisor.stop()


async def test_who_stood_still_himself_kills_nobody_for_it(host):
    supervisor = await host.started(2)
    host.clock.stall(100.0)
    await host.settle()
    await host.pass_seconds(28)
    assert [each.heard for each in host.processes.started] == [[], []]
    await host.pass_seconds(3)
    assert [each.heard for each in host.processes.started[:2]] == [["kill"], ["kill"]]
    await supervisor.stop()


async def test_a_node_that_does_not_serve_yet_may_be_silent(host):
    """It may read a large log after a crash for longer."""
    supervisor = await host.started(2)
    host.processes.newest(2).end(-9)
    await host.settle()
    host.clock.advance(0.2)
    again = await host.welcomed(2, 2)
    await host.pass_seconds(100, 1)
    assert again.heard == []
    await supervisor.stop()


async def test_a_stop_waits_for_all_and_kills_in_the_end_who_does_not_go(host):
    supervisor = await host.started(3)
    deaf = host.processes.newest(3)
    deaf.is_deaf = True
    stopping = asyncio.ensure_future(supervisor.stop())
    await host.settle()
    assert [each.heard for each in host.processes.started] == [["terminate"]] * 3
    assert not stopping.done()
    host.clock.advance(STOP_TIMEOUT_SECONDS + STOP_SECONDS)
    await stopping
    assert deaf.heard == ["terminate", "kill"]


async def test_a_second_ctrl_c_does_not_wait(host):
    supervisor = await host.started(2)
    for process in host.processes.started:
        process.is_deaf = True
    stopping = asyncio.ensure_future(supervisor.stop())
    await host.settle()
    supervisor.kill()
    await stopping
    assert [each.heard for each in host.processes.started] == [["terminate", "kill"]] * 2


async def test_a_stop_during_the_start_ends_who_has_begun(host):
    supervisor = host.supervise(2)
    starting = asyncio.ensure_future(supervisor.start())
    one, two = await host.welcomed(1), await host.welcomed(2)
    await supervisor.stop()
    await asyncio.wait([starting])
    assert one.has_ended
    assert two.has_ended
    assert host.clock.timers() == 0


@pytest.mark.parametrize("moment", ["doors", "metadata", "nodes"])
async def test_a_stop_amid_the_start_waits_for_its_step_and_leaves_nothing(
    host, monkeypatch, moment
):
    """Its metadata's executor was closed under it: a traceback instead of an end in good order."""
    reached, may_go_on = asyncio.Event(), asyncio.Event()
    owner, name = {
        "doors": (Doors, "open_to_nodes"),
        "metadata": (shared, "agree_on_cluster"),
        "nodes": (host.processes, "start"),
    }[moment]
    step = getattr(owner, name)

    async def slow_step(*args, **options):
        reached.set()
        await may_go_on.wait()
        return await step(*args, **options)

    monkeypatch.setattr(owner, name, slow_step)
    supervisor = host.supervise(2)
    starting = asyncio.ensure_future(supervisor.start())
    await reached.wait()
    await stopped_amid(host, supervisor, starting, may_go_on.set)
    assert len(host.processes.started) == (moment == "nodes")


async def test_a_stop_before_the_start_lets_nothing_begin(host):
    supervisor = host.supervise(2)
    await stopped_amid(host, supervisor, asyncio.ensure_future(supervisor.start()), lambda: None)
    assert host.processes.started == []


async def stopped_amid(host, supervisor, starting, go_on):
    """Stop; then nothing runs or listens, and the data can be used again."""
    stopping = asyncio.ensure_future(supervisor.stop())
    await host.settle()
    go_on()
    async with asyncio.timeout(20):
        await stopping
        await starting
    assert all(each.has_ended for each in host.processes.started)
    assert all(is_free(each.door) for each in supervisor.ports)
    assert host.clock.timers() == 0
    another = type(host)(host.directory)
    await (await another.started(2)).stop()


async def test_who_waits_for_his_restart_is_not_started_by_a_stop(host):
    supervisor = await host.started(2)
    host.processes.newest(2).end(-9)
    await host.settle()
    await supervisor.stop()
    host.clock.advance(100.0)
    await host.settle()
    assert host.processes.count(2) == 1


async def test_a_process_that_starts_while_all_stop_is_told_to_end(host):
    supervisor = await host.started(2)
    host.processes.newest(2).end(-9)
    await host.settle()
    host.clock.advance(0.2)  # Its start is a task now, and has not begun.
    await supervisor.stop()
    await host.settle()
    assert all(each.has_ended for each in host.processes.started)


async def test_nodes_in_memory_end_together(host):
    supervisor = await host.started(2, memory=True)
    host.processes.newest(1).end(-9)
    await supervisor.failed.wait()
    assert "it cannot come back" in supervisor.failure.why
    await supervisor.stop()
    assert host.processes.newest(2).heard == ["terminate"]


async def test_a_node_that_speaks_out_of_turn_loses_its_link(host):
    supervisor = await host.started(2)
    process = host.processes.newest(2)
    process._store.tell(120, _number())
    await host.until(lambda: not process._store.link.is_open)
    process.end(1)
    await host.settle()
    host.clock.advance(0.2)
    await host.welcomed(2, 2)
    await supervisor.stop()


def _number():
    from ottla.metadata.remote.messages import Number

    return Number(number=1)
