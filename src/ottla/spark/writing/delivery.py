"""What the end of a batch means on the driver: which batch it is, under whose name it is written.

Between ``sink``, which Spark calls, and ``transaction``, which writes. Owns which transactional id
and marker a batch gets, and that what was staged for it is removed. Knows no Arrow.
"""

import logging
from collections.abc import Iterable, Sequence

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.spark.writing.identity import BatchOf, Content
from ottla.spark.writing.marker import DeliveryError, Marker, Rules
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.outgoing import Outgoing
from ottla.spark.writing.planned import planned
from ottla.spark.writing.sink_options import (
    APP_ID,
    DELIVERY,
    ID_PREFIX,
    TRANSACTIONAL_ID,
    VERSION,
    SinkOptions,
    transactional_id_of,
)
from ottla.spark.writing.staged_files import StagedFile, orphans
from ottla.spark.writing.staging_place import Place, StagingError, local_path
from ottla.spark.writing.transaction import deliver

LOG = logging.getLogger("ottla.spark")


def deliver_staged(
    options: SinkOptions, staged: Sequence[Staged], batch_id: int | None, place: Place | None
) -> None:
    """Write what the tasks of one batch have staged; ``batch_id`` is that of a micro-batch.

    ``place`` is where something may have been staged for it earlier. Raises as ``deliver`` does.
    """
    outgoing = Outgoing(staged)
    known = _known(options, staged, batch_id)
    is_stream = batch_id is not None
    if known is None:
        _require_no_id(options)
        name = options.transactional_id or ID_PREFIX + SystemRng().random_bytes(16).hex()
        deliver(options, name, None, outgoing)
        remove_staged(staged)
        return
    marker = Marker(
        known.query_id,
        known.batch_id,
        options.topic,
        known.run_id,
        _sum(one.content for one in staged),
        planned(options.checkpoint, known.batch_id) if is_stream else None,
    )
    rules = Rules(
        are_gaps_legal=not is_stream,
        missing=options.missing,
        changed=options.changed,
    )
    name = _id(options, known, is_stream=is_stream)
    done = deliver(options, name, marker, outgoing, rules)
    is_first_of_run = done.found is None or done.found.run_id != known.run_id
    locations = {file.location for file in outgoing.files}
    if is_first_of_run and place is not None and _is_seen(place):
        locations.add(place.location)  # the run before may have been killed
    for location in sorted(locations):
        _clear(location, outgoing.files, name, known.batch_id)


def remove_staged(staged: Iterable[Staged]) -> None:
    """Remove the files of a batch that is not written after all; ignore what a disk refuses."""
    files = [each.file for each in staged if each.file is not None]
    for location in sorted({file.location for file in files}):
        _clear(location, files)


def _is_seen(place: Place) -> bool:
    """Tell whether a run may have left something on this machine's file systems.

    Only a run that has staged something there asks a remote file system: those are slow, and a run
    that never stages need not have the right to look.
    """
    path = local_path(place.location)
    return path is not None and RealDisk().is_directory(path)


def _clear(
    location: str,
    files: Iterable[StagedFile],
    owner: str | None = None,
    done: int | None = None,
) -> None:
    """Remove the attempts of ``files``, and those of ``owner`` up to the micro-batch ``done``.

    Whatever was killed has left something. A location that refuses is no reason to fail: the batch
    is written.
    """
    from ottla.spark.writing.staging import Location

    try:
        there = Location(location)
        for directory in sorted({file.directory for file in files if file.location == location}):
            there.remove(directory)
        for directory in orphans(there.directories(), owner, done, SystemClock().wall_ms()):
            there.remove(directory)
    except StagingError as error:
        LOG.warning("what was staged for a batch that is done stays there: %s", error)


def _sum(contents: Iterable[Content]) -> Content:
    every = list(contents)
    return Content(sum(each.rows for each in every), sum(each.sum for each in every) % (1 << 64))


def _require_no_id(options: SinkOptions) -> None:
    """Raise DeliveryError for a transactional.id where nobody knows which batch this is."""
    if options.transactional_id is None:
        return
    message = (
        f"{TRANSACTIONAL_ID} is given, and which micro-batch this is is not known: over Spark "
        "Connect, and in threads of one's own, Spark does not tell. Written like this, a batch "
        "that is repeated would be there twice. In foreachBatch use ottla.spark.write_batch(df, "
        f"batch_id, ...), or give the options {APP_ID} (a name that stays, another for each sink) "
        f"and {VERSION} (batch_id). A job that comes once needs no {TRANSACTIONAL_ID}: leave it out"
    )
    raise DeliveryError(message)


def _id(options: SinkOptions, known: BatchOf, *, is_stream: bool) -> str:
    """Return the transactional id. A stream has one sink, so the query's id will do there."""
    if options.transactional_id is None and not is_stream and options.by_hand is None:
        message = (
            f"writing in foreachBatch with {DELIVERY}=exactly-once needs the option "
            f"{TRANSACTIONAL_ID}, another one for each sink (or use ottla.spark.write_batch)"
        )
        raise DeliveryError(message)
    return transactional_id_of(options, known)


def _known(options: SinkOptions, staged: Sequence[Staged], batch_id: int | None) -> BatchOf | None:
    """Return which batch this is, None for a job that is no micro-batch as far as anybody knows."""
    if batch_id is None and not staged:
        return options.by_hand
    told = {each.batch_of for each in staged}
    if batch_id is None and told <= {None}:
        return None
    numbers = {each.batch_id for each in told if each is not None}
    numbers |= set() if batch_id is None else {batch_id}
    if None in told or len(told) != 1 or len(numbers) != 1:
        message = f"tasks of different batches in batch {batch_id}: {sorted(map(str, told))}"
        raise DeliveryError(message)
    return next(iter(told))
