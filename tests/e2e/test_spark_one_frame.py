"""One DataFrame used more than once: what one scan asks for must never reach another scan.

Spark 4.2 and 4.3 keep one plan for each loaded relation. Tests that load anew for each query (there
are many in ``test_spark``) cannot see what follows from that; each of these uses one frame twice.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from confluent_kafka import Producer

from ottla.spark import fresh_plans
from tests.connect_session import BEGIN
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(180),
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
START_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def produce(target):
    """Write so many records to each of two partitions; times are a second apart."""

    def write(topic, count, first=0):
        producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all"})
        for number in range(first, first + count):
            for partition in range(2):
                at = START_MS + 1000 * number
                producer.produce(topic, b"%d" % number, b"k", partition, timestamp=at)
        assert producer.flush(30) == 0

    return write


@pytest.fixture
def topic(target, topic_name, produce):
    """A topic of two partitions with 100 records each."""
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
    produce(topic_name, 100)
    return topic_name


@pytest.fixture(params=["false", "true"])
def pushdown(request, spark):
    """Spark's setting, off and on: it is on where somebody turned it on."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.set(PUSHDOWN, before)


@pytest.fixture
def frame(spark, target, topic, pushdown):
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
    return reader.option("subscribe", topic).load()


def test_our_session_leaves_pushed_filters_off(spark):
    from ottla.spark.local import CLUSTER_CONFS

    assert PUSHDOWN not in CLUSTER_CONFS
    assert spark.conf.get(PUSHDOWN) == "false"


LATE = f"timestamp >= timestamp_millis({START_MS + 50_000})"


def test_a_filter_of_one_query_narrows_no_other(frame):
    assert frame.where("offset < 10").count() == 20
    assert frame.count() == 200
    assert frame.where("partition = 1").count() == 100
    assert frame.where("offset >= 90").count() == 20
    assert frame.where(LATE).count() == 100
    assert frame.where("topic = 'another'").count() == 0
    assert frame.where("offset < 10").count() == 20
    assert frame.count() == 200


def test_both_sides_of_a_union_have_their_rows(frame):
    one, other = frame.where("partition = 0"), frame.where("partition = 1")
    assert one.union(other).count() == 200
    assert frame.where("offset < 3").union(frame).count() == 206
    assert frame.union(frame.where("offset < 3")).count() == 206


def test_both_sides_of_a_join_have_their_rows(frame):
    one = frame.where("partition = 0").select("offset").alias("a")
    other = frame.where("partition = 1").select("offset").alias("b")
    assert one.join(other, "offset").count() == 100
    assert one.join(frame.select("offset").distinct(), "offset").count() == 100


def test_subqueries_have_their_rows(spark, frame):
    frame.createOrReplaceTempView("both_sides")
    rows = spark.sql(
        "SELECT count(*) FROM both_sides WHERE partition = 0 AND offset IN"
        " (SELECT offset FROM both_sides WHERE partition = 1 AND offset >= 40)"
    )
    assert rows.first()[0] == 60


def test_a_view_keeps_all_its_rows(spark, frame):
    frame.createOrReplaceTempView("seen_twice")
    for _ in range(2):
        assert spark.sql("SELECT * FROM seen_twice WHERE offset < 5").count() == 10
        assert spark.table("seen_twice").count() == 200


def test_a_cached_frame_keeps_all_its_rows(frame):
    assert frame.where("offset < 5").count() == 10
    cached = frame.cache()
    try:
        assert cached.count() == 200
        assert cached.where("offset < 5").count() == 10
        assert frame.where("offset >= 5").count() == 190
    finally:
        cached.unpersist(blocking=True)


def test_a_table_is_read_by_its_options_more_than_once(spark, target, topic, produce, pushdown):
    spark.sql("DROP TABLE IF EXISTS of_a_topic")
    spark.sql(
        f"CREATE TABLE of_a_topic USING ottla OPTIONS ('kafka.bootstrap.servers'"
        f" '{target.bootstrap}', 'subscribe' '{topic}', 'columns' 'offset,value,partition')"
        " COMMENT 'two partitions'"
    )
    try:
        table = spark.table("of_a_topic")
        assert table.columns == ["offset", "value", "partition"]
        assert table.where("offset < 10").count() == 20
        assert table.count() == 200
        assert spark.sql("SELECT * FROM of_a_topic WHERE partition = 1").count() == 100
        produce(topic, 5, 100)
        assert spark.sql("SELECT * FROM of_a_topic").count() == 210
    finally:
        spark.sql("DROP TABLE of_a_topic")


