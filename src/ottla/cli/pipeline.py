"""``ottla pipeline``: make, check, explain and run pipelines of Spark.

Declares the commands, and turns what goes wrong into words. Spark comes in with the command that
needs it: ``init`` needs none.
"""

import shlex
import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_command,
    add_group,
    add_output_option,
    not_empty,
    whole,
)
from ottla.cli.failure import Exit, Failure, explain, leave, leave_at_once
from ottla.cli.interruption import Told, raising
from ottla.cli.near import did_you_mean
from ottla.cli.output import FORMATS, Row, note, write_object, write_rows
from ottla.errors import OttlaError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from ottla.spark.pipelines.engine import Engine
    from ottla.spark.pipelines.graph import Graph
    from ottla.spark.pipelines.project import Project
    from ottla.spark.pipelines.recording import Defined

PICTURES = ("tree", "mermaid", "dot", "svg")
COLUMNS = ("name", "kind", "inputs", "detail", "file")


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "Make, check, explain and run pipelines of Spark."
    verbs = add_group(commands, "pipeline", about)
    _declare_init(add_command(verbs, "init", "Make a project from a template.", init))
    parser = add_command(verbs, "check", "Validate a project; run nothing.", check)
    _declare_project(parser)
    parser.add_argument("--offline", action="store_true", help="do not ask the cluster for topics")
    add_output_option(parser, "text", *FORMATS)
    parser = add_command(verbs, "explain", "Show what reads what.", show)
    _declare_project(parser)
    add_output_option(parser, *PICTURES, *FORMATS)
    parser.add_argument("--picture", metavar="FILE", help="write it to FILE: .svg, .mmd or .dot")
    parser = add_command(verbs, "run", "Run a pipeline: take what there is, and end.", run)
    _declare_project(parser)
    _declare_run(parser)
    add_output_option(parser, "text", *FORMATS)


def _declare_init(parser: Parser) -> None:
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", help="where; it is made")
    parser.add_argument(
        "-t", "--template", default="topic-to-topic", metavar="NAME", help="topic-to-topic"
    )
    parser.add_argument("--list", action="store_true", help="what templates there are")
    add_output_option(parser, *FORMATS)
    parser.add_argument(
        "-b", "--bootstrap-server", dest="bootstrap", type=not_empty, metavar="HOST:PORT"
    )


def _declare_project(parser: Parser) -> None:
    parser.add_argument(
        "project", metavar="PROJECT", nargs="?", default=".", help="its directory or spec; here"
    )
    group = parser.add_argument_group("the session")
    group.add_argument(
        "-b", "--bootstrap-server", dest="bootstrap", type=not_empty, metavar="HOST:PORT,...",
        help="the cluster; else ottla.bootstrap of the spec",
    )  # fmt: skip
    group.add_argument(
        "-C", dest="confs", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the Spark session",
    )  # fmt: skip
    group.add_argument("--master", default="local[*]", help="how many cores: local[2]; local[*]")
    group.add_argument("--log-level", default="off", help="what Spark itself may say: error, warn")


def _declare_run(parser: Parser) -> None:
    parser.add_argument("--refresh", metavar="NAME,...", help="only these data sets, going on")
    parser.add_argument(
        "--full-refresh", metavar="NAME,...", help="these from the beginning: their data goes"
    )
    parser.add_argument("--full-refresh-all", action="store_true", help="everything anew")
    parser.add_argument("--every", metavar="TIME", help="run again and again, this long apart: 30s")
    parser.add_argument("--runs", type=whole, metavar="N", help="with --every: so many runs")
    parser.add_argument(
        "--with-broker", action="store_true",
        help="start a broker at that address for the time of the run, and missing topics in it",
    )  # fmt: skip


def init(options: Namespace) -> None:
    """Make a project from a template."""

    def command() -> None:
        from ottla.spark.pipelines.project import DEFAULT_BOOTSTRAP, TEMPLATES, make

        if options.list:
            rows: list[Row] = [{"name": name, "about": text} for name, text in TEMPLATES.items()]
            columns = ("name", "about")
            write_rows(rows, columns, out.chosen(options.output), header=not options.no_header)
            return
        if options.directory is None:
            raise Failure("which directory?", fix="ottla pipeline init orders", code=Exit.USAGE)
        if options.template not in TEMPLATES:
            known = f"there are {', '.join(TEMPLATES)}"
            fix = did_you_mean(options.template, TEMPLATES) or known
            raise Failure(f"there is no template {options.template}", fix=fix, code=Exit.USAGE)
        directory = Path(options.directory)
        for path in make(directory, options.template, options.bootstrap or DEFAULT_BOOTSTRAP):
            print(path)
        note(f"next: cd {shlex.quote(str(directory))}; ottla pipeline explain; see README.md")

    _guard(command)


