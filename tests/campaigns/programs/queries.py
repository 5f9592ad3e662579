"""The same frames in Spark, by one of two formats: ours, or that of Spark's Kafka connector.

Frames are shared: each step is done once, and what follows builds on the frame that it made. A
question is a query of its own each time. Knows nothing of the model.
"""

import json

from tests.campaigns.programs.model import COLUMNS, ordered

PATIENCE = {"fetchOffset.numRetries": "400", "fetchOffset.retryIntervalMs": "500"}
"""A broker that is started again is waited for."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
HEADERS = (
    "IF(headers IS NULL, NULL, concat_ws('|', transform(headers,"
    " h -> concat(h.key, '=', coalesce(hex(h.value), 'null'))))) AS h"
)


class Queries:
    """The frames of a program in one format."""

    def __init__(self, spark, name, bootstrap):
        self.name = name
        self.frames = []
        self._spark = spark
        self._bootstrap = bootstrap

    def add(self, step):
        """Make the frame of a step."""
        kind, *more = step
        if kind == "base":
            self.frames.append(self._base(more[0]))
            return
        one = self.frames[more[0]]
        if kind == "filter":
            made = one.where(sql_of(more[1]))
        elif kind == "sql":
            view = f"{self.name}_view_{len(self.frames)}"
            one.createOrReplaceTempView(view)
            made = self._spark.sql(f"SELECT * FROM {view} WHERE {sql_of(more[1])}")
        elif kind == "union":
            made = one.union(self.frames[more[1]])
        elif kind == "first":
            made = one.orderBy(*COLUMNS[:3]).limit(more[1])
        elif kind == "within":
            made = self._within(one, *more[1:])
        elif kind == "inner":
            other = self.frames[more[1]].select(*more[2])
            made = one.join(other, more[2]).select(*COLUMNS).distinct()
        elif kind in {"semi", "anti"}:
            made = one.join(self.frames[more[1]], more[2], f"left_{kind}").select(*COLUMNS)
        else:
            made = {
                "distinct": one.distinct,
                "shuffled": lambda: one.repartition(3),
                "renamed": lambda: one.select(*reversed(COLUMNS)).select(*COLUMNS),
            }[kind]()
        self.frames.append(made)

    def _within(self, one, other, column):
        number = len(self.frames)
        views = [f"{self.name}_{side}_{number}" for side in ("outer", "inner")]
        one.createOrReplaceTempView(views[0])
        self.frames[other].createOrReplaceTempView(views[1])
        return self._spark.sql(
            f"SELECT * FROM {views[0]} WHERE {column} IN (SELECT {column} FROM {views[1]})"
        )

    def reader(self, options):
        """Return a base frame as it is loaded."""
        given = {
            key: json.dumps(value) if isinstance(value, dict) else value
            for key, value in options.items()
        }
        reader = self._spark.read.format(self.name).options(**given, **PATIENCE)
        return reader.option("kafka.bootstrap.servers", self._bootstrap).load()

    def _base(self, options):
        has_headers = options["includeHeaders"] == "true"
        return self.reader(options).selectExpr(
            "topic", "partition", "offset", "unix_millis(timestamp) AS ts", "timestampType AS tt",
            "hex(key) AS k", "hex(value) AS v", "length(value) AS n",
            HEADERS if has_headers else "CAST(NULL AS string) AS h",
        )  # fmt: skip

    def ask(self, frame, question):
        """Return the answer to a question, a sorted list of tuples."""
        rows = self.frames[frame]
        if question == "count":
            return [(rows.count(),)]
        if question == "empty":
            return [(rows.isEmpty(),)]
        if question == "rows":
            return ordered(rows.select(*COLUMNS).collect())
        keys = ["topic", "partition"] if question == "by partition" else ["k"]
        grouped = rows.groupBy(*keys)
        return ordered(
            grouped.agg(
                *map(_aggregate, ("count(*)", "sum(offset)", "min(ts)", "max(n)"))
            ).collect()
        )

    def ask_all(self):
        """Return the rows of every frame, each with the frame's index, by one query."""
        from pyspark.sql import functions as f

        first, *more = (
            frame.select(f.lit(number).alias("frame"), *COLUMNS)
            for number, frame in enumerate(self.frames)
        )
        for each in more:
            first = first.union(each)
        return ordered(first.collect())

    def write(self, frame, topic, options):
        """Append a frame's rows to a topic."""
        rows = self.frames[frame].selectExpr(
            "unhex(k) AS key", "concat_ws(' ', topic, partition, offset, n) AS value"
        )
        writer = rows.write.format(self.name).mode("append").options(**options)
        writer.option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic).save()


def _aggregate(text):
    from pyspark.sql import functions as f

    return f.expr(text)


def sql_of(predicate):
    """Return a predicate as SQL."""
    kind = predicate[0]
    if kind == "not":
        return f"NOT ({sql_of(predicate[1])})"
    if kind in {"and", "or"}:
        return f" {kind.upper()} ".join(f"({sql_of(each)})" for each in predicate[1:])
    name, operator, *values = predicate
    column = f"`{name}`"  # a bare offset behind WHERE is Spark's clause OFFSET
    if operator == "is null":
        return f"{column} IS NULL"
    if operator == "%":
        return f"{column} % {values[0]} = {values[1]}"
    if operator == "in":
        return f"{column} IN ({', '.join(map(str, values[0]))})"
    return f"{column} {operator} {values[0]!r}"
