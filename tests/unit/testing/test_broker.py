"""A broker for tests, in a thread and in a process, and what it leaves alone."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import ottla
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.records.record import Record
from ottla.testing import Broker, KafkaContainer
from ottla.testing.cluster import NotThereInTime
from ottla.testing.hosts import BrokerFailed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["thread", "process"])
def broker(request):
    config = {"log.retention.ms": "-1"}  # Some tests write old records, one lets days pass.
    with Broker(process=request.param == "process", config=config) as made:
        yield made


def state_of_this_process():
    numbers = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    return {
        "signals": {number: signal.getsignal(number) for number in numbers},
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)),
        "switching": sys.getswitchinterval(),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "policy": asyncio.events._event_loop_policy,
        "loggers": [
            (name, logging.getLogger(name).level, list(logging.getLogger(name).handlers))
            for name in (None, "ottla", "asyncio")
        ],
        "environment": dict(os.environ),
        "directory": os.getcwd(),
    }


def test_a_broker_in_a_thread_changes_nothing_of_this_process(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(1024, soft if soft != resource.RLIM_INFINITY else 1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    try:
        before = state_of_this_process()
        with Broker() as broker:
            broker.produce(broker.create_topic(), "a")
            broker.clock.advance("1d")
            assert state_of_this_process() == before
        assert state_of_this_process() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_thread_is_left_behind():
    before = set(threading.enumerate())
    with Broker() as broker:
        broker.produce(broker.create_topic(), "a")
    assert not [each for each in set(threading.enumerate()) - before if each.is_alive()]


def test_what_is_produced_is_there(broker):
    topic = broker.create_topic(partitions=3)
    written = broker.produce(
        topic, "v", key="k", headers=[("h", b"1"), ("h", None)], partition=2, timestamp=1_000
    )
    assert (written.partition, written.offset) == (2, 0)
    [received] = broker.records(topic)
    assert received == (topic, 2, 0, 1_000, b"k", b"v", (("h", b"1"), ("h", None)))
    assert [each.offset for each in broker.produce_values(topic, ["x", b"y"])] == [0, 1]
    assert [each.value for each in broker.records(topic)] == [b"x", b"y", b"v"]


def test_equal_keys_meet(broker):
    topic = broker.create_topic(partitions=5)
    written = broker.produce_records(topic, [Record(key=b"%d" % (i % 7)) for i in range(50)])
    assert len({(place.partition, i % 7) for i, place in enumerate(written)}) == 7
    assert len(broker.records(topic)) == 50


def test_a_topic_that_is_missing_is_made_by_the_first_record(broker):
    broker.produce("made-by-itself", None, key="k")
    assert broker.records("made-by-itself")[0].value is None


def test_the_lag_counts_what_was_never_committed(broker):
    topic = broker.create_topic(partitions=2)
    broker.produce_values(topic, "abc")
    broker.produce(topic, "d", partition=1)
    assert broker.lag("nobody", topic) == 4


def test_a_wait_ends_with_what_was_missing(broker):
    topic = broker.create_topic()
    broker.produce(topic, "a")
    with pytest.raises(NotThereInTime, match="has 1 records after 30ms, not 2"):
        broker.records(topic, at_least=2, timeout="30ms")
    assert len(broker.records(topic, at_least=1)) == 1
    with pytest.raises(NotThereInTime, match="lags 1 records"):
        broker.wait_until_read("nobody", topic, timeout=0)


def test_a_wait_ends_when_the_record_comes():
    with Broker() as broker:
        topic = broker.create_topic()
        begun = threading.Event()

        def produce_later():
            begun.wait(10)
            broker.produce(topic, "late")

        late = threading.Thread(target=produce_later)
        late.start()
        begun.set()
        assert broker.records(topic, at_least=1)[0].value == b"late"
        late.join()


def test_what_is_missing_is_said(broker):
    with pytest.raises(KafkaError) as caught:
        broker.records("no-such-topic")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = broker.create_topic()
    with pytest.raises(KafkaError) as caught:
        broker.create_topic(topic)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    broker.delete_topic(topic)
    with pytest.raises(KafkaError):
        broker.delete_topic(topic)


def test_the_last_requests_are_told(broker):
    broker.create_topic("told")
    assert "CreateTopics" in broker.last_requests()[-1]
    for _ in range(60):
        broker.lag("g", "told")
    assert len(broker.last_requests()) == 50


def test_a_week_passes_in_a_moment(broker):
    topic = broker.create_topic(config={"retention.ms": str(7 * 86_400_000)})
    broker.produce(topic, "old")
    before = broker.clock.wall_ms()
    broker.clock.advance("6d")
    assert len(broker.records(topic)) == 1
    broker.clock.advance("25h")
    assert broker.records(topic) == []
    assert broker.clock.wall_ms() - before >= (6 * 24 + 25) * 3_600_000
    with pytest.raises(ValueError, match="back"):
        broker.clock.advance(-1)


def test_options_are_the_brokers():
    broker = Broker(config={"auto.create.topics.enable": "false"})
    with broker, pytest.raises(KafkaError):
        broker.produce("not-made", "x")


def test_a_broker_for_tests_is_no_host_of_a_cluster():
    """It passed the option over."""
    with pytest.raises(ValueError, match=r"ottla\.cluster"):
        Broker(config={"ottla.cluster": "etcd://127.0.0.1:2379/prod"})


def test_a_listener_of_another_way_is_refused_and_not_left_out():
    with pytest.raises(ValueError, match="host and port"):
        Broker(config={"listeners": "PLAINTEXT://127.0.0.1:9092"})


def test_data_in_a_directory_is_there_again(tmp_path):
    for process in (False, True):
        with Broker(data=str(tmp_path / "data"), process=process) as broker:
            broker.produce("kept", "x")
    with Broker(data=str(tmp_path / "data")) as broker:
        assert len(broker.records("kept")) == 2


def test_a_broker_may_be_started_again_and_stopped_twice():
    broker = Broker()
    broker.stop()
    with pytest.raises(BrokerFailed):
        broker.last_requests()
    for _ in range(2):
        broker.start()
        assert broker.start() is broker
        broker.produce("t", "x")
        assert len(broker.records("t")) == 1
        broker.stop()
        broker.stop()


@pytest.mark.parametrize("process", [False, True])
def test_a_start_that_fails_says_why_and_leaves_nothing(process, tmp_path):
    before = threading.active_count()
    (tmp_path / "file").write_text("")
    with pytest.raises(OttlaError, match=r"(?i)not a directory"):
        Broker(process=process, data=str(tmp_path / "file" / "data")).start()
    with pytest.raises(Exception, match=r"Unknown broker config name: no\.such\.option"):
        Broker(process=process, config={"no.such.option": "1"}).start()
    assert threading.active_count() == before


async def test_the_context_manager_of_asyncio():
    async with Broker() as broker:
        await asyncio.to_thread(broker.produce, "t", "x")
        assert broker.records("t")
    assert not broker.is_running


def test_a_process_does_not_outlive_the_test():
    code = (
        "import os; from ottla.testing import Broker; b = Broker(process=True).start();"
        "print(b.host._process.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


def test_a_process_that_ended_is_said():
    with Broker(process=True) as broker:
        broker.host._process.kill()
        broker.host._process.wait()
        with pytest.raises(BrokerFailed, match="it ended"):
            broker.clock.advance("1s")


def test_a_program_that_forgets_to_stop_its_broker_ends():
    code = (
        "from ottla.testing import Broker; b = Broker().start(); b.produce('t', 'x');"
        "print(len(b.records('t')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "1\n"
    assert done.stderr == ""


def test_the_container_has_the_methods_of_testcontainers():
    with (
        KafkaContainer("some/image:7")
        .with_kraft()
        .with_env("KAFKA_LOG_RETENTION_MS", "1000")
        .with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092") as kafka
    ):
        server = kafka.get_bootstrap_server()
        assert server == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        assert kafka._config == {"log.retention.ms": "1000"}
        kafka._broker.produce("t", "x")
    kafka.stop()
    with pytest.raises(BrokerFailed):
        KafkaContainer().get_bootstrap_server()


@pytest.mark.parametrize("span", [-1, float("nan"), float("inf"), 1e300, "100000000d"])
def test_a_jump_that_no_clock_makes_leaves_the_broker_as_it_was(broker, span):
    topic = broker.create_topic()
    with pytest.raises((ValueError, BrokerFailed)):
        broker.clock.advance(span)
    broker.produce(topic, "x")
    assert len(broker.records(topic)) == 1


def test_the_child_of_a_fork_leaves_its_parents_broker_alone():
    code = """
