"""DescribeLogDirs when a directory or a log is offline."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.handlers.apis.describe_log_dirs import DescribeLogDirs, MeasuredDirectory
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.ids import TopicPartition
from ottla.pending import Pending
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.answered import answered

CALL = Call(4, None, Client("10.0.0.9", 5000, "10.0.0.1", 9092))
A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def hosted(where, log_dir, size_bytes):
    return SimpleNamespace(topic_partition=where, log_dir=log_dir, size_bytes=size_bytes)


@pytest.fixture
def describe():
    """Describe all; ``a`` is in ``/one``, ``b`` in ``/two``."""

    def describe(*directories, offline=()):
        replicas = SimpleNamespace(
            partitions=[hosted(B, "/two", 20), hosted(A, "/one", 10)],
            offline=lambda where: "lost" if where in offline else None,
        )
        relocation = SimpleNamespace(copies_in=lambda log_dir: [])
        measured = Pending()
        measured.resolve(list(directories))
        handler = DescribeLogDirs(replicas, relocation, lambda: measured)
        answer = answered(handler.handle(DescribeLogDirsRequest(topics=None), CALL))
        return [
            (
                result.error_code,
                result.log_dir,
                {topic.name: topic.partitions[0].partition_size for topic in result.topics},
                result.usable_bytes,
            )
            for result in answer.results
        ]

    return describe


def test_each_directory_has_its_own_partitions(describe):
    found = describe(MeasuredDirectory("/one", 100, 50), MeasuredDirectory("/two", 100, 60))
    assert found == [(0, "/one", {"a": 10}, 50), (0, "/two", {"b": 20}, 60)]


def test_a_lost_log_has_no_size(describe):
    assert describe(MeasuredDirectory("/one", 100, 50), offline=[A]) == [(0, "/one", {}, 50)]


def test_a_lost_directory_does_not_hide_the_others(describe):
    lost = MeasuredDirectory("/one", -1, -1, OSError("gone"))
    found = describe(lost, MeasuredDirectory("/two", 100, 60))
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert found == [(storage, "/one", {}, -1), (0, "/two", {"b": 20}, 60)]
