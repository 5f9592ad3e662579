"""A worker reads what a task tells it as Spark's own reading does, but from plain bytes."""

import io
import json
import struct
import sys

import pytest

pytest.importorskip("pyspark.messages.socket.spark_socket_message_receiver")

from pyspark.messages.socket import spark_socket_message_receiver as receiver
from pyspark.serializers import SpecialLengths
from pyspark.worker_message import WorkerInitInfo

from ottla.spark.whole_message import WholeMessage, read_whole_messages

MAP_IN_ARROW = 207


@pytest.fixture(autouse=True)
def own_stream(monkeypatch):
    monkeypatch.setattr(receiver, "ZeroCopyByteStream", receiver.ZeroCopyByteStream)


def text(value):
    return struct.pack("!i", len(value.encode())) + value.encode()


def message(*, udf=b"pickled"):
    context = {
        "isBarrier": False,
        "connInfo": None,
        "secret": None,
        "stageId": 1,
        "partitionId": 0,
        "attemptNumber": 0,
        "taskAttemptId": 3,
        "cpus": 1,
        "cpuAmount": "1.0",
        "resources": {},
        "localProperties": {"streaming.sql.batchId": "7", "é": "ü"},
    }
    number = struct.Struct("!i").pack
    data = number(0) + text("3.11") + text(json.dumps(context)) + text("/files") + number(0)
    data += b"\0" + number(0) + number(MAP_IN_ARROW)
    data += number(1) + text("spark.a") + text("true") + number(0)
    data += number(1) + number(1) + number(0) + b"\0" + number(1)
    return data + number(len(udf)) + udf + struct.pack("!q", 5)


def read(data, told=None):
    head = struct.pack("!ii", SpecialLengths.START_OF_INIT_MESSAGE, told or len(data))
    stream = receiver.SparkSocketMessageReceiver(io.BytesIO(head + data)).get_init_message()
    return stream, WorkerInitInfo.from_stream(stream)


def test_a_task_is_told_the_same():
    _, theirs = read(message())
    read_whole_messages()
    stream, ours = read(message())
    assert isinstance(stream, WholeMessage)
    assert ours == theirs
    assert bytes(ours.udf_info[0].udfs[0]) == b"pickled"


@pytest.mark.parametrize("missing", range(1, 40))
def test_a_message_that_is_cut_short_fails_and_is_not_waited_for(missing):
    read_whole_messages()
    with pytest.raises((EOFError, struct.error)):
        read(message()[:-missing])


def test_a_spark_without_that_stream_stays_as_it_is(monkeypatch):
    monkeypatch.delattr(receiver, "ZeroCopyByteStream")
    read_whole_messages()
    assert not hasattr(receiver, "ZeroCopyByteStream")
    monkeypatch.setitem(sys.modules, receiver.__name__, None)
    read_whole_messages()
