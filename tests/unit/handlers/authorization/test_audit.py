"""The audit log: who was denied what, in lines that nobody can make long, many or his own."""

import logging

import pytest

from ottla.env.clock import ManualClock
from ottla.handlers.authorization.audit import Audit
from ottla.handlers.refusals import KINDS_MAX, Refusals
from ottla.ids import Principal
from ottla.security.access import Accesses
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Authorizer

LINE_MAX = 600


@pytest.fixture
def access_of(caplog):
    caplog.set_level(logging.INFO, logger="ottla.audit")
    audit = Audit(Refusals(ManualClock()))
    accesses = Accesses(Authorizer(super_users=[Principal("User", "root")]), audit.hear)

    def of(name, host="10.0.0.9"):
        return accesses.of(Principal("User", name), host)

    return of


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_denial_is_told_once_and_what_is_allowed_or_quiet_is_not(access_of, caplog):
    eve, root = access_of("eve"), access_of("root")
    for _ in range(1_000):
        assert not eve.may_topic(Operation.READ, "orders")
        assert not eve.may_topic(Operation.READ, "orders", quiet=True)
        assert root.may_topic(Operation.READ, "orders")
    (line,) = lines(caplog)
    assert line == "refused 10.0.0.9: user 'User:eve': may not READ TOPIC 'orders'"


def test_names_write_no_lines_of_their_own_and_no_long_ones(access_of, caplog):
    evil = "x\nrefused 1.2.3.4\x1b[2J\u202e" + "y" * 100_000
    access_of(evil).may_group(Operation.READ, evil)
    access_of(evil).may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, evil)
    for line in lines(caplog):
        assert line.isprintable()
        assert len(line) < LINE_MAX
    assert len(lines(caplog)) == 2


def test_a_walk_over_names_fills_no_log(access_of, caplog):
    eve = access_of("eve")
    for number in range(5 * KINDS_MAX):
        eve.may_topic(Operation.READ, f"orders-{number}")
    assert len(lines(caplog)) == KINDS_MAX + 1
