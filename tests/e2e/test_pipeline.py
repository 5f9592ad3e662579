"""``ottla pipeline`` on its own templates: checked, explained, run, and run again."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")
pytest.importorskip("grpc", reason="extra 'pipelines' is not installed")

from ottla.cli.main import command_line
from ottla.spark.pipelines.project import TEMPLATES, make
from tests.commands import run_command
from tests.output_schemas import check
from tools.ottla_peer import OttlaPeer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),  # one session, in one worker
    pytest.mark.timeout(900),
]

SAMPLES = {"orders": "topic-to-topic", "visits": "topic-to-table", "customers": "changes"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with OttlaPeer(tmp_path_factory.mktemp("pipeline") / "data", {}) as peer:
        peer.start()
        yield peer


@pytest.fixture(scope="module")
def project(tmp_path_factory, broker):
    """One project with the transformations of all templates, so that they share one run."""
    root = tmp_path_factory.mktemp("projects")
    everything = root / "everything"
    for template in TEMPLATES:
        make(root / template, template, broker.bootstrap)
        for file in (root / template).rglob("*"):
            if file.is_file():
                target = everything / file.relative_to(root / template)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(file.read_text())
    return everything


@pytest.fixture
def ottla(spark, capsys):
    """Run a command in this process, by the session that is there: (exit code, output, notes)."""

    def run(*arguments):
        try:
            command_line([*map(str, arguments)])
            code = 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def produce(broker):
    from confluent_kafka import Producer

    def write(topic, lines, *, keyed=False):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for line in lines:
            key, _, value = line.partition(" ") if keyed else (None, "", line)
            producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    return write


@pytest.fixture(scope="module")
def filled(project, broker, produce):
    """The topics of the templates, with their samples."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic in (*SAMPLES, "totals"):
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    for file in sorted((project / "sample").iterdir()):
        lines = file.read_text().splitlines()
        produce(file.stem, lines, keyed=file.suffix == ".txt")


