"""Spark's array of a task's message, made without pandas.

When a writing task is done, Spark's worker puts the pickled message into an array, as
``pyarrow.array([message])``. Given a list, pyarrow imports pandas to see whether it is one of
pandas': 45 MB and 0.3 s of CPU in each worker that writes, for one value. So the next array of one
bytes object is put together here. The executor's side.
"""

from array import array
from typing import Any

import pyarrow as pa


def spare_pandas() -> None:
    """Have the next call of ``pyarrow.array`` get by without pandas, if it is the message's.

    Any other call is pyarrow's own, and so are all later ones.
    """
    own = pa.array
    if own.__module__ == __name__:
        return  # a task that failed before its message

    def once(*values: Any, **named: Any) -> pa.Array:  # noqa: ANN401 - whatever pyarrow takes
        pa.array = own
        if named or len(values) != 1 or not _is_message(values[0]):
            return own(*values, **named)
        (data,) = values[0]
        ends = pa.py_buffer(array("i", [0, len(data)]))
        return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(data)])

    pa.array = once


def _is_message(values: object) -> bool:
    return type(values) is list and len(values) == 1 and type(values[0]) is bytes