import os, sys
from ottla.testing import Broker
from ottla.testing.hosts import BrokerFailed
broker = Broker().start()
topic = broker.create_topic()
broker.faults.drop("Produce", client_id="nobody")
child = os.fork()
if child == 0:
    try:
        broker.last_requests()
    except BrokerFailed as error:
        print(error, flush=True)
    sys.exit(0)  # With what is registered for the end of the program.
assert os.waitpid(child, 0)[1] == 0
broker.produce(topic, "x")
print(len(broker.records(topic)))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, timeout=30, text=True
    )
    assert done.stdout.splitlines() == [
        "the broker runs in the process of which this one is a fork",
        "1",
    ]
    assert done.stderr == ""


def test_many_records_are_written_though_they_are_more_than_a_batch():
    with Broker() as broker:
        topic = broker.create_topic(partitions=2)
        written = broker.produce_values(topic, [f"{number:1000}" for number in range(3000)])
        assert [each.offset for each in written] == list(range(3000))
        assert [int(each.value) for each in broker.records(topic)] == list(range(3000))


def test_headers_may_be_what_the_client_takes():
    with Broker() as broker:
        topic = broker.create_topic()
        broker.produce(topic, "v", headers={"a": "text", "b": None})
        broker.produce(topic, "v", headers=[("a", b"1"), ("a", "2")])
        first, second = broker.records(topic)
    assert first.headers == (("a", b"text"), ("b", None))
    assert second.headers == (("a", b"1"), ("a", b"2"))


def test_a_fork_of_a_test_does_not_ask_the_process_of_a_broker():
    """Child and parent have the same pipes: each would read the answers of the other."""
    with Broker(process=True) as broker:
        fault = broker.faults.drop("Heartbeat")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                broker.last_requests()
            except BrokerFailed:
                broker.stop()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert (fault.struck, broker.records(broker.create_topic())) == (0, [])
        fault.heal()
        broker.faults.forget()


def test_a_broker_whose_port_is_taken_meanwhile_says_so_and_starts_again_later():
    with Broker(process=True) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        topic = broker.create_topic()
        broker.faults.rolling_restart(times=1, away="1s", seed=1)
        taken = None
        with ottla.Client(broker.bootstrap) as client:
            while taken is None:
                with contextlib.suppress(ottla.ClientError):
                    client.produce(topic, "v", timeout=0.1)
                taken = listening(host, int(port))
            with taken:
                said = ""
                while not said:
                    try:
                        broker.last_requests()
                    except BrokerFailed as error:
                        said = str(error)
            assert "did not start again" in said
            broker.restart()
            assert client.produce(topic, "v", timeout=30).offset >= 0


def listening(host, port):
    """Return a socket that has the port; None: somebody has it."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen()
    except OSError:
        found.close()
        return None
    return found
