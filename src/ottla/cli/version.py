"""``ottla version``: what is installed here, and how fast its parts are."""

import platform
import sys
from argparse import Namespace
from importlib.util import find_spec

from ottla import __version__
from ottla.cli.arguments import Commands, add_command, add_output_option
from ottla.cli.output import FORMATS, Format, write_object, write_rows


def register(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "version", "Tell the version and what it runs on.", version)
    parser.add_argument("-q", "--quiet", action="store_true", help="the number only")
    add_output_option(parser, *FORMATS)


def version(options: Namespace) -> None:
    """Tell the version, and which optional parts are in use."""
    from ottla.records.kernels import COMPILED

    facts = {
        "version": __version__,
        "python": platform.python_version(),
        "record_kernel": "compiled" if COMPILED else "interpreted",
        "event_loop": "uvloop" if find_spec("uvloop") else "asyncio",
    }
    if options.quiet:
        sys.stdout.write(f"{__version__}\n")
    elif options.output in (Format.TABLE, Format.TSV):
        write_rows([facts], tuple(facts), Format(options.output), header=not options.no_header)
    elif options.output:
        write_object(facts, Format(options.output))
    else:
        sys.stdout.write(
            f"ottla {facts['version']}  Python {facts['python']}"
            f"  records {facts['record_kernel']}  loop {facts['event_loop']}\n"
        )
