"""What a query's checkpoint says of a micro-batch: which offsets were planned.

The driver's side. Spark writes ``offsets/<number>`` before a batch runs and never again, so its
bytes are the same for a batch that is repeated, and others for one that is planned anew. Only a
checkpoint on a file system of this machine is looked at; of any other nothing is known.
Source: the files Spark 4.3 writes: a line with the version, one of JSON, then one a source.
"""

import hashlib

from ottla.env.real_disk import RealDisk
from ottla.spark.writing.staging_place import path_of_checkpoint

SIZE_BYTES_MAX = 64 << 20


def planned(checkpoint: str | None, batch_id: int) -> str | None:
    """Return a text that is the same for the same plan, None where none is known. Reads a file."""
    directory = None if checkpoint is None else path_of_checkpoint(checkpoint)
    if directory is None:
        return None
    try:
        file = RealDisk().open_read_only(f"{directory}/offsets/{batch_id}")
        try:
            data = file.read_at(0, min(file.size(), SIZE_BYTES_MAX))
        finally:
            file.close()
    except OSError:
        return None
    return hashlib.blake2b(data, digest_size=8).hexdigest()
