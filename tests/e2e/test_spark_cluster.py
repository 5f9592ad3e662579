"""The ways of docs/spark.md to bring Ottla to a cluster, each on one: a master and two workers.

The executors' Python is made for each way: it sees pyspark and pyarrow, and of Ottla what that way
brings. ``spark-submit`` runs a job that reads a topic, copies it exactly once and says where Ottla
came from on the executors; then another client counts.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

import ottla
from ottla.spark.local import CLUSTER_CONFS
from tools.ottla_peer import OttlaPeer
from tools.spark_cluster import SparkCluster
from tools.wire_client import WireClient

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(400),
]

PARTITIONS = 3
ROWS = 3_000
PACKAGES = ("ottla", "pyspark_ottla")
SOURCES = Path(ottla.__file__).resolve().parent.parent

JOB = """
import json, sys
from pyspark.sql import SparkSession

bootstrap, source, sink, checkpoint, how = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if how == "register":
    import ottla.spark
    ottla.spark.register(spark)
read = {"kafka.bootstrap.servers": bootstrap, "subscribe": source}
found = spark.read.format("ottla").options(**read).load().count()
rows = spark.readStream.format("ottla").options(**read, startingOffsets="earliest").load()
write = {"kafka.bootstrap.servers": bootstrap, "topic": sink, "delivery": "exactly-once"}
writer = rows.select("key", "value").writeStream.format("ottla").options(**write)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()

def place(_):
    import ottla
    return ottla.__file__

places = spark.sparkContext.parallelize(range(4), 4).map(place).distinct().collect()
print(json.dumps({"found": found, "places": sorted(places)}))
"""

CONNECT_JOB = """
import json, sys
from pyspark.sql import SparkSession

remote, bootstrap, source = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
try:
    import ottla.spark
    ottla.spark.register(spark)
    has = True
except ImportError:
    has = False
read = {"kafka.bootstrap.servers": bootstrap, "subscribe": source}
print(json.dumps({"has": has, "found": spark.read.format("ottla").options(**read).load().count()}))
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with a topic ``rows`` of values 0 to ROWS - 1."""
    from confluent_kafka import Producer

    with OttlaPeer(tmp_path_factory.mktemp("cluster") / "data", {}) as peer:
        peer.start()
        with WireClient(peer.bootstrap) as wire:
            wire.create_topic("rows", PARTITIONS)
        producer = Producer({"bootstrap.servers": peer.bootstrap, "acks": "all"})
        for number in range(ROWS):
            producer.produce("rows", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        yield peer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster")) as running:
        yield running


def python_without_ottla(place):
    """Make a Python that has what is installed here, but Ottla; return its directory."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    # Of a directory that a .pth names, the .pth files do not count: so nor does our own install.
    packages_of(place).joinpath("others.pth").write_text(sysconfig.get_path("purelib"))
    return place


def packages_of(place):
    return next(place.glob("lib/python*/site-packages"))


