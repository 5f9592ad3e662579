"""The pytest plugin: ``ottla_broker``, ``ottla_topic``, ``ottla_group``. Found by its entry point.

Imported in every run of whoever has Ottla installed, so it imports nothing but pytest; the broker
comes with the first test that asks for it. With pytest-xdist each worker has one of its own.
``--ottla-bootstrap`` (or ``$OTTLA_TEST_BOOTSTRAP``) has the same tests run against another cluster.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster
    from ottla.testing.kept_log import KeptLog

BOOTSTRAP = "OTTLA_TEST_BOOTSTRAP"
FIXTURES = frozenset({"ottla_broker", "ottla_topic", "ottla_group"})
LOG_LINES = 200
"""How much of the broker's log a failed test's report shows."""

_broker: pytest.StashKey[Cluster] = pytest.StashKey()
_log: pytest.StashKey[KeptLog] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("ottla", "a broker for tests")
    group.addoption(
        "--ottla-bootstrap",
        metavar="HOST:PORT",
        help=f"run against this cluster, not a broker of the run's own; ${BOOTSTRAP}",
    )
    group.addoption(
        "--ottla-process", action="store_true", help="the broker in a process of its own"
    )
    parser.addini("ottla_config", "broker options, a line each: key=value", type="linelist")


@pytest.fixture(scope="session")
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a running broker; with ``--ottla-bootstrap`` the cluster that is there already."""
    config = request.config
    bootstrap = config.getoption("--ottla-bootstrap") or os.environ.get(BOOTSTRAP)
    if bootstrap:
        from ottla.testing.cluster import Cluster

        with Cluster(bootstrap) as cluster:
            config.stash[_broker] = cluster
            yield cluster
        return
    from ottla.testing.broker import Broker
    from ottla.testing.kept_log import KeptLog

    options = dict(_key_and_value(line) for line in config.getini("ottla_config"))
    with (
        KeptLog() as log,
        Broker(process=config.getoption("--ottla-process"), config=options) as broker,
    ):
        config.stash[_log] = log
        config.stash[_broker] = broker
        yield broker


@pytest.fixture
def ottla_topic(ottla_broker: Cluster) -> Iterator[str]:
    """Give the name of a fresh topic with one partition."""
    name = ottla_broker.create_topic()
    yield name
    if not ottla_broker.is_ottla:  # Our own broker ends with the run, and its topics with it.
        ottla_broker.delete_topic(name)


@pytest.fixture
def ottla_group() -> str:
    """Give the name of a fresh consumer group."""
    from ottla.testing.names import fresh_name

    return fresh_name("group")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's log and last requests to the report of a failed test that used it."""
    report = yield
    if report.failed and FIXTURES.intersection(getattr(item, "fixturenames", ())):
        _tell(item.config, report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the faults that a test leaves, and warn of those that nothing met."""
    broker = item.config.stash.get(_broker, None)
    if broker is None or not broker.is_ottla:
        return
    from ottla.testing.broker import Broker
    from ottla.testing.faults import UnmatchedFault

    assert isinstance(broker, Broker), "it is Ottla"
    if broker.is_running:
        for fault in broker.faults.clear():
            item.warn(UnmatchedFault(f"nothing met {fault.what}"))


def _tell(config: pytest.Config, report: pytest.TestReport) -> None:
    broker = config.stash.get(_broker, None)
    if broker is None or not broker.is_ottla:
        return
    from ottla.testing.broker import Broker
    from ottla.testing.hosts import BrokerFailed

    assert isinstance(broker, Broker), "it is Ottla"
    try:
        faults, requests, log = broker.faults.told(), broker.last_requests(), broker.log()
    except BrokerFailed as error:
        faults, requests, log = [], [str(error)], ""
    kept = config.stash.get(_log, None)
    lines = [*(kept.lines() if kept is not None else ()), *log.splitlines()][-LOG_LINES:]
    if faults:
        report.sections.append(("ottla: faults", "\n".join(faults)))
    report.sections.append(("ottla: the broker's log", "\n".join(lines) or "(empty)"))
    report.sections.append(("ottla: the last requests", "\n".join(requests) or "(none)"))


def _key_and_value(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"ottla_config: {line!r} is not key=value")
    return key.strip(), value.strip()
