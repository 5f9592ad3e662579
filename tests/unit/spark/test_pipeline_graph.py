"""A pipeline's graph, as text and pictures."""

import xml.dom.minidom

import pytest

from ottla.spark.pipelines.graph import (
    Graph,
    Kind,
    Node,
    as_dot,
    as_mermaid,
    as_svg,
    as_tree,
    line_of,
    read_sql,
    tables_in,
)
from ottla.spark.pipelines.running import with_places

SQL = """
-- FROM nowhere
CREATE STREAMING TABLE days USING parquet AS SELECT * FROM STREAM(orders) /* JOIN x */;
CREATE OR REFRESH MATERIALIZED VIEW `a b`.per_day AS
  WITH own AS (SELECT * FROM days), two AS (SELECT 1)
  SELECT 'from quoted; text' FROM own JOIN names USING (id);
CREATE FLOW more AS INSERT INTO days BY NAME SELECT * FROM STREAM other.late;
"""


@pytest.fixture
def graph():
    made = Graph("p")
    made.add(Node("topic orders", Kind.TOPIC, "127.0.0.1:9092"))
    made.add(Node("orders", Kind.TEMPORARY_VIEW, "", "t/orders.py:3"))
    made.connect("orders", "orders", ["topic orders"])
    made.connect("publish", "out", ["per_day", "orders"])
    made.add(Node("out", Kind.SINK, "ottla"))
    read_sql(SQL, "t/days.sql", made)
    made.finish()
    return made


def test_sql_is_looked_through_for_what_it_defines_and_reads(graph):
    assert graph.nodes["days"] == Node("days", Kind.STREAMING_TABLE, "parquet", "t/days.sql:3")
    assert graph.nodes["a b.per_day"].kind is Kind.MATERIALIZED_VIEW
    assert graph.inputs_of("days") == ["orders", "other.late"]
    assert graph.inputs_of("a b.per_day") == ["days", "names"]
    assert graph.nodes["names"].kind is Kind.SOURCE


def test_names_are_found_with_and_without_their_schema(graph):
    assert graph.inputs_of("out") == ["a b.per_day", "orders"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM a.b.c x, LATERAL (SELECT 1) JOIN `d`", ["a.b.c", "d"]),
        ("select * from STREAM x join stream(y) on true", ["x", "y"]),
        ("WITH x AS (SELECT * FROM y) SELECT * FROM x", ["y"]),
        ("SELECT * FROM (SELECT * FROM z)", ["z"]),
    ],
)
def test_tables_of_a_query(query, names):
    assert list(tables_in(query)) == names


def test_layers_go_from_left_to_right(graph):
    layers = graph.layers()
    assert set(layers[0]) == {"topic orders", "names", "other.late"}
    assert layers[1:] == [["orders"], ["days"], ["a b.per_day"], ["out"]]


def test_a_circle_does_not_hang():
    made = Graph("p")
    made.connect("a", "a", ["b"])
    made.connect("b", "b", ["a"])
    made.finish()
    assert sorted(name for layer in made.layers() for name in layer) == ["a", "b"]


def test_the_tree_shows_each_node_and_says_where_it_was_shown(graph):
    text = as_tree(graph)
    assert text.startswith("topic orders  [topic]  127.0.0.1:9092\n└─ orders  [temporary view]\n")
    assert text.count("a b.per_day") == 2
    assert "(see above)" in text


def test_pictures_have_every_node_and_arrow(graph):
    dot, mermaid, svg = as_dot(graph), as_mermaid(graph), as_svg(graph)
    assert '"orders" -> "days";' in dot
    assert mermaid.count("-->") == dot.count("->") == svg.count("marker-end") == 7
    xml.dom.minidom.parseString(svg)
    for name in graph.nodes:
        assert name in dot
        assert name in mermaid
        assert name in svg


def test_an_empty_graph_is_an_empty_picture():
    empty = Graph("p")
    assert as_tree(empty) == ""
    xml.dom.minidom.parseString(as_svg(empty))


def test_a_name_is_found_as_spark_finds_it(graph):
    assert graph.find("per_day") == "a b.per_day"
    assert graph.find("spark_catalog.default.days") == "days"
    assert graph.find("day") is None


def test_a_definition_is_told_with_its_line():
    made = Graph("p")
    text = "/* of\nmany lines */\nCREATE TEMPORARY VIEW a AS SELECT 'x\ny;';\n\n-- b\n"
    read_sql(text + "CREATE MATERIALIZED VIEW b AS SELECT 1", "t.sql", made)
    assert [node.file for node in made.nodes.values()] == ["t.sql:3", "t.sql:7"]


def test_what_stands_in_strings_and_names_is_no_sql():
    made = Graph("p")
    text = (
        "CREATE TEMPORARY VIEW a AS SELECT 'it\\'s; CREATE TEMPORARY VIEW b AS SELECT 1', "
        '"; CREATE TEMPORARY VIEW c AS SELECT 1 -- no comment" FROM `x--y`;'
        "CREATE TEMPORARY VIEW `it's d` AS SELECT ';' FROM a"
    )
    read_sql(text, "t.sql", made)
    made.finish()
    assert made.inputs_of("a") == ["x--y"]
    assert made.inputs_of("it's d") == ["a"]
    assert "b" not in made.nodes
    assert "c" not in made.nodes


SYNTAX = """[PARSE_SYNTAX_ERROR] Syntax error at or near 'one'. SQLSTATE: 42601 (line 4, pos 13)

== SQL ==


CREATE MATERIALIZED VIEW two AS
SELECT x FRM one
-------------^^^
"""


@pytest.mark.parametrize(
    ("error", "text", "line"),
    [
        (SYNTAX, "A;\nB;\n\nCREATE MATERIALIZED VIEW two AS\nSELECT x FRM one;", 5),
        (SYNTAX, "another text", 4),
        ("no line here", "A", None),
    ],
)
def test_an_error_of_sql_is_told_with_its_line(error, text, line):
    assert line_of(error, text) == line


def test_what_an_error_names_is_told_with_its_place(graph):
    text = "Failed to resolve flow 'spark_catalog.default.per_day': `days`.`x` is none of 'orders'"
    assert with_places(text, graph).splitlines()[1:] == [
        "orders is defined in t/orders.py:3",
        "a b.per_day is defined in t/days.sql:4",
    ]
    assert with_places("nothing of days here", graph) == "nothing of days here"
