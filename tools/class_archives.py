"""Java's classes, loaded and checked once: JVMs that tests start read them from an archive.

    python -m tools.class_archives    make the archives that are missing; takes half a minute

A JVM starts Spark or Kafka with half of the processor time then (JEP 350). An archive is of one JVM
and one class path; a JVM that it does not fit says nothing and loads its classes as ever. They are
in the user's cache directory, beside Kafka's jars. Measured: a Spark session and two queries 4.6
instead of 9.1 s of the processor, a Kafka broker 1.4 instead of 2.7 s.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import kafka_peer

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Else a JVM of another class path would warn on its output."""
SPARK_WORK = """
import sys
import ottla.spark.local as local
local.set_environment()
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for key, value in local.local_confs("local[2]", "off").items():
    builder = builder.config(key, value)
plugin = "org.apache.spark.sql.connect.SparkConnectPlugin"
spark = (
    builder.config("spark.plugins", plugin)
    .config("spark.connect.grpc.binding.port", "0")
    .getOrCreate()
)
frame = spark.createDataFrame([(1, "a", 2.0), (2, None, 3.0)], "a int, b string, c double")
frame.write.mode("overwrite").parquet(f"{sys.argv[1]}/rows")
read = spark.read.parquet(f"{sys.argv[1]}/rows")
read.groupBy("b").agg({"c": "sum"}).join(read, "b", "left").orderBy("b").collect()
read.mapInArrow(lambda batches: batches, read.schema).toArrow()
stream = spark.readStream.schema(read.schema).parquet(f"{sys.argv[1]}/rows")
query = stream.writeStream.foreachBatch(lambda rows, number: rows.count())
place = f"{sys.argv[1]}/checkpoint"
query.trigger(availableNow=True).option("checkpointLocation", place).start().awaitTermination()
service = spark._jvm.org.apache.spark.sql.connect.service
port = getattr(service, "SparkConnectService$").__getattr__("MODULE$").server().getPort()
from pyspark.sql.connect.session import SparkSession as Connected
remote = Connected.builder.remote(f"sc://localhost:{port}").create()
remote.read.parquet(f"{sys.argv[1]}/rows").groupBy("b").count().collect()
remote.stop()
spark.stop()
"""
"""What most tests ask of Spark; its argument is a directory."""


def java_options(name: str) -> list[str]:
    """Return the options for a JVM of tests that runs ``name``: "spark" or "kafka"."""
    archive = path_of(name)
    if archive is None or not archive.exists():
        return list(kafka_peer.SHORT_LIVED)
    return [*kafka_peer.SHORT_LIVED, *SILENT, f"-XX:SharedArchiveFile={archive}"]


def path_of(name: str) -> Path | None:
    """Return where the archive is, or will be, for this machine's Java; None without Java."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    program = Path(java).resolve()
    classes, work = str(kafka_peer.cache_directory()), ""
    if name == "spark":
        found = importlib.util.find_spec("pyspark")
        classes, work = str(found and found.origin), SPARK_WORK
    parts = (str(program), program.stat().st_mtime_ns, classes, work)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return kafka_peer.cache_directory().parent / "classes" / f"{name}-{digest}.jsa"


def make(name: str) -> None:
    """Make an archive unless it is there. Raises OSError or CalledProcessError."""
    archive = path_of(name)
    if archive is None or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as work:
        made = Path(work, archive.name)
        options = [*kafka_peer.SHORT_LIVED, *SILENT, f"-XX:ArchiveClassesAtExit={made}"]
        {"kafka": _serve_with_kafka, "spark": _work_with_spark}[name](Path(work), options)
        if made.exists():
            made.replace(archive)


def _serve_with_kafka(work: Path, options: list[str]) -> None:
    """Start and stop a broker. Its class path is the beginning of all that begin with its jars."""

    class Recorded(kafka_peer.KafkaPeer):
        def command(self) -> list[str]:
            classpath = f"{kafka_peer.libraries()}/*"
            broker = ["kafka.Kafka", str(self._properties_path)]
            return ["java", *options, "-cp", classpath, *broker]

    with Recorded(work / "data") as broker:
        broker.start()


def _work_with_spark(work: Path, options: list[str]) -> None:
    subprocess.run(
        [sys.executable, "-c", SPARK_WORK, str(work)],
        env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=300,
    )


def main() -> int:
    """Make what is missing; say what could not be made. Returns 0: tests are slower without."""
    for name in ("kafka", "spark"):
        try:
            make(name)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            print(f"no archive of the classes of {name}: {error}\n{said.decode()[-2000:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
