"""What every suite shares: a broker in its own process, Kafka's jars, and the logs of a failure.

``--target ottla`` (the default) or ``--target kafka`` chooses who is tested on the wire, so that
each expectation can be asked of Apache Kafka itself. ``--nodes 3`` puts three nodes in the place of
the one broker that tests share: every test that speaks through a client has to pass all the same.
"""

import asyncio
import contextlib
import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Who is started in the background by a shell ignores SIGINT, and so does whatever it starts: the
# programs under test would not hear Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for tools.*, which is no installed package

from tools import class_archives  # noqa: E402 - it is no installed package

# A slow machine is no failure.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# For `dev.py fast`: a look at each property; CI looks for longer.
settings.register_profile(
    "quick", settings.get_profile("any machine"), max_examples=25, stateful_step_count=25
)
settings.load_profile("any machine")

# Who asks for a loop where none runs would be given one, which nobody closes: the next asyncio.run
# of whatever test drops it, and is blamed. Now who asks is told that there is none.
asyncio.set_event_loop(None)

# JVMs live for seconds to minutes here: they are started for that.
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(class_archives.java_options("spark")))
os.environ.setdefault("OTTLA_KAFKA_JAVA_OPTIONS", " ".join(class_archives.java_options("kafka")))

RUNNING = []


@pytest.fixture(autouse=True)
def no_frozen_garbage():
    """Leave nothing set aside from the garbage collector: Hypothesis looks for its own objects.

    Nor who would set more aside: a test that serves in its own process has a Collector begin there.
    """
    yield
    collector = "ottla.env.collector"
    gc.callbacks[:] = [one for one in gc.callbacks if one.__module__ != collector]
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_loop_is_left_running():
    """Fail the test that leaves a loop running, not the next one that starts a loop of its own."""
    yield
    left = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    assert left is None


DESCRIPTORS = Path("/proc/self/fd")
OPEN = pytest.StashKey[int]()
LEFT = "left to the collector"


def count_descriptors():
    return len(os.listdir(DESCRIPTORS)) if DESCRIPTORS.exists() else 0


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[OPEN] = count_descriptors()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Collect what a test leaves open, so that no other one is blamed; the summary names the owner.

    Only where more is open than before: a collection takes a tenth of a second.
    """
    result = yield
    if count_descriptors() > item.stash.get(OPEN, 0):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        left = [str(one.message) for one in told if one.category is ResourceWarning]
        if left:
            item.user_properties.append((LEFT, left))
    return result


def pytest_terminal_summary(terminalreporter):
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, left in getattr(report, "user_properties", ()):
                if name == LEFT:
                    terminalreporter.write_line(f"{report.nodeid}: {LEFT}: {left}", red=True)


def pytest_addoption(parser):
    parser.addoption("--target", choices=["ottla", "kafka"], default="ottla")
    parser.addoption(
        "--nodes", type=int, default=1, help="so many nodes are behind the shared broker's address"
    )


def pytest_make_parametrize_id(val, argname):
    """Name a long value by its length: as an id it would be in each message about its test."""
    if isinstance(val, bytes | str) and len(val) > 200:
        return f"{argname} of {len(val)}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for peer in RUNNING:
            report.sections.append(
                (f"log of {peer.name} {peer.bootstrap}", peer.log_text()[-8000:])
            )
    return report


def need(reason):
    """Skip here, but fail in CI, where everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_libs():
    """The directory of Apache Kafka's jars."""
    from tools.kafka_peer import KafkaUnavailable, libraries

    try:
        return libraries()
    except KafkaUnavailable as error:
        need(str(error))


@pytest.fixture(scope="session")
def application_libs():
    """The directory of the jars of Kafka Streams and Kafka Connect."""
    from tools.kafka_peer import KafkaUnavailable, application_libraries

    try:
        return application_libraries()
    except KafkaUnavailable as error:
        need(str(error))


