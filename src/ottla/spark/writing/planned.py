"""What a query's checkpoint says of a micro-batch: which offsets were planned.

The driver's side. Spark writes ``offsets/<number>`` before a batch runs and never again, so its
bytes are the same for a batch that is repeated, and others for one that is planned anew. Only a
checkpoint on a file system of this machine is looked at; of any other nothing is known.
Source: the files Spark 4.3 writes: a line with the version, one of JSON, then one a source.
"""

import hashlib
import os

from ottla.env.real_disk import RealDisk
from ottla.spark.writing.staging_place import has_scheme, local_path

SIZE_BYTES_MAX = 64 << 20


def planned(checkpoint: str | None, batch_id: int) -> str | None:
    """Return a text that is the same for the same plan, None where none is known. Reads a file."""
    if checkpoint is None or (local_path(checkpoint) is None and has_scheme(checkpoint)):
        return None
    # Spark finds a relative path from where this process runs, too.
    directory = os.path.abspath(local_path(checkpoint) or checkpoint)
    try:
        file = RealDisk().open_read_only(f"{directory}/offsets/{batch_id}")
        try:
            data = file.read_at(0, min(file.size(), SIZE_BYTES_MAX))
        finally:
            file.close()
    except OSError:
        return None
    return hashlib.blake2b(data, digest_size=8).hexdigest()
