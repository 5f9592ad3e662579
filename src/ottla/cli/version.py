"""``ottla version``: what is installed here, and how fast its parts are."""

import platform
from importlib.util import find_spec
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli.output import Format, Output, chosen, write_object


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version")(version)


def version(
    output: Output = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="The number only.")] = False,
) -> None:
    """Tell the version, and which optional parts are in use."""
    from ottla.records.kernels import COMPILED

    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "record_kernel": "compiled" if COMPILED else "interpreted",
        "event_loop": "uvloop" if find_spec("uvloop") else "asyncio",
    }
    if quiet:
        typer.echo(__version__)
    elif output is None or chosen(output) in (Format.TABLE, Format.TSV):
        typer.echo(
            f"ottla {facts['version']}  Python {facts['python']}"
            f"  records {facts['record_kernel']}  loop {facts['event_loop']}"
        )
    else:
        write_object(facts, output)
