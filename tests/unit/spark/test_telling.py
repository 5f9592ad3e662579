"""Errors for people are told by Spark without a traceback; faults keep theirs."""

import os

import pytest

from ottla.errors import OttlaError
from ottla.spark.telling import HIDE, telling, telling_each


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    monkeypatch.delenv(HIDE, raising=False)
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "s")


def fails_with(error):
    def work():
        raise error

    return work


def yields_and_fails_with(error):
    yield 1
    raise error


def test_an_error_for_people_is_told_alone():
    with pytest.raises(OttlaError):
        telling(fails_with(OttlaError("give the option subscribe")))()
    assert os.environ.pop(HIDE) == "1"
    with pytest.raises(OttlaError):
        list(telling_each(yields_and_fails_with(OttlaError("gone"))))
    assert os.environ[HIDE] == "1"


def test_a_fault_keeps_its_traceback():
    with pytest.raises(KeyError):
        telling(fails_with(KeyError("x")))()
    with pytest.raises(KeyError):
        list(telling_each(yields_and_fails_with(KeyError("x"))))
    assert HIDE not in os.environ


def test_the_users_own_process_is_left_alone(monkeypatch):
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_SECRET")
    for name in [name for name in os.environ if name.startswith("PYTHON_WORKER_FACTORY_")]:
        monkeypatch.delenv(name)
    with pytest.raises(OttlaError):
        telling(fails_with(OttlaError("x")))()
    assert HIDE not in os.environ


def test_what_comes_of_it_is_handed_on():
    assert telling(lambda a, *, b: (a, b))(1, b=2) == (1, 2)
    assert list(telling_each(iter([1, 2]))) == [1, 2]