@pytest.fixture(scope="session")
def kafka_tool(kafka_libs):
    """Run one of Kafka's command-line classes; return what it printed. It must exit with 0."""
    from tools.kafka_peer import tool_command

    def run(class_name, *arguments, text="", timeout=50, check=True):
        done = subprocess.run(
            tool_command(class_name, *map(str, arguments)),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        output = "\n".join(
            line for line in (done.stdout + done.stderr).splitlines() if "SLF4J" not in line
        )
        if check:
            assert done.returncode == 0, f"{class_name} exited with {done.returncode}: {output}"
        return output

    return run


HELD = re.compile(r"the loop was held for \d+ ms \((\d+) ms of CPU\) by .*")
HELD_MS_MAX = 400
"""Of CPU, so that a busy machine is no failure; what the meter tells may hold 100 ms too many."""


@pytest.fixture(autouse=True)
def no_turn_of_a_shared_loop_is_long():
    """Fail the test that kept a shared broker from serving anybody else."""
    shared = [(peer, len(peer.log_text())) for peer in RUNNING if peer.name.startswith("ottla")]
    yield
    for peer, seen in shared:
        held = list(HELD.finditer(peer.log_text()[seen:]))
        assert all(int(line[1]) < HELD_MS_MAX for line in held), [line[0] for line in held]


LONG_LIVED = {"log.retention.check.interval.ms": 86_400_000}
"""Many a test writes records of 2023: every five minutes they would be deleted under its feet."""


@contextlib.contextmanager
def _peers(directory, make):
    numbers = itertools.count()
    started = []

    def start(options=None, *, data=None, begin=True):
        peer = make(data or directory / f"data-{next(numbers)}", options)
        started.append(peer)
        RUNNING.append(peer)
        if begin:
            peer.start()
        return peer

    try:
        yield start
    finally:
        for peer in started:
            RUNNING.remove(peer)
            peer.kill9()


@pytest.fixture
def ottla_server_factory(tmp_path):
    """Start brokers of a test's own: ``ottla_server_factory({"option": value}, data=None)``."""
    from tools.ottla_peer import OttlaPeer

    with _peers(tmp_path / "ottla", OttlaPeer) as start:
        yield start


@pytest.fixture(scope="session")
def ottla_server(request, tmp_path_factory):
    """One broker for all tests that only add topics of their own to it; default options but one.

    With ``--nodes 3`` it is a cluster of three behind one address.
    """
    from tools.nodes_peer import NodesPeer
    from tools.ottla_peer import OttlaPeer

    nodes = request.config.getoption("--nodes")

    def make(data, options):
        return OttlaPeer(data, options) if nodes == 1 else NodesPeer(data, nodes, options)

    with _peers(tmp_path_factory.mktemp("ottla"), make) as start:
        yield start(LONG_LIVED)


@pytest.fixture
def kafka_server_factory(tmp_path, kafka_libs):
    """Start Apache Kafka nodes of a test's own."""
    from tools.kafka_peer import KafkaPeer

    with _peers(tmp_path / "kafka", KafkaPeer) as start:
        yield start


@pytest.fixture(scope="session")
def target_kind(request):
    """Who is tested: "ottla" or "kafka"."""
    return request.config.getoption("--target")


@pytest.fixture(scope="session")
def target(request, target_kind, tmp_path_factory):
    """The broker under test, as ``--target`` says."""
    if target_kind == "ottla":
        yield request.getfixturevalue("ottla_server")
        return
    request.getfixturevalue("kafka_libs")
    from tools.kafka_peer import KafkaPeer

    with _peers(tmp_path_factory.mktemp("kafka"), KafkaPeer) as start:
        yield start(LONG_LIVED)


@pytest.fixture
def connect(target):
    """Open wire connections to the broker under test; closed at the end of the test."""
    from tools.wire_client import WireClient

    with contextlib.ExitStack() as stack:

        def open_one(peer=None, **options):
            client = WireClient((peer or target).bootstrap, **options)
            return stack.enter_context(client)

        yield open_one


@pytest.fixture
def wire(connect):
    """One wire connection to the broker under test."""
    return connect()


@pytest.fixture
def topic_name(request):
    """A topic name that no other test uses."""
    import uuid

    return f"t-{uuid.uuid4().hex[:12]}"
