"""Who may connect, for how long, and how everything ends."""

import asyncio

import pytest

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import ManualClock
from ottla.env.memory_net import MemoryNetwork
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.network.listener import OF_NODES_MAX, Listener


async def test_the_connection_beyond_the_limit_is_closed_at_once(serve, frame, until, settle):
    served = await serve(connections_max=2)
    first, second = await served.connect(), await served.connect()
    third = await served.connect()
    await until(lambda: third.is_lost)
    assert third.saw_end
    first.transport.close()
    await until(lambda: served.listener.connection_count == 1)
    fourth = await served.connect()
    for number, client in enumerate((second, fourth)):
        client.send(frame(number))
    await settle()
    assert (second.numbers, fourth.numbers) == ([0], [1])


async def test_logs_that_need_files_leave_connections_less_room(serve, until):
    served = await serve(connections_max=10)
    room = None
    served.listener._room = lambda: room
    await served.connect()
    room = 1
    refused = await served.connect()
    await until(lambda: refused.is_lost)
    room = 2
    await served.connect()
    await until(lambda: served.listener.connection_count == 2)


async def test_one_host_cannot_take_all_connections(serve, wires, until, settle):
    network = MemoryNetwork()
    served = await serve(net=network.host("server"), connections_per_ip_max=2)
    (_, port) = served.listener._listening[0].address

    async def connect(host):
        _, client = await network.host(host).connect(wires.Client, host="server", port=port)
        await settle()
        return client

    greedy = [await connect("greedy") for _ in range(3)]
    await until(lambda: greedy[2].is_lost)
    other = await connect("other")
    other.send(wires.frame(1))
    greedy[0].send(wires.frame(2))
    await settle()
    assert (other.numbers, greedy[0].numbers) == ([1], [2])
    greedy[1].transport.close()
    await settle()
    again = await connect("greedy")
    again.send(wires.frame(3))
    await settle()
    assert again.numbers == [3]
    for client in (*greedy, other, again):
        client.transport.close()
    await settle()
    assert not served.listener._per_host


async def test_who_is_refused_ten_thousand_times_does_not_fill_the_log(
    serve, wires, settle, caplog
):
    """Each refused connection was a line: a client could fill the disk with them."""
    network, clock = MemoryNetwork(), ManualClock()
    served = await serve(net=network.host("server"), clock=clock, connections_per_ip_max=0)
    (_, port) = served.listener._listening[0].address
    for _ in range(50):
        await network.host("greedy").connect(wires.Client, host="server", port=port)
        await settle()
    assert [each.getMessage() for each in caplog.records] == [
        "refusing greedy: max.connections.per.ip (0)"
    ]
    for _ in range(70):
        clock.advance(1)
    assert [each.getMessage() for each in caplog.records[1:]] == [
        "refusing greedy: max.connections.per.ip: 50 times in a minute"
    ]


@pytest.mark.parametrize("limits", [{"connections_max": 0}, {"connections_max": 10}])
async def test_who_finds_no_place_does_not_fill_the_log(serve, settle, caplog, limits):
    served = await serve(**limits)
    served.listener._room = lambda: 0 if limits["connections_max"] else None
    for _ in range(20):
        await served.connect()
        await settle()
    assert len(caplog.records) == 1


async def test_an_address_may_have_a_limit_of_its_own(serve, wires, until, settle):
    network = MemoryNetwork()
    limits = {"many": 3, "none": 0}
    served = await serve(
        net=network.host("server"), connections_per_ip_max=1, connections_of_ip=limits
    )
    (_, port) = served.listener._listening[0].address

    async def connect(host):
        _, client = await network.host(host).connect(wires.Client, host="server", port=port)
        await settle()
        return client

    for host, most in (("many", 3), ("none", 0), ("other", 1)):
        clients = [await connect(host) for _ in range(4)]
        await settle()
        assert [client.is_lost for client in clients] == [False] * most + [True] * (4 - most)
    assert served.listener.connection_count == 4


