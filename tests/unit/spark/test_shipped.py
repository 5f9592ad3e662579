"""What travels to the executors is opened by the version of Ottla that packed it, or not at all."""

import pickle

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from pyspark import cloudpickle

from ottla.spark import shipped
from ottla.spark.options import parse_options
from ottla.spark.planning.source import OttlaReader
from ottla.spark.planning.stream import OttlaStreamReader
from ottla.spark.shipped import Shipped, VersionsDiffer
from ottla.spark.writing.sink import OttlaStreamWriter, OttlaWriter

TRAVELLERS = (OttlaReader, OttlaStreamReader, OttlaWriter, OttlaStreamWriter)


def opened(_):
    raise AssertionError("this was unpickled although the versions differ")


class Opened:
    """What must not be unpickled: another version may not even have its class."""

    def __reduce__(self):
        return opened, (1,)


class Parcel(Shipped):
    """Something of a test's own, which another process could not import by name."""

    def __init__(self, content):
        self.content = content


def test_a_reader_arrives_as_it_was():
    options = parse_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    arrived = pickle.loads(cloudpickle.dumps(OttlaReader(options)))
    assert type(arrived) is OttlaReader
    assert arrived._options == options


@pytest.mark.parametrize("cls", TRAVELLERS, ids=lambda cls: cls.__name__)
def test_what_spark_pickles_of_ours_says_its_version(cls):
    assert issubclass(cls, Shipped)
    module, name = object.__new__(cls).__reduce_ex__(4)[1][1]
    assert (module, name) == (cls.__module__, cls.__name__)


def test_a_class_of_somebody_elses_travels_whole():
    assert pickle.loads(cloudpickle.dumps(Parcel("rows"))).content == "rows"


def test_another_version_is_told_before_anything_else_is_unpickled(monkeypatch):
    packed = cloudpickle.dumps(Parcel(Opened()))
    with pytest.raises(AssertionError):
        pickle.loads(packed)
    monkeypatch.setattr(shipped, "__version__", "9.9.9")
    with pytest.raises(VersionsDiffer, match=r"this executor 9\.9\.9: install one"):
        pickle.loads(packed)
