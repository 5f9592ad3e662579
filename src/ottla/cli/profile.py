"""``ottla profile``: connection settings by name, so that ``-b`` and the rest are typed once."""

from argparse import Namespace
from pathlib import Path

from ottla.cli import profile_files as files
from ottla.cli.arguments import (
    Command,
    Commands,
    Parser,
    add_command,
    add_group,
    add_output_option,
    not_empty,
)
from ottla.cli.failure import Exit, Failure, explain, leave
from ottla.cli.output import FORMATS, Row, chosen, note, write_rows
from ottla.config.option import InvalidConfig

COLUMNS = ("name", "in_use", "bootstrap_servers", "security_protocol")
BOOTSTRAP = "bootstrap.servers"
HIDDEN = "(hidden)"


def register(commands: Commands) -> None:
    """Declare the commands."""
    verbs = add_group(commands, "profile", "Keep connection settings by name, and choose.")
    parser = add_command(verbs, "list", "List profiles.", list_)
    add_output_option(parser, *FORMATS)
    parser = _add(verbs, "show", "Show a profile's settings; secrets are hidden.", show)
    add_output_option(parser, *FORMATS)
    about = (
        "Make a profile or change settings of it. Secrets are not typed: KEY.file=PATH or"
        " KEY.command='pass show kafka' tells where they are."
    )
    parser = _add(verbs, "set", about, set_)
    parser.add_argument(
        "-X",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a client setting; KEY= takes it away",
    )
    parser.add_argument(
        "-b", "--bootstrap-server", dest="servers", type=not_empty, metavar="HOST:PORT,..."
    )
    parser = add_command(verbs, "use", "Use a profile where nothing else names a cluster.", use)
    parser.add_argument("name", metavar="NAME", nargs="?", help="none: use no profile any more")
    _add(verbs, "delete", "Delete a profile.", delete)


def _add(verbs: Commands, name: str, about: str, command: Command) -> Parser:
    parser = add_command(verbs, name, about, command)
    parser.add_argument("name", metavar="NAME")
    return parser


def list_(options: Namespace) -> None:
    """List profiles."""
    in_use = files.current()
    rows: list[Row] = []
    for name in files.names():
        texts = _read(name)
        rows.append(
            {
                "name": name,
                "in_use": name == in_use,
                "bootstrap_servers": texts.get(BOOTSTRAP),
                "security_protocol": texts.get("security.protocol", "PLAINTEXT"),
            }
        )
    write_rows(rows, COLUMNS, chosen(options.output), header=not options.no_header)
    if not rows:
        note("no profiles yet: ottla profile set NAME -b HOST:PORT")


def show(options: Namespace) -> None:
    """Show a profile."""
    texts = _read(options.name)
    rows: list[Row] = [
        {"key": key, "value": HIDDEN if key in files.SECRETS else value}
        for key, value in sorted(texts.items())
    ]
    write_rows(rows, ("key", "value"), chosen(options.output), header=not options.no_header)


def set_(options: Namespace) -> None:
    """Make or change a profile."""
    from ottla.client.wire.settings import KNOWN, near_settings, parse_bootstrap

    try:
        path = files.path_of(options.name)
        texts = _read(options.name) if path.is_file() else {}
        given = [] if options.servers is None else [f"{BOOTSTRAP}={options.servers}"]
        for each in (*given, *options.settings):
            key, equals, value = (part.strip() for part in each.partition("="))
            plain = key.removesuffix(files.FILE).removesuffix(files.COMMAND)
            if not equals:
                raise Failure(f"{each!r} is not of the form key=value", code=Exit.USAGE)
            if key not in KNOWN and plain not in files.SECRETS:
                raise Failure(f"{key} is no setting{near_settings(key)}", code=Exit.USAGE)
            if not value:
                texts.pop(key, None)
                continue
            if key in files.SECRETS:
                why = "others may see what is typed here"
                fix = f"{key}.file=PATH, or {key}.command='pass show kafka'"
                raise Failure(f"{key} is a secret", why=why, fix=fix, code=Exit.USAGE)
            texts[key] = value
        if BOOTSTRAP in texts:
            parse_bootstrap(texts[BOOTSTRAP])
        _write(path, "".join(f"{key}={_escaped(value)}\n" for key, value in texts.items()))
    except InvalidConfig as error:
        leave(explain(error))
    except Failure as failure:
        leave(failure)
    note(f"{options.name} is in {path}")
    if files.current() != options.name:
        note(f"to use it by itself: ottla profile use {options.name}")


def use(options: Namespace) -> None:
    """Choose a profile."""
    try:
        if options.name is not None:
            files.existing(options.name)
        _write(files.directory() / "current", f"{options.name or ''}\n")
    except Failure as failure:
        leave(failure)
    whose = "no profile" if options.name is None else options.name
    note(f"{whose} is in use where nothing else names a cluster")


def delete(options: Namespace) -> None:
    """Delete a profile."""
    try:
        files.existing(options.name).unlink()
        if files.current() == options.name:
            _write(files.directory() / "current", "\n")
    except OSError as error:
        leave(Failure(f"cannot delete {options.name}", why=str(error)))
    except Failure as failure:
        leave(failure)


def _read(name: str) -> dict[str, str]:
    """Return a profile's settings; leave if it cannot be read."""
    from ottla.config.files import read_properties

    try:
        return read_properties(files.existing(name).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, InvalidConfig) as error:
        leave(Failure(f"cannot read the profile {name}", why=str(error), code=Exit.USAGE))
    except Failure as failure:
        leave(failure)


def _write(path: Path, text: str) -> None:
    """Replace a file by one that only its owner reads. Raises Failure."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new.unlink(missing_ok=True)
        new.touch(mode=0o600, exist_ok=False)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise Failure(f"cannot write {path}", why=error.strerror or str(error)) from error


def _escaped(value: str) -> str:
    """Return a value as a properties file has it."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith((" ", "\t")) else text