def committed(broker, topic):
    """The values of a topic as a consumer of committed records reads them."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        group_id=None,
        consumer_timeout_ms=2000,
    )
    try:
        rows = [(m.key.decode(), json.loads(m.value)) for m in consumer]
        return sorted(rows, key=lambda row: (row[0], row[1]["hour"]))
    finally:
        consumer.close()


def table(spark, name):
    return spark.read.parquet(str(Path(spark.conf.get("spark.sql.warehouse.dir"), name)))


def total(customer, hour, orders, total):
    when = f"2026-11-21T{hour:02}:00:00.000Z"
    return customer, {"customer": customer, "hour": when, "orders": orders, "total": total}


def test_the_templates_checked_explained_run_and_run_again(
    spark, ottla, project, filled, broker, produce
):
    code, out, err = ottla("pipeline", "check", project)
    assert (code, out) == (0, "ok  changes: 11 nodes, 8 flows\n"), err

    code, out, _ = ottla("pipeline", "check", project, "-o", "json")
    check("pipeline check", json.loads(out))
    code, out, _ = ottla("pipeline", "check", project, "-o", "tsv")
    assert out == "name\tnodes\tflows\tok\nchanges\t11\t8\ttrue\n"
    code, out, _ = ottla("pipeline", "explain", project, "-o", "json")
    check("pipeline explain", json.loads(out))
    nodes = {row["name"]: row for row in json.loads(out)}
    assert nodes["totals"]["inputs"] == ["orders"]
    assert nodes["orders"]["inputs"] == ["topic orders"]
    assert nodes["totals_topic"]["inputs"] == ["totals"]
    assert nodes["topic totals"]["inputs"] == ["totals_topic"]
    assert nodes["totals_topic"]["detail"] == "ottla exactly-once"
    assert nodes["visits"]["detail"] == "parquet"
    assert nodes["visits_per_day"]["inputs"] == ["visits"]
    assert nodes["customers"]["inputs"] == ["customer_changes"]
    assert nodes["visits"]["file"].startswith("transformations/visits.py:")

    code, out, err = ottla("pipeline", "run", project)
    assert code == 0, err
    assert "customers" in out
    assert "batch 0: " in out
    ann = total("ann", 9, 2, 140.0)
    bo = total("bo", 9, 1, 310.0)
    assert committed(broker, "totals") == [ann, bo, total("bo", 10, 1, 7.0)]
    visits = table(spark, "visits")
    assert sorted((str(row.day), row.visitor) for row in visits.collect()) == [
        ("2026-11-20", "ann"), ("2026-11-21", "ann"), ("2026-11-21", "bo"), ("2026-11-21", "bo"),
    ]  # fmt: skip
    customers = table(spark, "customers").collect()
    assert sorted((row.id, row.city) for row in customers) == [("1", "Bergen"), ("2", "Malmo")]

    produce("visits", ['{"page":"/","visitor":"cy","at":"2026-11-22T10:00:00Z"}'])
    produce("orders", ['{"customer":"bo","total":1,"at":"2026-11-22T09:05:00Z"}'])
    produce("customers", ["2 "], keyed=True)
    code, out, err = ottla("pipeline", "run", project, "-o", "json")
    assert code == 0, err
    lines = json.loads(out)
    check("pipeline run", lines)
    read = {row["flow"]: row["rows"] for row in lines if row["type"] == "progress" and row["rows"]}
    assert read == {"visits": 1, "publish": 1, "customer_changes": 1}
    assert lines[-1]["type"] == "end"
    assert committed(broker, "totals") == [
        ann,
        total("ann", 12, 1, 44.0),
        bo,
        total("bo", 10, 1, 7.0),
    ]
    per_day = table(spark, "visits_per_day").where("page = '/'").collect()
    assert sorted((str(row.day), row.visits, row.visitors) for row in per_day) == [
        ("2026-11-20", 1, 1), ("2026-11-21", 2, 1), ("2026-11-22", 1, 1),
    ]  # fmt: skip
    assert [row.id for row in table(spark, "customers").collect()] == ["1"]


def test_what_is_wrong_is_told_with_its_place(ottla, project, tmp_path):
    wrong = tmp_path / "wrong"
    make(wrong, "topic-to-table", "127.0.0.1:1")
    sql = wrong / "transformations" / "visits_per_day.sql"
    python = wrong / "transformations" / "visits.py"
    python.write_text("x = 1\nraise ValueError('no such thing')\n")
    code, _, err = ottla("pipeline", "check", wrong)
    assert code == 1
    assert "visits.py:2: ValueError: no such thing" in err
    assert "Traceback" not in err

    python.write_text(
        "from pyspark import pipelines as dp\n"
        "from pyspark.sql import SparkSession\n"
        "@dp.materialized_view\n"
        "def visits():\n"
        "    return SparkSession.active().range(3)\n"
    )
    sql.write_text("CREATE MATERIALIZED VIEW v AS SELECT nothing_like_it FROM visits;")
    code, _, err = ottla("pipeline", "check", wrong)
    assert code == 1
    assert "nothing_like_it" in err
    assert "\tat " not in err
    assert "v is defined in transformations/visits_per_day.sql:1" in err

    sql.write_text(
        "CREATE TEMPORARY VIEW w AS SELECT 1;\n\n"
        "CREATE MATERIALIZED VIEW v AS\nSELECT x FRM visits WHERE;"
    )
    code, _, err = ottla("pipeline", "check", wrong)
    assert code == 1
    assert "transformations/visits_per_day.sql:4: [PARSE_SYNTAX_ERROR]" in err

    sql.write_text(
        "CREATE MATERIALIZED VIEW w AS SELECT 1;\nCREATE MATERIALIZED VIEW visits AS SELECT 2;"
    )
    code, _, err = ottla("pipeline", "check", wrong)
    assert code == 1
    assert "visits is defined in transformations/" in err
    assert "transformations/visits_per_day.sql:2" in err

    sql.write_text(
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM w;\n"
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM v;"
    )
    code, _, err = ottla("pipeline", "check", wrong)
    assert code == 1
    assert "v is defined in transformations/visits_per_day.sql:1" in err
    assert "w is defined in transformations/visits_per_day.sql:2" in err


def test_the_cluster_is_asked_before_spark_tries(ottla, broker, tmp_path):
    """A missing topic passed, and a run told of it after half a minute, with a plan."""
    asking = tmp_path / "asking"
    make(asking, "topic-to-topic", "127.0.0.1:1")
    for command in (("check", asking), ("run", asking)):
        code, _, err = ottla("pipeline", *command)
        assert code == 3
        assert "transformations/orders.py:" in err
        assert "127.0.0.1:1: connection refused" in err
    assert ottla("pipeline", "check", asking, "--offline")[0] == 0
    source = asking / "transformations" / "orders.py"
    source.write_text(source.read_text().replace('e", "orders")', 'e", "orders-of-nobody")'))
    code, _, err = ottla("pipeline", "check", asking, "-b", broker.bootstrap)
    assert code == 1
    assert "transformations/orders.py:" in err
    assert "no topic orders-of-nobody" in err


def test_task_42_a_template_makes_the_same_table_of_both_brokers(
    spark, ottla, broker, kafka_server, tmp_path
):
    """The last row of ``test_cli_tasks``. Both share a session: each has names of its own."""

    def made(kind, bootstrap):
        root, mine = tmp_path / kind, f"visits_{kind}"
        assert ottla("pipeline", "init", root, "-t", "topic-to-table", "-b", bootstrap)[0] == 0
        for file in (root / "transformations").iterdir():
            file.write_text(file.read_text().replace("visits", mine))
        lines = (root / "sample" / "visits.jsonl").read_text()
        assert run_command(bootstrap, "topic", "create", mine, "-p", "3")[0] == 0
        assert run_command(bootstrap, "produce", mine, "-q", text=lines)[0] == 0
        code, _, err = ottla("pipeline", "run", root)
        assert code == 0, err
        return sorted((str(day), *rest) for day, *rest in table(spark, f"{mine}_per_day").collect())

    ours, theirs = made("ottla", broker.bootstrap), made("kafka", kafka_server.bootstrap)
    assert ours == theirs
    assert ours == [
        ("2026-11-20", "/", 1, 1),
        ("2026-11-21", "/", 2, 1),
        ("2026-11-21", "/docs", 1, 1),
    ]


TEXTS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def numbers_kept():
    texts = SparkSession.active().readStream.format("text").schema("value string").load({place!r})
    return texts.selectExpr("cast(value as {type}) as n")
"""


