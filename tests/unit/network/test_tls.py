"""TLS between the socket and the connection: the same promises, on the memory net and on TCP."""

import asyncio
import gc
import random
import ssl
import struct
from functools import partial
from types import SimpleNamespace

import pytest

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import ManualClock
from ottla.env.executor import ManualExecutor
from ottla.env.memory_disk import MemoryDisk
from ottla.env.memory_net import MemoryNet, MemoryNetwork
from ottla.env.rng import SeededRng
from ottla.env.server_tls import ServerTls, ServerTlsFiles
from ottla.network.connection import SHARE_BYTES
from ottla.network.frame import ReceiveBudget
from ottla.network.handshakes import STEPS_MAX, WIRE_READ_BYTES, Handshakes
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.network.sealing import WIRE_BYTES
from ottla.network.tls import HANDSHAKE_BYTES_MAX, READ_BYTES_MIN, TlsLayer
from ottla.records.region import Region
from tests.certificates import certificates
from tests.tls_client import TlsClient, trusting

SECONDS = 10.0


@pytest.fixture
async def serve(wires):
    started = []
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    async def start(*, fragments=None, socket_buffer_bytes=64 * 1024, files=None, **fields):
        net = MemoryNet(MemoryNetwork(fragments=fragments, socket_buffer_bytes=socket_buffer_bytes))
        clock, executor, script = ManualClock(), ManualExecutor(), wires.Script()
        limits, notes = Limits(**fields), []
        budget = ReceiveBudget(limits.queued_bytes_max)
        answers = AnswerMemory(1 << 28)
        listener = Listener(
            net=net,
            clock=clock,
            limits=limits,
            budget=budget,
            answers=answers,
            open_dispatch=script.open,
        )
        handshakes = Handshakes(
            executor, clock, seconds=SECONDS, note=lambda host, why: notes.append(why)
        )
        directory = certificates()
        given = {"keystore_file": str(directory / "server.pem"), **(files or {})}
        tls = ServerTls.load(ServerTlsFiles(**given))
        layers = []

        def cover(connection):
            layers.append(TlsLayer(connection, handshakes, tls.open))
            return layers[-1]

        host, port = await listener.start(host="127.0.0.1", port=0, cover=cover)

        async def connect(context=None, *, shakes=True, client=None):
            client = client or TlsClient(context or trusting())
            await net.connect(lambda: client, host=host, port=port)
            if shakes:
                await work(lambda: client.is_shaken and handshakes.count == 0)
            return client

        async def work(condition, turns=20_000):
            """Give the loop and the executor turns until ``condition`` holds."""
            for _ in range(turns):
                if condition():
                    return
                executor.run_all()
                await asyncio.sleep(0)
            raise AssertionError("it did not come to that")

        served = SimpleNamespace(
            answers=answers,
            budget=budget,
            clock=clock,
            connect=connect,
            executor=executor,
            handshakes=handshakes,
            layers=layers,
            listener=listener,
            net=net,
            notes=notes,
            script=script,
            work=work,
        )
        started.append(served)
        return served

    yield start
    for served in started:
        for connection in list(served.listener._connections):
            connection.abort()
        stop = asyncio.ensure_future(served.listener.stop(grace_seconds=0))
        await wires.settle(10)
        served.clock.advance(1)
        await asyncio.wait_for(stop, 5)
        served.executor.run_all()
        assert served.handshakes.count == 0
        assert served.budget.used_bytes == 0, "a connection kept receive memory"
        assert served.answers.used_bytes == 0, "a connection kept memory of answers"
    assert problems == []


@pytest.mark.parametrize("fragments", [None, 1, 2, 3])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_answers_come_in_order_whatever_the_pieces(serve, frame, wires, fragments, version):
    served = await serve(fragments=None if fragments is None else SeededRng(fragments))
    client = await served.connect(trusting(version=version))
    sizes = random.Random(fragments)
    for number in range(40):
        client.send(frame(number, size=sizes.choice([0, 5, 900, 17_000, 300_000])))
    await served.work(lambda: len(client.received) == 40 * 8)
    assert wires.parse(client.received) == list(range(40)) == served.script.seen