async def test_strangers_at_the_nodes_door_do_not_keep_nodes_out(
    serve, frame, wires, until, settle
):
    """512 connections that say nothing filled it, for 10 s each, as often as somebody liked."""
    served = await serve()

    def open_dispatch(peer, entrance):
        entrance.confine(frame_bytes_min=8, frame_bytes_max=4096, seconds=10)

        def let_in(view):
            entrance.let_in(served.script.dispatch)
            return served.script.dispatch(view)

        return let_in

    host, port = await served.listener.start(
        host="127.0.0.1", port=0, open_dispatch=open_dispatch, is_for_nodes=True
    )

    async def connect():
        client = wires.Client()
        await served.net.connect(lambda: client, host=host, port=port)
        await settle(3)
        return client

    node = await connect()
    node.send(frame(1))
    await settle()
    strangers = [await connect() for _ in range(OF_NODES_MAX)]
    another = await connect()
    another.send(frame(2))
    await settle()
    assert (node.numbers, another.numbers) == ([1], [2])
    await until(lambda: sum(one.is_lost for one in strangers) == 2)
    assert strangers[0].is_lost
    assert len(served.listener._of_nodes) == OF_NODES_MAX


async def test_who_connects_above_the_rate_waits_and_is_served(serve, frame, until, settle):
    served = await serve()
    waits = [0, 4000]
    served.listener.pace = lambda name: waits.pop(0)
    first = await served.connect()
    assert served.listener._paced == {}
    second = await served.connect()
    await settle()
    assert list(served.listener._paced) == [""], "further ones stay in the backlog"
    for client in (first, second):
        client.send(frame(1))
    await settle()
    assert (first.numbers, second.numbers) == ([1], [])
    served.clock.advance(3.9)
    await settle()
    assert second.numbers == []
    served.clock.advance(0.2)
    await until(lambda: second.numbers == [1])
    assert served.listener._paced == {}


async def test_who_is_held_takes_no_place_of_others(serve, frame, until, settle):
    """An address above its rate filled ``max.connections`` with connections that nobody serves."""
    served = await serve(connections_max=2, connections_per_ip_max=2)
    holds = [0, 1000, 1000, 1000, 0, 0]
    served.listener.arrive = lambda host: holds.pop(0)
    clients = [await served.connect() for _ in range(5)]
    for client in clients:
        client.send(frame(1))
    await until(lambda: clients[4].numbers == [1])
    await settle()
    assert [client.numbers for client in clients] == [[1], [], [], [], [1]]
    sixth = await served.connect()
    await until(lambda: sixth.is_lost)
    served.clock.advance(1.1)
    await until(lambda: all(client.is_lost for client in clients[1:4]))
    assert served.listener.connection_count == 2
    assert (sum(served.listener._per_host.values()), served.listener._held) == (2, {})
    for client in (clients[0], clients[4]):
        client.transport.close()
    await until(lambda: not served.listener.connection_count)
    assert not served.listener._per_host


async def test_a_listener_with_two_addresses_is_held_up_at_both(serve, wires, settle):
    """A node of several has its own and a shared one; its own went on to accept."""
    served = await serve()
    others = [
        await served.listener.start(host="127.0.0.1", port=0, name=name) for name in ("OUT", "OUT")
    ]
    served.listener.pace = lambda name: 4000 if name == "OUT" else 0

    async def connect(address):
        client = wires.Client()
        await served.net.connect(lambda: client, host=address[0], port=address[1])
        await settle(3)
        return client

    for at, other in ((0, 1), (1, 0)):
        before = at * 4
        await connect(others[at])
        for _ in range(3):
            await connect(others[other])
        assert served.listener.connection_count == before + 1, "further ones stay in the backlog"
        served.clock.advance(3.9)
        await settle()
        assert served.listener.connection_count == before + 1
        served.listener.pace = lambda name: 0
        served.clock.advance(0.2)
        await settle()
        assert served.listener.connection_count == before + 4
        served.listener.pace = lambda name: 4000


async def test_who_waits_for_a_rate_is_let_in_when_it_is_another(serve, frame, until, settle):
    """A rate that was lowered by mistake kept the door shut long after it was raised again."""
    served = await serve()
    served.listener.pace = lambda name: 100_000
    held = await served.connect()
    held.send(frame(1))
    await settle()
    assert held.numbers == []
    served.listener.pace = None
    served.listener.let_in_who_waits()
    await until(lambda: held.numbers == [1])
    new = await served.connect()
    new.send(frame(2))
    await until(lambda: new.numbers == [2])
    assert served.listener._paced == {}
    served.listener.let_in_who_waits()


