"""Where tasks may stage what is too large for their messages: given, or found by the driver.

The planner's side: the standard library only. A sink is made for each micro-batch, and looks at one
small file then. In this order:

    the option         ``stagingLocation``: whatever pyarrow has a file system for
    the checkpoint     of a streaming query that names it in an option: a directory in it, if it is
                       a URI, or lies where this process finds it
    this machine       a directory of the user's own among the temporary ones

The last two are guesses, so they come with a proof: a file and what stands in it, which a task has
to find as well before it stages anything. (A URI with a scheme needs none.) Sinks in Python are
not told the session's settings, so ``spark.sql.streaming.checkpointLocation`` is not known here.
"""

import os
import re
import tempfile
from typing import NamedTuple

from ottla.env.clock import SystemClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SystemRng
from ottla.errors import OttlaError

LOCATION = "stagingLocation"
DIRECTORY = "ottla-staging"
PROOF = "machine"
PROOF_BYTES_MAX = 4 << 10


class StagingError(OttlaError):
    """Batches cannot be staged, or found again. Nothing of the micro-batch was written."""


class Proof(NamedTuple):
    """What is found only where the driver's files are."""

    path: str
    text: bytes


class Place(NamedTuple):
    """Where to stage."""

    location: str
    """A path that begins with a slash, or a URI."""
    proof: Proof | None = None
    """None: needs none."""


class Attempt(NamedTuple):
    """One try of one job to write one micro-batch."""

    made_ms: int
    """When, in ms since 1970, by the driver's clock."""
    random: str


class Stage(NamedTuple):
    """What a writer takes to the tasks."""

    place: Place | None
    """None: nothing was given, and nothing found."""
    attempt: Attempt


def stage(given: str | None, checkpoint: str | None) -> Stage:
    """Return where the tasks of one job stage. Reads a file, and may make a directory."""
    attempt = Attempt(SystemClock().wall_ms(), SystemRng().random_bytes(6).hex())
    if given is not None:
        return Stage(Place(given), attempt)
    place = None if checkpoint is None else _in_checkpoint(checkpoint)
    return Stage(place or _on_this_machine(), attempt)


def local_path(location: str) -> str | None:
    """Return the path that a location of this machine's file systems means, None for others."""
    path = re.sub(r"^file:(//)?(?=/(?!/))", "", location)
    return path if path.startswith("/") else None


def has_scheme(location: str) -> bool:
    """Tell whether a location is a URI."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location) is not None


def without_secrets(location: str) -> str:
    """Return a location as people may see it: without a password, or what is asked of a service."""
    return re.sub(r"//[^/@]*@", "//...@", location).partition("?")[0]


def holds(proof: Proof | None) -> bool:
    """Tell whether this process sees the driver's files. Reads one."""
    return proof is None or _content(proof.path) == proof.text


def path_of_checkpoint(checkpoint: str) -> str | None:
    """Return where this process would find a checkpoint, absolute; None: it is a URI's elsewhere.

    Spark finds a relative path from where this process runs, too. Without a scheme it may yet be of
    a file system that only Spark knows.
    """
    path = local_path(checkpoint)
    if path is None and has_scheme(checkpoint):
        return None
    return os.path.abspath(path or checkpoint)


def _in_checkpoint(checkpoint: str) -> Place | None:
    path = path_of_checkpoint(checkpoint)
    if path is None:
        return Place(f"{checkpoint.rstrip('/')}/{DIRECTORY}")
    # Whether it is of this file system a query's first file tells.
    metadata = f"{path}/metadata"
    content = _content(metadata)
    return None if not content else Place(f"{path}/{DIRECTORY}", Proof(metadata, content))


def _on_this_machine() -> Place | None:
    directory = f"{tempfile.gettempdir()}/{DIRECTORY}-{os.getuid()}"
    proof = f"{directory}/{PROOF}"
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory, follow_symlinks=False)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            return None  # somebody else may look into it
        if not _content(proof):  # a power cut may have left it empty
            _make(proof, SystemRng().random_bytes(16).hex().encode())
    except OSError:
        return None
    content = _content(proof)
    return None if not content else Place(directory, Proof(proof, content))


def _make(path: str, content: bytes) -> None:
    """Make a file with its content at once; of several that do so, the last one's stays."""
    fresh = f"{path}-{SystemRng().random_bytes(6).hex()}"
    disk = RealDisk()
    file = disk.open(fresh, create=True, exclusive=True)
    try:
        file.write_at(0, content)
    finally:
        file.close()
    disk.rename(fresh, path)


def _content(path: str) -> bytes | None:
    try:
        file = RealDisk().open_read_only(path)
        try:
            return file.read_at(0, PROOF_BYTES_MAX)
        finally:
            file.close()
    except OSError:
        return None
