"""A Spark on this machine that runs pipelines: a JVM with the Connect server, and a session to it.

Spark's pipelines are told over Connect only. The server listens on the loopback at a port of the
system's choice, behind a token of its own. Owns the settings that a pipeline's session needs beside
those of ``local``. Imports pyspark where it is used.
"""

import logging
import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from ottla.env.rng import SystemRng
from ottla.spark.local import session
from ottla.spark.pipelines.project import BOOTSTRAP, Project, needs_pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODE = "SPARK_CONNECT_MODE_ENABLED"
"""While it is set, ``pyspark.sql`` means Connect in this process."""
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of the setting
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
SERVER_CONFS = {
    "spark.plugins": PLUGIN,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.sql.connect.serverStacktrace.enabled": "false",
}


def project_confs(project: Project) -> dict[str, str]:
    """Return the settings of a session for one project, which the spec's own win over.

    Tables lie in ``warehouse`` in the project's directory, and what they are is kept in
    ``catalog`` beside it, so that the next run finds them.
    """
    catalog = project.directory / "catalog"
    return {
        "spark.sql.warehouse.dir": str(project.directory / "warehouse"),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={catalog};create=true"
        ),
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        # A full refresh may give a column another type: its table is empty then.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
        # 16 by default. Each flow of a topic starts Python processes, which Spark waits 10 s for.
        "spark.sql.pipelines.execution.maxConcurrentFlows": "2",
        **project.configuration,
    }


class Engine:
    """A running Spark for pipelines; a context manager. Blocks for seconds at its start."""

    def __init__(
        self,
        name: str,
        *,
        master: str = "local[*]",
        confs: Mapping[str, str] | None = None,
        log_level: str = "off",
    ) -> None:
        """Start, or use the JVM that this process runs already, when it has the server.

        Raises NoJava, ProjectError when packages are missing.
        """
        try:
            import grpc  # noqa: F401 - is it there
            import yaml  # noqa: F401
        except ImportError as error:
            raise needs_pipelines() from error
        token = SystemRng().random_bytes(16).hex()
        given = {**SERVER_CONFS, TOKEN: token, **(confs or {})}
        own = {key: given.pop(key) for key in list(given) if not key.startswith("spark.")}
        os.environ.pop(MODE, None)
        self._classic, self._is_own = _classic(name, master, given, log_level)
        os.environ[MODE] = "1"
        self.spark = _connected(self._classic)
        for key, value in own.items():  # settings of the user's, which Spark's launcher refuses
            self.spark.conf.set(key, value)
        # It prints each error of Spark as JSON, beside the exception that tells the same.
        logging.getLogger("SQLQueryContextLogger").disabled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def classic(self) -> "SparkSession":
        """The session in this process, whose JVM has the server."""
        return self._classic

    def set_bootstrap(self, bootstrap: str) -> None:
        """Let transformations find the cluster there."""
        self.spark.conf.set(BOOTSTRAP, bootstrap)

    def stop(self) -> None:
        """End the session, and the JVM if it was started here."""
        try:
            self.spark.stop()
        finally:
            os.environ.pop(MODE, None)
            if self._is_own:
                self._classic.stop()


def _classic(
    name: str, master: str, confs: Mapping[str, str], log_level: str
) -> "tuple[SparkSession, bool]":
    """Return the session in this process, and whether it was started now."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    there = SparkContext._active_spark_context  # noqa: SLF001 - getOrCreate would start one
    if there is not None and there.getConf().get("spark.plugins", "") == PLUGIN:
        return SparkSession.builder.getOrCreate(), False
    return session(name, master=master, confs=confs, log_level=log_level), True


def _connected(classic: "SparkSession") -> "SparkSession":
    """Return a session over Connect with the server in the JVM of ``classic``."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    token = classic.sparkContext.getConf().get(TOKEN)
    jvm = classic._jvm  # noqa: SLF001 - the port is told nowhere else
    assert jvm is not None, "a session in this process has its JVM"
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    port = service.__getattr__("MODULE$").server().getPort()
    url = f"sc://localhost:{port}/;token={token}"
    return cast("SparkSession", ConnectSession.builder.remote(url).create())
