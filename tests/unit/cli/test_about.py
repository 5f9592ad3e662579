"""``ottla --help`` says of each command what the command says of itself, and imports none."""

import subprocess
import sys
from importlib import import_module

from ottla.cli.about import ABOUT
from ottla.cli.arguments import Parser
from ottla.cli.main import COMMANDS


def test_every_command_is_told_of_in_its_own_words():
    commands = Parser(prog="ottla").add_subparsers()
    for module in COMMANDS.values():
        import_module(module).register(commands)
    assert {each.dest: each.help for each in commands._choices_actions} == ABOUT


def test_help_imports_no_command():
    program = "import sys; from ottla.cli.main import command_line\n"
    program += "try: command_line(['--help'])\n"
    program += (
        "finally: print([each for each in sys.modules if 'ottla.c' in each], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "acl" in done.stdout
    assert "asyncio" not in done.stderr
    assert "ottla.cli.topic'" not in done.stderr