def test_a_full_refresh_that_fails_leaves_the_old_table(spark, ottla, tmp_path):
    """Also where a column gets another type, and the columns of the catalog with it."""
    place = tmp_path / "in"
    place.mkdir()
    (place / "a.txt").write_text("1\n2\n")
    project = tmp_path / "kept"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(
        "name: kept\nstorage: state\nlibraries:\n  - glob:\n      include: transformations/**\n"
        'configuration:\n  spark.sql.pipelines.maxFlowRetryAttempts: "0"\n'
    )
    code = project / "transformations" / "numbers.py"

    def run(kind, *arguments):
        code.write_text(TEXTS.format(place=str(place), type=kind))
        return ottla("pipeline", "run", project, *arguments)

    def rows():
        spark.catalog.refreshTable("numbers_kept")
        found = spark.table("numbers_kept")
        return found.schema.simpleString(), sorted(row.n for row in found.collect())

    exit_code, _, err = run("string")
    assert exit_code == 0, err
    assert rows() == ("struct<n:string>", ["1", "2"])
    exit_code, _, err = run("string", "--full-refresh", "numbers_kep")
    assert exit_code == 2
    assert "did you mean numbers_kept?" in err

    (place / "b.txt").write_text("x\n")
    exit_code, _, err = run("int", "--full-refresh", "numbers_kept")
    assert exit_code == 1
    assert "numbers_kept is as it was before the run" in err
    assert rows() == ("struct<n:string>", ["1", "2"])
    exit_code, _, err = run("string")
    assert exit_code == 0, err
    assert rows() == ("struct<n:string>", ["1", "2", "x"]), "it goes on from its old checkpoint"

    (place / "b.txt").write_text("3\n")
    exit_code, _, err = run("int", "--full-refresh", "numbers_kept")
    assert exit_code == 0, err
    assert rows() == ("struct<n:int>", [1, 2, 3])
    assert not (project / ".ottla" / "kept").exists()