def check(options: Namespace) -> None:
    """Validate a project; run nothing."""

    def command() -> None:
        from ottla.cli.pipeline_run import ask_cluster
        from ottla.spark.pipelines.running import Refresh, follow

        project = _project(options)
        with _engine(options, project) as engine:
            defined = _define(engine, project)
            graph = defined.graph
            events = follow(engine.spark, defined, project.storage, refresh=Refresh(), dry=True)
            for _ in events:
                pass
            if not options.offline:
                ask_cluster(defined.asked)
        found: Row = {"name": project.name, "nodes": len(graph.nodes), "flows": len(graph.flows)}
        if options.output in (None, "text"):
            print(f"ok  {project.name}: {len(graph.nodes)} nodes, {len(graph.flows)} flows")
            return
        form, found = out.Format(options.output), {**found, "ok": True}
        if form in (out.Format.TABLE, out.Format.TSV):
            write_rows([found], tuple(found), form, header=not options.no_header)
        else:
            write_object(found, form)

    _guard(command)


def show(options: Namespace) -> None:
    """Show what reads what."""

    def command() -> None:
        from ottla.spark.pipelines import graph as pictures

        project = _project(options)
        with _engine(options, project) as engine:
            graph = _define(engine, project).graph
        draw: dict[str, Callable[[Graph], str]] = {
            "tree": pictures.as_tree,
            "mermaid": pictures.as_mermaid,
            "dot": pictures.as_dot,
            "svg": pictures.as_svg,
        }
        if options.picture:
            path = Path(options.picture)
            form = {".svg": "svg", ".mmd": "mermaid", ".dot": "dot"}.get(path.suffix)
            if form is None:
                raise Failure(
                    f"{path}: no picture of that kind", fix=".svg, .mmd or .dot", code=Exit.USAGE
                )
            path.write_text(draw[form](graph), encoding="utf-8")
            note(f"wrote {path}")
        form = options.output or "tree"
        if form in draw:
            sys.stdout.write(draw[form](graph))
            return
        write_rows(_rows(graph), COLUMNS, out.Format(form), header=not options.no_header)

    _guard(command)


def run(options: Namespace) -> None:
    """Run a pipeline: take what there is, and end."""

    def command() -> None:
        from ottla.cli.pipeline_run import run_project

        project = _project(options)
        with ExitStack() as stack:
            if options.with_broker:
                from ottla.cli.own_broker import OwnBroker

                bootstrap = options.bootstrap or project.bootstrap
                stack.enter_context(OwnBroker(bootstrap, project.directory / "ottla-data"))
            engine = stack.enter_context(_engine(options, project))
            run_project(options, project, engine, lambda: _define(engine, project))

    _guard(command)


def _rows(graph: "Graph") -> list[Row]:
    return [
        {
            "name": node.name,
            "kind": node.kind.value,
            "inputs": graph.inputs_of(node.name),
            "detail": node.detail,
            "file": node.file,
        }
        for node in graph.nodes.values()
    ]


def _project(options: Namespace) -> "Project":
    from ottla.spark.pipelines.project import find, load

    project = load(find(Path(options.project)))
    project.files()  # an empty project is told before Spark starts
    return project


def _engine(options: Namespace, project: "Project") -> "Engine":
    from ottla.spark.pipelines.engine import Engine, project_confs

    confs = project_confs(project)
    for setting in options.confs:
        key, equals, value = setting.partition("=")
        if not equals:
            raise Failure(f"-C {setting!r} is not of the form key=value", code=Exit.USAGE)
        confs[key.strip()] = value.strip()
    engine = Engine(project.name, master=options.master, confs=confs, log_level=options.log_level)
    engine.set_bootstrap(options.bootstrap or project.bootstrap)
    return engine


def _define(engine: "Engine", project: "Project") -> "Defined":
    from ottla.spark.pipelines.recording import define

    return define(engine.spark, project)


def _guard(command: "Callable[[], None]") -> None:
    """Run a command, and leave the process in the right way if it fails."""
    import logging

    from ottla.spark.java import NoJava
    from ottla.spark.pipelines.failing import RunFailed
    from ottla.spark.pipelines.project import ProjectError

    # py4j logs what breaks a wait of its own, with a traceback.
    logging.getLogger().addFilter(_is_no_signal)
    try:
        with raising():
            command()
    except Failure as failure:
        leave(failure)
    except ProjectError as error:
        leave(Failure(error.what, why=error.why, fix=error.fix, code=Exit.USAGE))
    except RunFailed as error:
        leave(Failure(f"the pipeline failed\n{error}"))
    except NoJava as error:
        leave(Failure(str(error)))
    except OttlaError as error:
        leave(explain(error))
    except Told as told:
        note("stopped; the next run goes on from here")
        leave_at_once(told.exit_code)


def _is_no_signal(record: "logging.LogRecord") -> bool:
    """Whether a line of the log is about something else than a signal that ended the command."""
    return not (record.exc_info and isinstance(record.exc_info[1], Told))