@pytest.mark.parametrize("fragments", [None, 5])
@pytest.mark.parametrize("size", [1, 16_384, 16_385, 700_001, 5_000_000])
async def test_answers_of_any_size_arrive_whole(serve, frame, wires, fragments, size):
    served = await serve(fragments=None if fragments is None else SeededRng(fragments))
    data = random.Random(size).randbytes(size)
    file = MemoryDisk().open("/records.log", create=True)
    file.write_at(0, data)
    head = struct.pack(">ii", 4 + size, 1)
    served.script.replies = {1: [head, data], 2: [head, Region(file, 0, size)]}
    client = await served.connect()
    client.send(frame(1), frame(2))
    await served.work(lambda: len(client.received) == 2 * (8 + size))
    assert client.received == (head + data) * 2


async def test_nothing_is_encrypted_ahead_of_a_client_that_does_not_read(serve, frame, settle):
    served = await serve(socket_buffer_bytes=0)
    served.script.replies = {n: [bytes(8_000_000)] for n in range(3)}
    client = await served.connect()
    client.transport.pause_reading()
    client.send(frame(0), frame(1), frame(2))
    await settle(200)
    (layer,) = served.layers
    assert served.script.seen == [0], "what waits to be sent stops the next request"
    assert layer.sealing.unsent_bytes >= 7_000_000
    assert layer.wire.get_write_buffer_size() <= 2 * WIRE_BYTES
    client.transport.resume_reading()
    await served.work(lambda: len(client.received) == 24_000_000)


async def test_a_connection_that_pauses_keeps_little_and_resumes_where_it_was(serve, wires, settle):
    served = await serve(in_flight_max=1)
    served.script.held = set(range(50))
    client = await served.connect()
    client.send(*(wires.frame(n, wires.PRODUCE, size=40_000) for n in range(50)))
    await settle(200)
    assert served.script.seen == [0]
    (layer,) = served.layers
    assert layer._unsealing.kept_bytes <= READ_BYTES_MIN
    assert client.transport.get_write_buffer_size() > 1_000_000, "the rest is not read"
    for number in range(50):
        await served.work(lambda number=number: number in served.script.pending)
        served.script.finish(number)
    await served.work(lambda: len(client.received) == 50 * 8)
    assert wires.parse(client.received) == list(range(50))