async def test_another_rate_lets_nobody_in_who_waits_for_more(serve, frame, until, settle):
    """Who is held by its address's quota, or muted by another since, is not let in."""
    served = await serve()
    entrances = []
    usual = served.script.open

    def keep(peer, entrance):
        entrances.append(entrance)
        return usual(peer, entrance)

    (listening,) = served.listener._listening
    listening._factory = lambda: served.listener._accept(keep)
    listening.pause_accepting = lambda: None  # Several are accepted at once.
    waits, holds = [1000, 9000, 9000], [0, 0, 20_000]
    served.listener.pace = lambda name: waits.pop(0)
    served.listener.arrive = lambda host: holds.pop(0)
    first, second, third = [await served.connect() for _ in range(3)]
    for client in (first, second, third):
        client.send(frame(1))
    served.clock.advance(1.5)
    await until(lambda: first.numbers == [1])
    entrances[0].mute(100)
    first.send(frame(2))
    await settle()
    served.listener.let_in_who_waits()
    await until(lambda: second.numbers == [1])
    await settle()
    assert (first.numbers, third.numbers) == ([1], [])


async def test_an_idle_connection_is_closed(serve, frame, until, settle):
    served = await serve(idle_seconds=100)
    idle, busy, waiting = [await served.connect() for _ in range(3)]
    served.script.held = {7}
    waiting.send(frame(7))
    for number in range(3):
        busy.send(frame(number))
        await settle()
        served.clock.advance(49)
    await until(lambda: idle.is_lost)
    assert idle.error is None
    assert not busy.is_lost
    assert not waiting.is_lost, "it is we who keep it waiting"
    assert served.listener.connection_count == 2


async def test_a_frame_that_comes_byte_by_byte_is_cut_off(serve, frame, until, settle):
    served = await serve()
    client = await served.connect()
    request = frame(1, size=1000)
    for second in range(35):
        if client.is_lost:
            break
        client.send(request[second : second + 1])
        await settle()
        served.clock.advance(1)
        await settle(5)
    await until(lambda: client.is_lost)
    assert 29 <= second <= 33
    assert served.script.seen == []


async def test_a_large_frame_may_take_its_time(serve, frame, settle):
    served = await serve(bytes_per_second_min=1000)
    client = await served.connect()
    request = frame(1, size=100_000)
    for start in range(0, len(request), 2000):
        client.send(request[start : start + 2000])
        await settle(5)
        served.clock.advance(1.5)
    await settle()
    assert client.numbers == [1], "75 s for 100 kB: within 30 s + 100 s"


async def test_a_busy_peer_is_not_cut_off_for_its_partial_frames(serve, frame, settle):
    """Every read of a pipelining producer ends inside a frame; each such frame has its own time."""
    served = await serve()
    client = await served.connect()
    stream = b"".join(frame(n, size=92) for n in range(100))
    for start in range(0, len(stream), 150):
        client.send(stream[start : start + 150])
        await settle(5)
        served.clock.advance(1)
    await settle()
    assert client.numbers == list(range(100))


async def test_time_in_which_we_do_not_read_does_not_count_against_a_frame(serve, frame, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1), frame(2), frame(3)[:5])
    await settle()
    served.clock.advance(100)
    await settle()
    served.script.finish(1)
    await settle()
    assert not client.is_lost
    client.send(frame(3)[5:])
    await settle()
    assert client.numbers == [1, 2, 3]


@pytest.mark.parametrize("before_seconds", [0.1, 0.6, 20.0, 28.9])
async def test_time_in_which_this_process_stood_still_does_not_count(
    serve, frame, until, settle, before_seconds
):
    """After SIGSTOP or a sleep of the machine, what was sent meanwhile is unread at first."""
    served = await serve(idle_seconds=30)
    idle, slow, gone = [await served.connect() for _ in range(3)]
    request = frame(2, size=1000)
    slow.send(request[:500])
    await settle()
    served.clock.advance(before_seconds)
    served.clock.stall(600)
    await settle()
    assert not any(client.is_lost for client in (idle, slow, gone))
    idle.send(frame(1))
    slow.send(request[500:])
    await settle()
    assert (idle.numbers, slow.numbers) == ([1], [2])
    served.clock.advance(29)
    await settle()
    assert not idle.is_lost
    served.clock.advance(3)
    await until(lambda: gone.is_lost)


