"""A pipeline's graph: what reads what, as values, and how it looks as text, Mermaid, DOT and SVG.

Pure: built by ``recording`` from what transformations define, shown by the command line. Knows no
Spark. SQL is looked through for names, not understood: a name it misses is an arrow less.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from xml.sax.saxutils import escape


class Kind(Enum):
    """What a node is, in the words of Spark's pipelines."""

    TOPIC = "topic"
    SOURCE = "source"
    TABLE = "table"
    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"


TABLES = (Kind.STREAMING_TABLE, Kind.MATERIALIZED_VIEW)
"""What has files of its own."""


class Node(NamedTuple):
    """One data set, or a place outside that is read or written."""

    name: str
    kind: Kind
    detail: str = ""
    """Where or in which form, for people: ``parquet by day``."""
    file: str = ""
    """The file that defines it, and its line; empty for what is outside."""


class Flow(NamedTuple):
    """Data that goes from some nodes to one, under a name."""

    name: str
    target: str
    inputs: tuple[str, ...]


_QUOTED = re.compile(r"\b\w+\.\w+\.(\w+)\b|'(\w+)'")
"""A data set in an error of Spark's: with its catalog and schema, or in quotes."""


@dataclass(slots=True)
class Graph:
    """Nodes by name, and flows. Names are as the definitions spell them."""

    name: str
    nodes: dict[str, Node] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Add a node; the first of a name stays."""
        self.nodes.setdefault(node.name, node)

    def connect(self, name: str, target: str, inputs: Iterable[str]) -> None:
        """Add a flow. An input that no node has the name of is a table outside of the pipeline."""
        self.flows.append(Flow(name, target, tuple(dict.fromkeys(inputs))))

    def finish(self) -> None:
        """Give every name in a flow its node. Call once, when all is defined."""
        short = {name.rpartition(".")[2]: name for name in self.nodes}
        for number, flow in enumerate(self.flows):
            inputs = tuple(self._known(name, short) for name in flow.inputs)
            target = self._known(flow.target, short)
            self.flows[number] = Flow(flow.name, target, inputs)
            for name in (*inputs, target):
                self.add(Node(name, Kind.SOURCE, "table outside of the pipeline"))

    def _known(self, name: str, short: Mapping[str, str]) -> str:
        return name if name in self.nodes else short.get(name.rpartition(".")[2], name)

    def named_in(self, text: str) -> list[Node]:
        """Return the nodes of the pipeline's own that ``text``, an error of Spark's, quotes."""
        quoted = {long or short for long, short in _QUOTED.findall(text.replace("`", ""))}
        return [
            node
            for name, node in self.nodes.items()
            if node.file and name.rpartition(".")[2] in quoted
        ]

    def find(self, name: str) -> str | None:
        """Return the node that ``name`` means, with its schema or without; None: there is none."""
        short = {each.rpartition(".")[2]: each for each in self.nodes}
        found = self._known(name, short)
        return found if found in self.nodes else None

    def inputs_of(self, name: str) -> list[str]:
        """Return the names of the nodes that ``name`` is made from."""
        found = (each for flow in self.flows if flow.target == name for each in flow.inputs)
        return list(dict.fromkeys(found))

    def layers(self) -> list[list[str]]:
        """Return the names in columns: each right of all that it is made from."""
        depth: dict[str, int] = {}

        def measure(name: str, above: frozenset[str]) -> int:
            if name not in depth:
                inputs = [each for each in self.inputs_of(name) if each not in above]
                below = above | {name}
                depth[name] = 1 + max((measure(each, below) for each in inputs), default=-1)
            return depth[name]

        for name in self.nodes:
            measure(name, frozenset())
        found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for name in self.nodes:
            found[depth[name]].append(name)
        return found


# ------------------------------------------------------------------------------------------- SQL

_NO_CODE = re.compile(
    r"""`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
"""Names in backquotes, which stay; strings, in quotes of both kinds, and comments."""
_NAME = r"(`[^`]+`|[\w]+)(?:\.(`[^`]+`|[\w]+))*"
_DEFINITION = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REFRESH\s+)?(STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME})(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_FLOW = re.compile(
    rf"^\s*CREATE\s+FLOW\s+(?P<flow>{_NAME})\s+AS\s+(?:INSERT|AUTO\s+CDC)\s+(?:ONCE\s+)?INTO\s+"
    rf"(?P<name>{_NAME})(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_READ = re.compile(rf"\b(?:FROM|JOIN)\s+(?:STREAM\s*\(?\s*)?(?P<name>{_NAME})", re.IGNORECASE)
_CTE = re.compile(r"(?:\bWITH\b|,)\s*(\w+)\s+AS\s*\(", re.IGNORECASE)
_AT = re.compile(r"\(line (\d+), pos \d+\)")
_FORMAT = re.compile(r"\bUSING\s+(\w+)", re.IGNORECASE)


def read_sql(text: str, file: str, graph: Graph) -> None:
    """Add to ``graph`` what a file of SQL defines, each with its line."""
    at = 1
    for plain in _plain(text).split(";"):
        line = at + plain[: len(plain) - len(plain.lstrip())].count("\n")
        at += plain.count("\n")
        found = _DEFINITION.match(plain)
        if found:
            kind = Kind(" ".join(found[1].lower().split()))
            name = found["name"].replace("`", "")
            form = _FORMAT.search(found["rest"])
            graph.add(Node(name, kind, form[1] if form else "", f"{file}:{line}"))
            reads = list(tables_in(found["rest"]))
            if reads:
                graph.connect(name, name, reads)
            continue
        found = _FLOW.match(plain)
        if found:
            flow, name = found["flow"].replace("`", ""), found["name"].replace("`", "")
            graph.connect(flow, name, tables_in(found["rest"]))


def line_of(error: str, text: str) -> int | None:
    """Return the line of ``text``, a file of SQL, that an error of Spark's means; None: no line.

    Spark counts within the statement, which it quotes.
    """
    found = _AT.search(error)
    if found is None:
        return None
    statement = error.partition("== SQL ==\n")[2].partition("\n---")[0]
    begin = text.find(statement) if statement.strip() else 0
    return int(found[1]) + text[: max(begin, 0)].count("\n")


def _plain(text: str) -> str:
    """Return SQL without what is written in its strings and comments, line by line as it was."""

    def without(found: re.Match[str]) -> str:
        if found[0].startswith("`"):
            return found[0]
        return ("''" if found[0][0] in "'\"" else " ") + "\n" * found[0].count("\n")

    return _NO_CODE.sub(without, text)


def tables_in(query: str) -> Iterator[str]:
    """Yield the names that a query reads, without those of its own WITH clauses."""
    query = _plain(query)
    own = {name.lower() for name in _CTE.findall(query)}
    for found in _READ.finditer(query):
        name = found["name"].replace("`", "")
        if name.lower() not in own and name.lower() not in {"select", "lateral"}:
            yield name


# --------------------------------------------------------------------------------------- pictures


def as_tree(graph: Graph) -> str:
    """Return the graph as indented text: under each node what is made from it."""
    made: dict[str, list[str]] = {}
    for flow in graph.flows:
        for name in flow.inputs:
            if flow.target not in made.setdefault(name, []):
                made[name].append(flow.target)
    lines: list[str] = []
    shown: set[str] = set()

    def show(name: str, indent: str, branch: str, below: str) -> None:
        node = graph.nodes[name]
        detail = f"  {node.detail}" if node.detail else ""
        again = "  (see above)" if name in shown and made.get(name) else ""
        lines.append(f"{indent}{branch}{name}  [{node.kind.value}]{detail}{again}")
        if name in shown:
            return
        shown.add(name)
        rest = made.get(name, [])
        for number, each in enumerate(rest, 1):
            is_last = number == len(rest)
            show(each, indent + below, "└─ " if is_last else "├─ ", "   " if is_last else "│  ")

    for name in (graph.layers() or [[]])[0]:
        show(name, "", "", "")
    return "".join(line + "\n" for line in lines)


def as_mermaid(graph: Graph) -> str:
    """Return the graph for Mermaid, which GitHub and many editors draw."""
    numbers = {name: f"n{number}" for number, name in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for name, node in graph.nodes.items():
        begin, end = ("([", "])") if _is_outside(node.kind) else ("[", "]")
        text = f"{name}<br/><i>{node.kind.value}</i>".replace('"', "#quot;")
        lines.append(f'  {numbers[name]}{begin}"{text}"{end}')
    lines.extend(f"  {numbers[one]} --> {numbers[two]}" for one, two in _arrows(graph))
    return "\n".join(lines) + "\n"


def as_dot(graph: Graph) -> str:
    """Return the graph for Graphviz."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=LR; node [shape=box];"]
    for name, node in graph.nodes.items():
        shape = " shape=ellipse" if _is_outside(node.kind) else ""
        label = _quoted(f"{name}\\n{node.kind.value}")
        lines.append(f"  {_quoted(name)} [label={label}{shape}];")
    lines.extend(f"  {_quoted(one)} -> {_quoted(two)};" for one, two in _arrows(graph))
    return "\n".join([*lines, "}"]) + "\n"


_SVG_ARROWHEAD = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0L8 4L0 8z" fill="#678"/></marker></defs>'
)
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 200, 48, 70, 24, 20


def as_svg(graph: Graph) -> str:
    """Return the graph as a picture of its own: columns from left to right."""
    layers = graph.layers()
    rows = max(map(len, layers), default=0)
    width = 2 * MARGIN + len(layers) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + rows * (BOX_HEIGHT + GAP_Y) - GAP_Y
    places: dict[str, tuple[int, int]] = {}
    for column, names in enumerate(layers):
        top = MARGIN + (rows - len(names)) * (BOX_HEIGHT + GAP_Y) // 2
        for row, name in enumerate(names):
            x = MARGIN + column * (BOX_WIDTH + GAP_X)
            places[name] = (x, top + row * (BOX_HEIGHT + GAP_Y))
    size = f'width="{max(width, 1)}" height="{max(height, 1)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        _SVG_ARROWHEAD,
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    lines.extend(_svg_arrow(places[one], places[two]) for one, two in _arrows(graph))
    lines.extend(_svg_box(graph.nodes[name], *place) for name, place in places.items())
    return "\n".join([*lines, "</svg>"]) + "\n"


def _svg_arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
    return f'<path d="{path}" fill="none" stroke="#678" marker-end="url(#end)"/>'


def _svg_box(node: Node, x: int, y: int) -> str:
    radius, fill = (BOX_HEIGHT // 2, "#eef4fb") if _is_outside(node.kind) else (4, "#f7f7f2")
    middle = x + BOX_WIDTH // 2
    name = node.name if len(node.name) <= 24 else node.name[:23] + "…"
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{radius}"'
        f' fill="{fill}" stroke="#678"/><g text-anchor="middle"><text x="{middle}" y="{y + 20}">'
        f"{escape(name)}<title>{escape(node.name)}</title></text>"
        f'<text x="{middle}" y="{y + 37}" fill="#678" font-size="11">{node.kind.value}</text></g>'
    )


def _arrows(graph: Graph) -> list[tuple[str, str]]:
    pairs = ((each, flow.target) for flow in graph.flows for each in flow.inputs)
    return list(dict.fromkeys(pairs))


def _is_outside(kind: Kind) -> bool:
    return kind in {Kind.TOPIC, Kind.SOURCE, Kind.SINK}


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
