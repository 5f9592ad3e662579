"""Spark's own Kafka connector, to compare with. Needs Maven, once.

    python -m tools.spark_connector      bring the jars from Maven Central into the cache

``libraries()`` are four jars that a session takes at any time: ``spark.sql("ADD JAR '...'")``. What
they need besides (Scala, the codecs) is Spark's own. The cache is that of ``kafka_peer``.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.kafka_peer import KafkaUnavailable, cache_directory

ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""The newest connector that Maven Central has, and what it was built with."""
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>ottla</groupId><artifactId>spark-connector</artifactId><version>1</version><dependencies>
{}
</dependencies></project>
"""


def libraries() -> list[Path]:
    """Return the jars, fetched when they are not there yet: that takes seconds.

    Raises KafkaUnavailable.
    """
    directory = cache_directory() / "spark-connector"
    jars = [directory / f"{name}-{version}.jar" for _, name, version in ARTIFACTS]
    if not all(jar.exists() for jar in jars):
        _fetch(directory)
    return jars


def _fetch(directory: Path) -> None:
    """Bring the jars into ``directory``, in one step at the end."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailable(f"no jars in {directory}, and no mvn on the PATH to fetch them")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        pom = _POM.format("\n".join(_DEPENDENCY.format(*one) for one in ARTIFACTS))
        Path(work, "pom.xml").write_text(pom)
        goal = ["dependency:copy-dependencies", "-DoutputDirectory=libs"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "-Dstyle.color=never", *goal],
            cwd=work,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise KafkaUnavailable(f"mvn failed: {(done.stdout + done.stderr)[-1000:]}")
        shutil.copytree(Path(work, "libs"), directory, dirs_exist_ok=True)


if __name__ == "__main__":
    print(*libraries(), sep="\n")
    sys.exit(0)
