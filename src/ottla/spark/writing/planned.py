"""What a query's checkpoint says of a micro-batch: which offsets were planned, and when.

The driver's side. Spark writes ``offsets/<number>`` before a batch runs and never again, so its
bytes are the same for a batch that is repeated, and others for one that is planned anew. Only a
checkpoint on a file system of this machine is looked at; of any other nothing is known.
Source: the files Spark 4.3 writes: a line with the version, one of JSON, then one a source.
"""

import hashlib
import json
from typing import NamedTuple

from ottla.env.real_disk import RealDisk

SIZE_BYTES_MAX = 64 << 20


class Planned(NamedTuple):
    """A micro-batch as it was planned."""

    plan: str
    """The same for the same plan."""
    at_ms: int | None
    """When; None: the file does not say."""


def planned(checkpoint: str | None, batch_id: int) -> Planned | None:
    """Return what is known of the batch, None for nothing. Reads one file."""
    if checkpoint is None:
        return None
    directory = checkpoint.removeprefix("file://").removeprefix("file:")
    if not directory.startswith("/"):
        return None
    try:
        file = RealDisk().open_read_only(f"{directory.rstrip('/')}/offsets/{batch_id}")
        try:
            data = file.read_at(0, min(file.size(), SIZE_BYTES_MAX))
        finally:
            file.close()
    except OSError:
        return None
    return Planned(hashlib.blake2b(data, digest_size=8).hexdigest(), _time(data))


def _time(data: bytes) -> int | None:
    try:
        return int(json.loads(data.split(b"\n")[1])["batchTimestampMs"])
    except (ValueError, LookupError, TypeError):
        return None
