"""A standalone Spark cluster on this machine: a master and its workers, from pip's pyspark.

    with SparkCluster(directory, workers=2) as cluster:
        done = cluster.submit([script, cluster.master], "--py-files", archive)

Owns the processes and their free ports. What runs on the cluster finds its Python by what is given
to ``submit``: nothing of the caller's environment but Java comes along.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.class_archives import java_options

START_SECONDS = 150.0
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
SHARE = (
    "spark.cores.max=2",
    "spark.executor.cores=1",
    "spark.executor.memory=512m",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.ui.enabled=false",
)
"""What an application may take of the cluster: half of each worker."""
QUIET = """rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkClusterFailed(RuntimeError):
    """A part of the cluster did not start. The message carries the end of its log."""


class SparkCluster:
    """One master and some workers. A context manager. Linux and macOS only.

    An application gets one core of each of two workers, and a worker serves two applications: a
    Connect server, which stays, leaves the other half to what is submitted.
    """

    def __init__(self, directory: Path, *, workers: int = 2, hosts: int = 1) -> None:
        """``directory`` gets logs and the workers' files. Nothing is started yet.

        With two ``hosts`` (Linux) the workers say in turn that they are 127.0.0.1 and 127.0.0.2.
        """
        self.directory = directory
        self._hosts = hosts
        self.master = ""
        """``spark://127.0.0.1:port``, once it is started."""
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start all, and return when every worker is registered. Raises SparkClusterFailed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every process, and wait for it."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self) -> None:
        ports = ("--port", "0", "--webui-port", "0")
        log = self.run_class(MASTER, "--host", "127.0.0.1", *ports, name="master")
        self.master = self.wait_for(log, r"(spark://127\.0\.0\.1:\d+)").group(1)
        for number in range(self._workers):
            place = self.directory / f"worker-{number}"
            size = ("--cores", "2", "--memory", "1g", "--work-dir", str(place))
            host = ("--host", f"127.0.0.{number % self._hosts + 1}")
            log = self.run_class(WORKER, *host, *ports, *size, self.master, name=f"worker-{number}")
            self.wait_for(log, r"Successfully registered with master")

    def connect_server(self, *confs: str, environment: Mapping[str, str] | None = None) -> str:
        """Start a Spark Connect server on the cluster; return its ``sc://127.0.0.1:port``.

        ``confs`` are ``key=value``. Raises SparkClusterFailed.
        """
        fixed = (
            *_share(),
            "spark.connect.grpc.binding.port=0",
            "spark.connect.grpc.binding.address=127.0.0.1",
        )
        given = [part for each in (*fixed, *confs) for part in ("--conf", each)]
        log = self.directory / "connect.log"
        command = [_program("spark-submit"), "--master", self.master, *given, "--class", CONNECT]
        self._spawn(
            [*command, "spark-internal"], log, {"SPARK_DAEMON_MEMORY": "1g", **(environment or {})}
        )
        found = self.wait_for(log, r"Spark Connect server started at: .*?:(\d+)")
        return f"sc://127.0.0.1:{found.group(1)}"

    def submit(
        self,
        script: Sequence[str],
        *options: str,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = 280.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``spark-submit`` in client mode: ``script`` is a path and its arguments. Blocks."""
        fixed = [part for each in _share() for part in ("--conf", each)]
        return subprocess.run(
            [_program("spark-submit"), "--master", self.master, *fixed, *options, *script],
            env=self._environment(environment or {}),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )

    def run_class(self, java_class: str, *arguments: str, name: str) -> Path:
        """Start one of Spark's own programs; return the file that it logs to."""
        log = self.directory / f"{name}.log"
        self._spawn([_program("spark-class"), java_class, *arguments], log, {})
        return log

    def wait_for(self, log: Path, pattern: str) -> re.Match[str]:
        """Return the first match in a log, once it is there. Raises SparkClusterFailed."""
        process = self._processes[-1]
        deadline = time.monotonic() + START_SECONDS
        while True:
            text = log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found
            if process.poll() is not None or time.monotonic() > deadline:
                raise SparkClusterFailed(f"{log.name} has no {pattern!r}:\n{text[-2000:]}")
            time.sleep(0.05)

    def _spawn(self, command: Sequence[str], log: Path, more: Mapping[str, str]) -> None:
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self._environment(more),
                    cwd=self.directory,
                )
            )

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        from ottla.spark.java import java_home

        java = " ".join(java_options("spark"))
        logging = self.directory / "log4j2.properties"
        if not logging.exists():
            logging.write_text(QUIET)
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
        return {
            **kept,
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(_spark_home()),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={logging.as_uri()} {java}",
            "SPARK_SUBMIT_OPTS": java,
            "PYSPARK_PYTHON": sys.executable,
            **more,
        }


def _share() -> list[str]:
    return [*SHARE, f"spark.executor.extraJavaOptions={' '.join(java_options('spark'))}"]


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _program(name: str) -> str:
    return str(_spark_home() / "bin" / name)
