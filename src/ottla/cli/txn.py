"""``ottla txn``: list, describe and abort transactions.

An open transaction holds read_committed consumers up: ``list --open-for`` finds those that do.
"""

from argparse import Namespace

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    later,
    one_of,
)
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.cli.output import FORMATS, Row, Value, age_text, answer, note, utc_text, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.transactions import (
    ListedTransaction,
    TransactionDescription,
    Transactions,
)
from ottla.config.human import parse_duration_ms
from ottla.env.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError

COLUMNS = (
    "transactional_id", "state", "producer_id", "epoch", "timeout_ms", "started", "age",
    "coordinator", "partitions",
)  # fmt: skip
LIST_COLUMNS = ("transactional_id", "state", "producer_id", "age", "partitions")
AGE_COLUMNS = ("transactional_id", "age", "started", "producer_id", "partitions")
ONGOING = "Ongoing"
STATES = (
    *("Empty", ONGOING, "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("PrepareEpochFence", "Dead"),
)
_PARTITIONS = "ottla.cli.txn_partitions"


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "List, describe and abort transactions."
    verbs = add_group(commands, "txn", about)
    parser = add_command(verbs, "list", "List transactional ids.", list_transactions)
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        type=one_of(*STATES),
        metavar="STATE",
        help="only Ongoing, Empty ...; may be given twice",
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

    about = "List open transactions, the oldest first."
    parser = add_command(verbs, "ages", about, ages)
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "List the idempotent and transactional producers that partitions remember."
    parser = add_command(verbs, "producers", about, later(_PARTITIONS, "producers"))
    parser.add_argument("topics", metavar="TOPIC[:N,N]", nargs="+")
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Find transactions that are open in partitions and that nobody will end; 1 if any."
    parser = add_command(verbs, "hanging", about, later(_PARTITIONS, "hanging"))
    parser.add_argument("topics", metavar="TOPIC[:N,N]", nargs="*", help="else in all topics")
    parser.add_argument(
        "--open-for", default="15m", metavar="DURATION", help="without a write for so long; 15m"
    )
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
        transactions = Transactions(cluster)
        found = await transactions.list_transactions(
            states=options.state, duration_min_ms=duration_ms
        )
        rows = [await _listed(transactions, one) for one in found]
        if not rows:
            is_chosen = options.state or options.open_for
            how = "producers with a transactional.id make them"
            note(
                "no such transactions; all: ottla txn list"
                if is_chosen
                else f"no transactions yet: {how}"
            )
        write_rows(rows, LIST_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def ages(options: Namespace) -> None:
    """List open transactions by their age."""

    async def command(cluster: Cluster) -> None:
        transactions = Transactions(cluster)
        found = await transactions.list_transactions(states=[ONGOING])
        rows = by_age([await _listed(transactions, one) for one in found])
        if not rows:
            note("no open transactions; all ids: ottla txn list")
        write_rows(rows, AGE_COLUMNS, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def by_age(rows: list[Row]) -> list[Row]:
    """Return the rows with the oldest transaction first; those that have ended are left out."""

    def started_ms(row: Row) -> int:
        at = row.get("started_ms")
        return at if isinstance(at, int) else 0

    return sorted(filter(started_ms, rows), key=started_ms)


def describe(options: Namespace) -> None:
    """Describe transactional ids."""

    async def command(cluster: Cluster) -> None:
        transactions = Transactions(cluster)
        rows = [_row(await _existing(transactions, each)) for each in options.ids]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)

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
        answer(f"aborted {options.id}")

    run(options, command)


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Failure(f"--open-for {text}: {error}", fix="30s, 5m, 2h", code=Exit.USAGE) from error


async def _listed(transactions: Transactions, one: ListedTransaction) -> Row:
    """Return a row; of an open transaction with its age and partitions."""
    row: dict[str, Value] = {**one._asdict()}
    if one.state != ONGOING:
        return row
    try:
        found = _row(await transactions.describe(one.transactional_id))
    except KafkaError as error:  # It has gone meanwhile.
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return row
    return {
        **row,
        **{name: found[name] for name in ("started", "started_ms", "age", "age_ms", "partitions")},
    }


def _row(found: TransactionDescription) -> Row:
    started_ms = found.start_time_ms if found.start_time_ms >= 0 else None
    # By two clocks, the coordinator's and ours.
    age_ms = None if started_ms is None else max(SystemClock().wall_ms() - started_ms, 0)
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if started_ms is None else utc_text(started_ms),
        "started_ms": started_ms,
        "age": None if age_ms is None else age_text(age_ms),
        "age_ms": age_ms,
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
        hint = did_you_mean(name, known, 3) or "ottla txn list"
        why = f"there is no transactional id {name}"
        raise Failure(why, fix=hint, code=Exit.NOT_FOUND) from error
