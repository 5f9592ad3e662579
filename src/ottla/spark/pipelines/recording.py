"""What a project's transformations define: told to Spark, and noted as a graph on the way.

Between the files of a project and the Connect server. Transformations are run here as Spark's own
command runs them, by its functions. Imports pyspark; only ``running`` and tests import this.
"""

import dataclasses
import io
import traceback
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.pipelines import cli as spark_cli
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

from ottla.spark.pipelines.asking import Asked
from ottla.spark.pipelines.failing import RunFailed, explain
from ottla.spark.pipelines.graph import Graph, Kind, Node, line_of, read_sql, tables_in
from ottla.spark.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = "ottla"
TOPIC_FORMATS = (OURS, "kafka")
TOPIC_OPTIONS = ("subscribe", "subscribepattern", "assign", "topic")


class Defined(NamedTuple):
    """What a project's transformations have defined."""

    graph_id: str
    """In Spark."""
    graph: Graph
    asked: tuple[Asked, ...]
    """The sources and sinks that are topics."""


def define(spark: "SparkSession", project: Project) -> Defined:
    """Define the project's graph in Spark.

    Runs the transformations. Raises RunFailed for what they or Spark find wrong, ProjectError.
    """
    files = project.files()
    graph_id = create_dataflow_graph(
        spark,
        default_catalog=project.catalog,
        default_database=project.database,
        sql_conf=dict(project.configuration),
    )
    registry = Registry(spark, graph_id, project)
    spec = spark_cli.PipelineSpec(
        name=project.name,
        storage=project.storage,
        catalog=project.catalog,
        database=project.database,
        configuration=project.configuration,
        libraries=[
            spark_cli.LibrariesGlob(include=str(path.relative_to(project.directory)))
            for path in files
        ],
    )
    try:
        with redirect_stdout(io.StringIO()):  # it tells of each file
            spark_cli.register_definitions(project.spec, registry, spec, spark, graph_id)
    except RunFailed:
        raise
    except Exception as error:
        # Transformations are the user's own code: whatever they raise is told with its place.
        raise RunFailed(_place(error, project) + explain(error)) from error
    registry.graph.finish()
    return Defined(graph_id, registry.graph, tuple(registry.asked))