def with_ottla(place, version=ottla.__version__):
    """Copy Ottla into a Python, compiled parts and all, as if it were of ``version``."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.c")
        shutil.copytree(SOURCES / name, packages_of(place) / name, ignore=ignored)
    init = packages_of(place) / "ottla" / "__init__.py"
    init.write_text(init.read_text().replace(f'"{ottla.__version__}"', f'"{version}"'))
    return place


def python_of(place):
    return str(place / "bin" / "python")


def confs(**given):
    pairs = (f"{key.replace('_', '.')}={value}" for key, value in given.items())
    return [part for each in pairs for part in ("--conf", each)]


def submit(cluster, broker, tmp_path, sink, *options, how="found", python=sys.executable, **more):
    """Run the job; ``python`` is the driver's, and the executors' unless an option says more.

    ``more`` is for the driver's environment.
    """
    job = tmp_path / "job.py"
    job.write_text(JOB)
    with WireClient(broker.bootstrap) as wire:
        wire.create_topic(sink, 2)
    arguments = [str(job), broker.bootstrap, "rows", sink, str(tmp_path / "checkpoint"), how]
    return cluster.submit(arguments, *options, environment={"PYSPARK_PYTHON": python, **more})


def check(done, broker, sink):
    """Check that all was read and copied once; return where Ottla came from."""
    assert done.returncode == 0, errors_in(done.stderr)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["found"] == ROWS
    assert Counter(values_in(broker, sink)) == Counter(b"%d" % number for number in range(ROWS))
    return said["places"]


def errors_in(said):
    """Return what a job said without stack traces of the JVM, its end."""
    return "\n".join(line for line in said.splitlines() if not line.startswith("\tat "))[-6000:]


def values_in(broker, topic):
    """Return the committed values of a topic, by librdkafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    values, at_end = [], 0
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        while at_end < 2:
            for message in consumer.consume(10_000, 1):
                if message.error() is None:
                    values.append(message.value())
                else:
                    at_end += 1
    finally:
        consumer.close()
    return values


def test_ottla_installed_on_every_machine(cluster, broker, tmp_path):
    given = [part for each in CLUSTER_CONFS.items() for part in ("--conf", "=".join(each))]
    done = submit(cluster, broker, tmp_path, "installed", *given)
    assert check(done, broker, "installed") == [ottla.__file__]


def test_an_archive_with_an_environment(cluster, broker, tmp_path):
    made = with_ottla(python_without_ottla(tmp_path / "made"))
    archive = tmp_path / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(made, ".")
    options = ["--archives", f"{archive}#environment"]
    options += confs(spark_pyspark_python="./environment/bin/python")
    options += confs(spark_pyspark_driver_python=python_of(made))
    done = submit(cluster, broker, tmp_path, "archive", *options, python=python_of(made))
    assert all("/environment/lib/" in place for place in check(done, broker, "archive"))


def test_a_zip_of_sources_that_is_registered(cluster, broker, tmp_path):
    python = python_of(python_without_ottla(tmp_path / "bare"))
    packed = tmp_path / "ottla.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in PACKAGES:
            for path in sorted((SOURCES / name).rglob("*.py")):
                archive.write(path, path.relative_to(SOURCES))
    options = ["--py-files", str(packed)]
    # Spark gives the files to tasks and to what plans batches, not to what plans streams.
    given = {"python": python, "PYTHONPATH": str(packed)}
    done = submit(cluster, broker, tmp_path, "zip", *options, how="register", **given)
    assert all("ottla.zip/ottla" in place for place in check(done, broker, "zip"))


def test_executors_with_another_version_are_named(cluster, broker, tmp_path):
    older = with_ottla(python_without_ottla(tmp_path / "older"), "0.0.9")
    # What plans runs beside the driver, and is of its version.
    options = confs(spark_executorEnv_PYTHONPATH=packages_of(older), spark_task_maxFailures=1)
    done = submit(cluster, broker, tmp_path, "older", *options)
    assert done.returncode != 0
    wanted = f"the driver has ottla {ottla.__version__}, this executor 0.0.9: install one version"
    assert wanted in done.stderr, errors_in(done.stderr)
    assert values_in(broker, "older") == []


@pytest.fixture(scope="module")
def connect(cluster):
    """The address of a Spark Connect server on the cluster, with Ottla where it runs."""
    return cluster.connect_server(*(f"{key}={value}" for key, value in CLUSTER_CONFS.items()))


@pytest.mark.parametrize("has_ottla", [True, False], ids=["with ottla", "without"])
def test_a_connect_client(connect, broker, tmp_path, has_ottla):
    python = sys.executable if has_ottla else python_of(python_without_ottla(tmp_path / "bare"))
    arguments = [python, "-c", CONNECT_JOB, connect, broker.bootstrap, "rows"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, errors_in(done.stderr)
    assert json.loads(done.stdout) == {"has": has_ottla, "found": ROWS}