async def test_a_peer_that_reads_after_our_stall_is_not_cut_off(serve, frame, wires, settle):
    served = await serve()
    client = await served.connect()
    client.transport.pause_reading()
    served.script.replies = {n: [wires.answer(n, size=100_000)] for n in range(60)}
    client.send(*(frame(n) for n in range(60)))
    await settle()
    served.clock.advance(2)
    served.clock.stall(3600)
    client.transport.resume_reading()
    await settle()
    served.clock.advance(2)
    await settle(2000)
    assert not client.is_lost
    assert client.numbers == list(range(60))


# The end.


async def test_a_graceful_stop_answers_what_is_in_flight(serve, frame, wires, until, settle):
    served = await serve()
    served.script.held = {1, 2}
    busy, idle = await served.connect(), await served.connect()
    busy.send(frame(1, key=wires.PRODUCE), frame(2, key=wires.PRODUCE), frame(3))
    await settle()
    stopping = asyncio.ensure_future(served.listener.stop(grace_seconds=30))
    await until(lambda: idle.is_lost)
    busy.send(frame(4))
    await settle()
    assert not stopping.done()
    served.script.finish(1, 2)
    await until(stopping.done)
    await until(lambda: busy.is_lost)
    assert busy.numbers == [1, 2], "requests not yet taken are not answered"
    assert served.script.seen == [1, 2]
    assert served.clock.timers() == 0
    with pytest.raises(ConnectionRefusedError):
        await served.connect()


async def test_after_the_grace_what_is_left_is_cut_off(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    await settle()
    stopping = asyncio.ensure_future(served.listener.stop(grace_seconds=5))
    await settle()
    served.clock.advance(4.9)
    await settle()
    assert not stopping.done()
    served.clock.advance(0.2)
    await until(stopping.done)
    await until(lambda: client.is_lost)
    assert isinstance(client.error, ConnectionResetError)


async def test_a_stop_sends_answers_the_peer_is_slow_to_take(serve, frame, wires, until, settle):
    served = await serve(write_buffer_bytes=10_000)
    client = await served.connect()
    client.transport.pause_reading()
    served.script.replies[1] = [wires.answer(1, size=200_000)]
    client.send(frame(1))
    await settle()
    stopping = asyncio.ensure_future(served.listener.stop(grace_seconds=5))
    await settle()
    assert not stopping.done()
    client.transport.resume_reading()
    await until(stopping.done)
    await until(lambda: client.is_lost)
    assert client.numbers == [1]


async def test_a_stop_without_connections_returns_at_once(serve):
    served = await serve()
    await asyncio.wait_for(served.listener.stop(grace_seconds=1000), 1)
    assert served.clock.timers() == 0


async def test_a_connection_made_while_the_listener_stops_is_closed(serve, wires, until):
    served = await serve()
    # What a loop does that has accepted but not yet told the protocol.
    connection = served.listener._accept(served.script.open)
    stopping = asyncio.ensure_future(served.listener.stop(grace_seconds=30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    other_end = await served.net.listen(wires.Client, host="127.0.0.1", port=0, backlog=5)
    await served.net.connect(lambda: connection, host="127.0.0.1", port=other_end.address[1])
    await until(stopping.done)
    await other_end.close()


async def test_a_client_that_comes_early_is_served_once_the_doors_are_open(wires, frame, settle):
    script, net = wires.Script(), MemoryNetwork().host("server")
    limits = Limits()
    listener = Listener(
        net=net,
        clock=ManualClock(),
        limits=limits,
        budget=ReceiveBudget(limits.queued_bytes_max),
        answers=AnswerMemory(1 << 28),
        open_dispatch=script.open,
    )
    host, port = await listener.start(host="127.0.0.1", port=0, paused=True)
    assert port > 0, "who registers must know the port before the doors are open"
    _, client = await net.connect(wires.Client, host=host, port=port)
    client.send(frame(1))
    await settle()
    assert (listener.connection_count, client.numbers) == (0, [])
    listener.open_doors()
    await settle()
    assert client.numbers == [1]
    client.transport.close()
    await settle()
    await listener.stop(grace_seconds=0)