def _place(error: BaseException, project: Project) -> str:
    """Return ``file:line: `` of the last line of the project that an error went through."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: "
    inside = [
        f"{frame.filename}:{frame.lineno}: {type(error).__name__}: "
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(project.directory)
    ]
    return inside[-1] if inside else ""


class Registry(SparkConnectGraphElementRegistry):
    """Spark's registry, which also notes the graph."""

    def __init__(self, spark: "SparkSession", graph_id: str, project: Project) -> None:
        super().__init__(spark, graph_id)
        self.graph = Graph(project.name)
        self.asked: list[Asked] = []
        self._directory = project.directory

    def register_output(self, output: Output) -> None:
        """Define a table, view or sink."""
        where = output.source_code_location
        file = f"{self._relative(where.filename)}:{where.line_number}"
        self._require_new(output.name, file)
        super().register_output(output)
        self.graph.add(Node(output.name, _kind(output), _detail(output), file))
        if isinstance(output, Sink):
            if output.format == OURS:
                self.asked.append(Asked(output.name, file, dict(output.options), is_sink=True))
            for node in _places(output.format, output.options):
                self.graph.add(node)
                self.graph.connect(output.name, node.name, [output.name])

    def register_flow(self, flow: Any) -> None:  # noqa: ANN401 - pyspark is untyped
        """Define a flow; what it reads is found in its plan."""
        seen: list[Any] = []

        def once() -> Any:  # noqa: ANN401
            seen.append(flow.func())
            return seen[-1]

        super().register_flow(dataclasses.replace(flow, func=once))
        inputs: list[str] = []
        plan = seen[-1]._plan.plan(self._client)  # noqa: SLF001
        where = flow.source_code_location
        file = f"{self._relative(where.filename)}:{where.line_number}"
        for options in topics_read_by(plan):
            self.asked.append(Asked(flow.name, file, options, is_sink=False))
        for node in read_by(plan):
            if node.kind is not Kind.TABLE:
                self.graph.add(node)
            inputs.append(node.name)
        self.graph.connect(flow.name, flow.target, inputs)

    def register_auto_cdc_flow(self, flow: Any) -> None:  # noqa: ANN401
        """Define a flow of changes."""
        super().register_auto_cdc_flow(flow)
        self.graph.connect(flow.name or flow.target, flow.target, [flow.source])

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Define what a file of SQL says."""
        mine = Graph("")
        read_sql(sql_text, str(file_path), mine)
        for node in mine.nodes.values():
            self._require_new(node.name, node.file)
        try:
            super().register_sql(sql_text, file_path)
        except PySparkException as error:
            line = line_of(str(error), sql_text)
            place = f"{file_path}:{line}" if line else str(file_path)
            raise RunFailed(f"{place}: {explain(error)}") from error
        read_sql(sql_text, str(file_path), self.graph)

    def _require_new(self, name: str, file: str) -> None:
        """Raise RunFailed where a name is defined already, with both places."""
        there = self.graph.nodes.get(name)
        if there is not None and there.file:
            raise RunFailed(f"{file}: {name} is defined in {there.file} already")

    def _relative(self, file: str | None) -> str:
        path = Path(file or "")
        is_inside = path.is_relative_to(self._directory)
        return str(path.relative_to(self._directory) if is_inside else path)


def _kind(output: Output) -> Kind:
    if isinstance(output, Sink):
        return Kind.SINK
    if isinstance(output, MaterializedView):
        return Kind.MATERIALIZED_VIEW
    return Kind.STREAMING_TABLE if isinstance(output, StreamingTable) else Kind.TEMPORARY_VIEW


def _detail(output: Output) -> str:
    if isinstance(output, Sink):
        delivery = {name.lower(): text for name, text in output.options.items()}.get("delivery")
        return " ".join(each for each in (output.format, delivery) if each)
    if isinstance(output, Table):
        by = f"by {', '.join(output.partition_cols)}" if output.partition_cols else ""
        return " ".join(each for each in (output.format or "", by) if each)
    return ""


def read_by(message: Any) -> Iterator[Node]:  # noqa: ANN401 - a message of Connect's protocol
    """Yield what a plan reads; tables by their name alone."""
    if message.DESCRIPTOR.name == "Read":
        if message.HasField("named_table"):
            yield Node(message.named_table.unparsed_identifier.replace("`", ""), Kind.TABLE)
        elif message.HasField("data_source"):
            yield from _places(message.data_source.format, message.data_source.options)
        return
    if message.DESCRIPTOR.name in {"SQL", "SqlCommand"}:
        yield from (Node(name, Kind.TABLE) for name in tables_in(message.query or message.sql))
    for each in _parts(message):
        yield from read_by(each)


def topics_read_by(message: Any) -> Iterator[dict[str, str]]:  # noqa: ANN401 - as above
    """Yield the options of each source of topics, of our format, in a plan."""
    if message.DESCRIPTOR.name == "Read":
        if message.HasField("data_source") and message.data_source.format == OURS:
            yield dict(message.data_source.options)
        return
    for each in _parts(message):
        yield from topics_read_by(each)


def _parts(message: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        yield from [value] if hasattr(value, "DESCRIPTOR") else value


def _places(form: str, options: Mapping[str, str]) -> Iterator[Node]:
    """Yield the topics that options name, or one node for another format."""
    texts = {name.lower(): text for name, text in options.items()}
    if form not in TOPIC_FORMATS:
        place = texts.get("path", "")
        yield Node(f"{form} {place}".strip(), Kind.SOURCE)
        return
    bootstrap = texts.get("kafka.bootstrap.servers") or texts.get("bootstrap.servers", "")
    for name in TOPIC_OPTIONS:
        if name in texts:
            for topic in texts[name].split(",") if name == "subscribe" else [texts[name]]:
                yield Node(f"topic {topic.strip()}", Kind.TOPIC, bootstrap)
