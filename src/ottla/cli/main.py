"""The entry point: finds the command that was typed and imports nothing of the others.

Owns the list of commands and the first words a newcomer reads. Errors become words and exit codes
in ``failure``. Typer costs 60-90 ms, so what needs no options does without.
"""

import sys
from importlib import import_module

from ottla import __version__

COMMANDS = {
    "serve": "ottla.cli.serve",
    "topic": "ottla.cli.topic",
    "produce": "ottla.cli.produce",
    "consume": "ottla.cli.consume",
    "version": "ottla.cli.version",
}

FIRST_WORDS = f"""\
ottla {__version__}: a Kafka-compatible streaming log

  ottla serve                             start a broker on 127.0.0.1:9092, data in ./ottla-data
  ottla topic create orders -p 3          make a topic of three partitions
  ottla produce orders                    send each line of standard input as a record
  ottla consume orders --from earliest    read them back; --tail to wait for more
  ottla topic list                        what topics there are (-o json for scripts)
  ottla COMMAND --help                    every option of a command
"""


def main() -> None:
    """Run the command line of this process and exit."""
    arguments = sys.argv[1:]
    if not arguments:
        sys.stdout.write(FIRST_WORDS)
        sys.exit(0)
    if arguments in (["--version"], ["-V"]):
        arguments = ["version"]

    import typer

    app = typer.Typer(
        name="ottla",
        help="A Kafka-compatible streaming log.",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_keep_subcommands)
    typed = next((each for each in arguments if not each.startswith("-")), "")
    for name in (typed,) if typed in COMMANDS else COMMANDS:
        import_module(COMMANDS[name]).register(app)
    app(args=arguments, prog_name="ottla")


def _keep_subcommands() -> None:
    """Stand for the app itself, which Typer would else replace by its only command."""