def test_a_frame_sees_what_came_since_its_last_query(spark, frame, topic, produce):
    """As with Spark's Kafka connector: each query plans anew."""
    frame.createOrReplaceTempView("seen_again")
    for rows in (200, 210, 220):
        assert frame.count() == rows
        assert frame.where("partition = 0").count() == rows // 2
        assert spark.table("seen_again").count() == rows
        produce(topic, 5, rows // 2)


def test_both_sides_of_one_query_see_the_same(frame, topic, produce):
    """One frame in one query is one plan, however often it is in it."""
    from pyspark.sql import functions as f

    assert frame.count() == 200
    produce(topic, 5, 100)
    left, right = frame.select("partition", "offset"), frame.select("partition", "offset")
    joined = left.join(right, ["partition", "offset"], "full_outer")
    assert joined.agg(f.count("*")).first()[0] == 210


def test_the_rule_is_there_once(spark):
    from ottla.spark.fresh_plans import NAME, plan_each_query_anew

    assert plan_each_query_anew(spark)
    rules = spark._jsparkSession.experimental().extraOptimizations()
    names = [rules.apply(index).getClass().getSimpleName() for index in range(rules.size())]
    assert names.count(NAME) == 1


def sources_of(spark, rows):
    """Return the sources of a query's scans, also of its subqueries: each has a plan of its own."""
    jvm = spark._jvm
    kind = jvm.java.lang.Class.forName(f"{fresh_plans.PACKAGE}.PythonScan")
    field = kind.getDeclaredField("ds")
    field.setAccessible(True)
    found = []
    nodes = [rows._jdf.queryExecution().optimizedPlan()]
    while nodes:
        node = nodes.pop()
        if node.getClass().getSimpleName() == "DataSourceV2ScanRelation":
            found.append(jvm.java.lang.System.identityHashCode(field.get(node.scan())))
        for more in (node.children(), node.subqueries()):
            nodes += [more.apply(index) for index in range(more.size())]
    return found


@pytest.mark.parametrize(
    ("query", "scans"),
    [
        ("SELECT * FROM it WHERE it.offset <= (SELECT max(offset) FROM it)", 2),
        ("SELECT * FROM it WHERE it.offset IN (SELECT offset FROM it WHERE partition = 1)", 2),
        ("SELECT * FROM it WHERE it.offset NOT IN (SELECT offset FROM it)", 2),
        ("SELECT * FROM it a WHERE EXISTS (SELECT 1 FROM it b WHERE b.offset = a.offset + 1)", 2),
        ("SELECT * FROM it a, LATERAL (SELECT max(offset) FROM it b WHERE b.key = a.key)", 3),
        ("SELECT (SELECT max(offset) FROM it WHERE offset < (SELECT avg(offset) FROM it))", 2),
    ],
)
def test_a_subquery_sees_what_its_query_sees(spark, target, topic, query, scans):
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
    reader.option("subscribe", topic).load().createOrReplaceTempView("it")
    once, again = (sources_of(spark, spark.sql(query)) for _ in range(2))
    assert len(once) == len(again) == scans
    assert len(set(once)) == len(set(again)) == 1
    assert not set(once) & set(again)


def test_a_frame_is_planned_anew_in_any_thread(spark, frame, produce, topic):
    """A thread has no active session, or another one, which does not know the source."""
    spark.newSession().createDataFrame([(1,)], "a int").count()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: frame.count(), range(4))) == [200] * 4
            produce(topic, 5, 100)
            assert list(pool.map(lambda _: frame.count(), range(4))) == [210] * 4
    finally:
        spark.createDataFrame([(1,)], "a int").count()  # Else later tests have the other session.


def test_a_cache_and_a_collected_frame_keep_their_rows(spark, frame, produce, topic):
    """The rows of a cache, and those of one frame's own collect, are those of its first time."""
    assert len(frame.collect()) == 200
    cached = frame.where("partition = 0").cache()
    try:
        assert cached.count() == 100
        produce(topic, 5, 100)
        assert (cached.count(), cached.where("offset >= 0").count()) == (100, 100)
        assert len(frame.collect()) == 200  # a frame's own query is planned once
        assert (frame.count(), len(frame.select("offset").collect())) == (210, 210)
    finally:
        cached.unpersist(blocking=True)
    assert frame.where("partition = 0").count() == 105


def test_a_micro_batch_has_the_same_rows_each_time(spark, target, topic, produce, tmp_path):
    """Also those of a frame that is joined to the stream: it is planned once a micro-batch."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
    stream = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    still = spark.read.format("ottla").option("kafka.bootstrap.servers", target.bootstrap)
    counted = still.option("subscribe", topic).load().groupBy().count()
    seen = []

    def write(rows, number):
        once = sorted(map(tuple, rows.select("partition", "offset", "count").collect()))
        produce(topic, 5, 100)
        again = sorted(map(tuple, rows.select("partition", "offset", "count").collect()))
        assert rows.where("partition = 0").count() + rows.where("partition = 1").count() == 200
        seen.append((number, len(once), once == again))

    query = stream.load().crossJoin(counted).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query.start().awaitTermination(120)
    assert seen == [(0, 200, True)]


CONNECT = (
    BEGIN
    + """
import sys
bootstrap, topic, way = sys.argv[1:]
from confluent_kafka import Producer
from ottla.spark.fresh_plans import plan_each_query_anew
if way == "anew":
    assert plan_each_query_anew(spark)

reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
frame = reader.option("subscribe", topic).load()
counted = []
for _ in range(2):
    counted += [frame.count(), len(frame.where("partition = 0").collect())]
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"more", partition=0)
    assert producer.flush(30) == 0
print("counted", *counted)
spark.stop()
"""
)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("way", "counted"), [("anew", "200 100 210 110"), ("", "200 100 200 100")])
def test_over_connect_a_frame_is_planned_anew_where_that_was_asked(target, topic, way, counted):
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, target.bootstrap, topic, way],
        capture_output=True,
        text=True,
        timeout=350,
    )
    assert f"counted {counted}" in done.stdout, done.stdout + done.stderr