async def test_no_more_is_received_than_the_connection_has_room_for(serve, wires, settle):
    """What it does not take is kept here, and counts nowhere: it must be little."""
    served = await serve(in_flight_max=1)
    served.script.held = set(range(300))
    client = await served.connect()
    (layer,) = served.layers
    assert len(layer.get_buffer(-1)) == WIRE_READ_BYTES
    let_go = served.budget.hold(served.budget.limit_bytes // 2 + 1)
    assert len(layer.get_buffer(-1)) == READ_BYTES_MIN
    for number in range(300):
        client.engine.write(wires.frame(number, wires.PRODUCE, size=40))
    client.flush()
    await settle(200)
    assert served.script.seen == [0]
    assert 0 < layer._unsealing.kept_bytes <= READ_BYTES_MIN
    assert not layer.wire.is_reading()
    let_go()
    for number in range(300):
        await served.work(lambda number=number: number in served.script.pending)
        served.script.finish(number)
    await served.work(lambda: len(client.received) == 300 * 8)
    assert wires.parse(client.received) == list(range(300))


async def test_a_connection_at_rest_holds_none_of_its_buffers(serve, wires):
    """A view of the last one would keep it in memory, which nobody counts any more."""
    served = await serve()
    client = await served.connect()
    (layer,) = served.layers
    for at in range(1, 6):  # A record's header in two pieces makes it keep and join.
        client.engine.write(wires.frame(at, size=700_000))
        wire = client.outgoing.read()
        client.transport.write(wire[: at - len(wire)])
        await served.work(lambda: layer._unsealing._missing_bytes or layer._unsealing.kept_bytes)
        client.transport.write(wire[at - len(wire) :])
        await served.work(lambda at=at: len(client.received) == at * 8)
        assert len(layer._unsealing._source) == 0
    (connection,) = served.listener._connections
    buffer = connection._reader._buffer.obj
    assert len(buffer) > 700_000
    connection._reader.release()
    gc.collect()
    assert gc.get_referrers(buffer) == []


async def test_a_client_that_sends_without_end_lets_others_go_first(serve, wires):
    served = await serve()
    client = await served.connect()
    client.send(*(wires.frame(n, size=SHARE_BYTES // 2) for n in range(8)))
    await served.work(lambda: len(client.received) == 8 * 8)
    assert served.script.seen == list(range(8))


# Both ends of the stream.


async def test_a_client_that_has_said_all_gets_its_answers_and_a_goodbye(serve, frame, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    client.notify()
    await settle()
    assert served.script.seen == [1]
    assert not client.is_lost
    served.script.finish(1)
    await served.work(lambda: client.is_lost or client.saw_end)
    assert client.has_notified
    assert len(client.received) == 8


async def test_a_stream_that_ends_without_a_word_is_an_end(serve, frame, settle):
    served = await serve()
    client = await served.connect()
    client.engine.write(frame(1, size=100)[:60])
    client.flush()
    client.transport.write_eof()
    await served.work(lambda: served.listener.connection_count == 0)
    assert served.script.seen == [], "half a frame is never served"
    assert served.notes == []


async def test_what_stands_behind_the_goodbye_is_not_served(serve, frame, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    client.notify()
    client.transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    await settle()
    served.script.finish(1)
    await served.work(lambda: served.listener.connection_count == 0)
    assert served.script.seen == [1]
    assert client.has_notified


async def test_a_broker_that_stops_says_goodbye(serve, frame):
    served = await serve()
    client = await served.connect()
    stop = asyncio.ensure_future(served.listener.stop(grace_seconds=0))
    await served.work(lambda: client.saw_end)
    await stop
    assert client.has_notified


# Handshakes.


async def test_a_client_in_its_handshake_is_closed_in_time(serve, settle):
    served = await serve()
    client = await served.connect(client=TlsClient(trusting(), is_silent=True), shakes=False)
    await settle()
    assert served.handshakes.count == 1
    served.clock.advance(SECONDS - 0.1)
    await settle()
    assert served.handshakes.count == 1
    served.clock.advance(0.2)
    await served.work(lambda: client.saw_end)
    assert served.notes == ["it took too long for the handshake"]


async def test_a_client_that_sends_byte_by_byte_has_the_same_time(serve, settle):
    served = await serve()
    client = TlsClient(trusting(), is_silent=True)
    await served.connect(client=client, shakes=False)
    try:
        client.engine.do_handshake()
    except ssl.SSLWantReadError:
        hello = client.outgoing.read()
    for at in range(30):
        client.transport.write(hello[at : at + 1])
        await settle(3)
        served.clock.advance(SECONDS / 20)
    await served.work(lambda: client.saw_end)
    assert served.executor.waiting == 0, "a record that is not whole is no work"
    assert served.listener.connection_count == 0


async def test_who_connects_too_fast_has_no_handshake(serve, settle):
    """It was done for each connection that was held only to be closed."""
    served = await serve()
    served.listener.arrive = lambda host: 1_000
    clients = [await served.connect(shakes=False) for _ in range(3)]
    await settle()
    assert not served.executor.waiting
    served.listener.arrive = None
    other = await served.connect(shakes=False)
    await served.work(lambda: other.is_shaken)
    assert not any(client.is_shaken for client in clients)
    served.clock.advance(1.0)
    await served.work(lambda: all(client.saw_end or client.is_lost for client in clients))
    await served.work(lambda: served.handshakes.count == 0)


async def test_time_in_which_the_process_stood_still_is_forgiven(serve, settle):
    served = await serve()
    client = await served.connect(client=TlsClient(trusting(), is_silent=True), shakes=False)
    await settle()
    served.clock.stall(SECONDS + 60)
    await settle()
    assert served.handshakes.count == 1
    client.go_on()
    await served.work(lambda: client.is_shaken)


async def test_steps_are_few_at_a_time_and_addresses_take_turns(serve, settle):
    served = await serve()
    flood = [TlsClient(trusting()) for _ in range(5 * STEPS_MAX)]
    for client in flood:
        await served.connect(client=client, shakes=False)
    await settle()
    assert served.executor.waiting == STEPS_MAX
    other = TlsClient(trusting())
    _, port = served.listener._listening[0].address
    served.net.network.join(lambda: other, "elsewhere", ("localhost", port))
    await settle()
    for _ in range(STEPS_MAX + 2):
        served.executor.run_next()
        await settle(5)
    for _ in range(STEPS_MAX + 2):
        served.executor.run_next()
        await settle(5)
    assert other.is_shaken
    assert sum(client.is_shaken for client in flood) < len(flood) / 2
    await served.work(lambda: all(client.is_shaken for client in flood))


async def test_a_client_that_leaves_during_a_step_is_forgotten(serve, settle):
    served = await serve()
    client = await served.connect(shakes=False)
    await settle()
    assert served.executor.waiting == 1
    client.transport.abort()
    await settle()
    assert served.listener.connection_count == served.handshakes.count == 0
    served.executor.run_all()
    other = await served.connect()
    assert other.is_shaken


async def test_a_broker_that_stops_during_a_step_closes(serve, settle):
    served = await serve()
    client = await served.connect(shakes=False)
    await settle()
    await served.listener.drain()
    await settle()
    served.executor.run_all()
    await settle()
    assert client.saw_end or client.is_lost


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
        (struct.pack(">ihhi", 8, 18, 0, 1), "does not speak TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(100), "too large"),
        (b"\x16\x03\x01\x00\x05" + bytes(5), "unexpected message"),
        (b"\x16\x03\x01\x00\x01\x01" * (HANDSHAKE_BYTES_MAX // 6 + 1), "too large"),
    ],
)
async def test_what_is_no_handshake_is_refused(serve, data, why, settle):
    served = await serve()
    client = TlsClient(trusting(), is_silent=True)
    await served.connect(client=client, shakes=False)
    client.transport.write(data)
    await served.work(lambda: served.notes and served.listener.connection_count == 0)
    (note,) = served.notes
    assert why in note
    assert served.script.seen == []


async def test_garbage_after_the_handshake_ends_the_connection(serve, frame):
    served = await serve()
    client = await served.connect()
    client.send(frame(1))
    client.transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    await served.work(lambda: served.listener.connection_count == 0)
    assert served.script.seen == [1]
    assert "its TLS is broken" in served.notes[0]


async def test_records_without_contents_end_the_connection(serve, frame):
    served = await serve()
    client = await served.connect()
    for number in range(100):  # A usual client, with a record for each few bytes.
        for at in range(12):
            client.send(frame(number)[at : at + 1])
    await served.work(lambda: len(client.received) == 800)
    for _ in range(400):
        for _ in range(100):
            client.engine.write(b"\0")
        client.flush()
    await served.work(lambda: served.listener.connection_count == 0)


# Certificates of clients.


@pytest.fixture
def asked():
    return {"client_auth": "required", "trust_file": str(certificates() / "ca.pem")}


@pytest.mark.parametrize("behind", [b"", b"\x17\x03\x03\x00\x20" + bytes(32)])
async def test_a_clients_certificate_is_known_with_its_first_request(serve, asked, frame, behind):
    """Whatever comes with it: the library tells none of a stream that is broken by then."""
    served = await serve(files=asked)
    found = []

    def open_dispatch(peer, entrance):
        def dispatch(view):
            found.append(entrance.certificate)
            return served.script.dispatch(view)

        return dispatch

    served.listener._open_dispatch = open_dispatch
    (listening,) = served.listener._listening
    listening._factory = partial(served.listener._accept, open_dispatch, listening._factory.args[1])
    client = await served.connect(trusting("client"))
    client.engine.write(frame(1))
    client.transport.write(client.outgoing.read() + behind)
    await served.work(lambda: served.script.seen == [1])
    assert found == [ssl.PEM_cert_to_DER_cert((certificates() / "client.crt").read_text())]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        (None, "did not return a certificate"),
        ("stranger", "its certificate was refused"),
        ("expired", "its certificate was refused: certificate has expired"),
    ],
)
async def test_who_must_show_a_certificate_and_cannot_is_refused(serve, asked, name, why, version):
    served = await serve(files=asked)
    client = await served.connect(trusting(name, version=version), shakes=False)
    await served.work(lambda: served.notes and served.listener.connection_count == 0)
    assert why in served.notes[0]
    await served.work(lambda: client.refusal is not None)
    assert "alert" in str(client.refusal)
    assert served.script.seen == []


async def test_a_certificate_may_be_asked_for_and_not_shown(serve, asked, frame):
    served = await serve(files={**asked, "client_auth": "requested"})
    client = await served.connect()
    client.send(frame(1))
    await served.work(lambda: len(client.received) == 8)
    assert served.layers[0].certificate is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions_that_are_not_served_are_refused(serve, version):
    other = {ssl.TLSVersion.TLSv1_2: "TLSv1.3", ssl.TLSVersion.TLSv1_3: "TLSv1.2"}[version]
    served = await serve(files={"versions": (other,)})
    await served.connect(trusting(version=version), shakes=False)
    await served.work(lambda: served.notes and served.listener.connection_count == 0)
    assert served.notes == ["unsupported protocol"]
