"""One DataFrame used more than once: what one scan asks for must never reach another scan.

Spark 4.2 and 4.3 keep one plan for each loaded relation. Tests that load anew for each query (there
are many in ``test_spark``) cannot see what follows from that; each of these uses one frame twice.
"""

import time

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from confluent_kafka import Producer

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
