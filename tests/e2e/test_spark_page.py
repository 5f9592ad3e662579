"""What docs/spark.md shows, works: its Python blocks run as printed, each against a live broker.

The frames of the reader's that a block names (``orders``, ``df``, ...) are given to it; addresses
and directories are replaced. A block that is new needs a line in ``GIVEN`` and one in ``SEEN``.
"""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.testing import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(300, func_only=True),
]
ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "docs/spark.md").read_text(encoding="utf-8"))
SESSION, JSON, AVRO, PARQUET = "spark.session()", '"value.format": "json"', '"avro"', "to_parquet"
KEPT, SINK, CHANGES, SEVERAL = "keep_running", "df.writeStream", "counts.writeStream", "rejects"
AVRO_ONE = b"\x02"
"""A record of ``{"id": 1}``."""


def frame(spark, broker, *, is_stream):
    reader = spark.readStream if is_stream else spark.read
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "orders"}
    return reader.format("ottla").options(startingOffsets="earliest", **options).load()


def ending(spark, broker):
    """The writer of a stream that ends when it has read all there is."""
    stream = frame(spark, broker, is_stream=True).select("key", "value")
    return stream.writeStream.trigger(availableNow=True)


GIVEN = {
    SESSION: lambda spark, broker, place: {},
    JSON: lambda spark, broker, place: {"spark": spark},
    AVRO: lambda spark, broker, place: {"spark": spark, "json": json},
    PARQUET: lambda spark, broker, place: {},
    KEPT: lambda spark, broker, place: {
        "rows": SimpleNamespace(writeStream=ending(spark, broker)),
        "options": {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": "kept",
            "checkpointLocation": place,
        },
    },
    SINK: lambda spark, broker, place: {
        "df": SimpleNamespace(
            write=frame(spark, broker, is_stream=False).select("value").write,
            writeStream=ending(spark, broker),
        )
    },
    CHANGES: lambda spark, broker, place: {
        "orders": frame(spark, broker, is_stream=True).selectExpr("string(value) AS customer")
    },
    SEVERAL: lambda spark, broker, place: {
        "stream": SimpleNamespace(writeStream=ending(spark, broker))
    },
}
"""What a block of the page has: the word that tells it, and the names that it needs."""
SEEN = {
    PARQUET: ("orders-copy", [b"ann", b"bo", b"ann"]),
    KEPT: ("kept", [b"ann", b"bo", b"ann"]),
    SINK: ("delays", [b"ann", b"ann", b"ann", b"ann", b"bo", b"bo"]),
    CHANGES: ("counts", [b"1", b"2"]),
    SEVERAL: ("orders-rejects", [None]),
}
"""The topic that a block has written then, and the values there, in any order."""


def test_every_block_is_tried():
    assert sorted([word for word in GIVEN if word in block] for block in BLOCKS) == sorted(
        [word] for word in GIVEN
    )


def in_its_place(code, broker, place):
    """Return a block with the test's address and directories in the place of the page's."""
    code = code.replace("127.0.0.1:9092", broker.bootstrap)
    code = code.replace('bootstrap="..."', f'bootstrap="{broker.bootstrap}"')
    code = code.replace('"checkpointLocation", "..."', f'"checkpointLocation", "{place}"')
    return code.replace("/data/checkpoints", place).replace("data/orders", f"{place}/orders")


def run(code, names):
    """Run a block; return the value of its last expression."""
    tree = ast.parse(code)
    if isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], last.value)
        ast.fix_missing_locations(tree)
    exec(compile(tree, "docs/spark.md", "exec"), names)
    return names.get("_")


@pytest.mark.parametrize("word", GIVEN)
def test_a_block_runs_as_printed(spark, tmp_path, word):
    import ottla.spark

    [code] = [each for each in BLOCKS if word in each]
    values = {
        JSON: ['{"id": 7, "price": "1.50", "tags": ["a"]}', "no json"],
        AVRO: [AVRO_ONE],
        SEVERAL: ["ann", None],
    }.get(word, ["ann", "bo", "ann"])
    with Broker() as broker:
        for topic in ("orders", "orders-copy", "orders-rejects", "delays", "counts", "kept"):
            broker.create_topic(topic)
        for value in values:
            broker.produce("orders", value)
        place = str(tmp_path)
        names = {"ottla": ottla, **GIVEN[word](spark, broker, place)}
        made = run(in_its_place(code, broker, place), names)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
        if word in SEEN:
            topic, wanted = SEEN[word]
            found = [each.value for each in broker.records(topic, at_least=len(wanted))]
            assert sorted(found, key=str) == sorted(wanted, key=str)
        elif word == SESSION:
            assert names["spark"] is spark
        else:
            ids = [row.id for row in made.collect()]
            assert ids == {JSON: [7, None], AVRO: [1]}[word]
