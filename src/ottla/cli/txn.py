"""``ottla txn``: list, describe and abort transactions.

An open transaction holds read_committed consumers up: ``list --open-for`` finds those that do.
"""

from argparse import Namespace
from difflib import get_close_matches

from ottla.cli import output as out
from ottla.cli.arguments import Commands, add_client_options, add_command, add_output_option
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import FORMATS, Row, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.transactions import TransactionDescription, Transactions
from ottla.config.human import parse_duration_ms
from ottla.errors import ErrorCode, KafkaError

COLUMNS = (
    "transactional_id", "state", "producer_id", "epoch", "timeout_ms", "started_ms", "coordinator",
    "partitions",
)  # fmt: skip
ONGOING = "Ongoing"


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "List, describe and abort transactions."
    verbs = commands.add_parser("txn", help=about, description=about).add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    parser = add_command(verbs, "list", "List transactional ids.", list_transactions)
    parser.add_argument(
        "--state", action="append", default=[], help="only Ongoing, Empty ...; may be given twice"
    )
    parser.add_argument(
        "--open-for", metavar="DURATION", help="only transactions open for longer: 30s, 5m"
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Describe transactional ids: state, producer, partitions."
    parser = add_command(verbs, "describe", about, describe)
    parser.add_argument("ids", metavar="ID", nargs="+")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Abort an open transaction; its producer is fenced."
    parser = add_command(verbs, "abort", about, abort)
    parser.add_argument("id", metavar="ID")
    add_consent_options(parser)
    add_client_options(parser)


def list_transactions(options: Namespace) -> None:
    """List transactional ids."""

    async def command(cluster: Cluster) -> None:
        duration_ms = -1 if options.open_for is None else _duration_ms(options.open_for)
        found = await Transactions(cluster).list_transactions(
            states=options.state, duration_min_ms=duration_ms
        )
        rows: list[Row] = [one._asdict() for one in found]
        columns = ("transactional_id", "state", "producer_id")
        write_rows(rows, columns, out.chosen(options.output))

    run(options, command)


def describe(options: Namespace) -> None:
    """Describe transactional ids."""

    async def command(cluster: Cluster) -> None:
        transactions = Transactions(cluster)
        rows = [_row(await _existing(transactions, each)) for each in options.ids]
        write_rows(rows, COLUMNS, out.chosen(options.output))

    run(options, command)


def abort(options: Namespace) -> None:
    """Abort an open transaction."""

    async def command(cluster: Cluster) -> None:
        transactions = Transactions(cluster)
        found = await _existing(transactions, options.id)
        if found.state != ONGOING:
            fix = "ottla txn list --state Ongoing"
            raise Failure(f"{options.id} has no open transaction: {found.state}", fix=fix)
        count = len(found.partitions)
        note(f"abort {options.id}: {count} partition" + ("" if count == 1 else "s"))
        if options.dry_run:
            return
        if not options.yes:
            ask(f"abort {options.id}, and fence its producer? [y/N] ")
        await transactions.abort(options.id)
        print(f"aborted {options.id}")

    run(options, command)


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Failure(f"--open-for {text}: {error}", fix="30s, 5m, 2h", code=Exit.USAGE) from error


def _row(found: TransactionDescription) -> Row:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.start_time_ms if found.start_time_ms >= 0 else None,
        "coordinator": found.coordinator,
        "partitions": [str(each) for each in found.partitions],
    }


async def _existing(transactions: Transactions, name: str) -> TransactionDescription:
    """Describe one. Raises Failure, which names ids of similar names."""
    try:
        return await transactions.describe(name)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        known = [one.transactional_id for one in await transactions.list_transactions()]
        near = get_close_matches(name, known, 3, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "ottla txn list"
        why = f"there is no transactional id {name}"
        raise Failure(why, fix=hint, code=Exit.NOT_FOUND) from error
