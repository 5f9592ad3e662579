"""What Spark shows of our errors: the sentence for people, without Python's way to it.

Spark puts a worker's whole traceback into its own exception, so that the one useful sentence is the
last line, below a stream's plan even. For errors that are meant for people (``OttlaError``) the
worker that ends with one is told to send that line only. Others keep their traceback: they are
faults. Imported in every worker: standard library only. Source: pyspark.util,
``handle_worker_exception``.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ottla.errors import OttlaError

HIDE = "SPARK_HIDE_TRACEBACK"
OF_A_WORKER = "PYTHON_WORKER_FACTORY_"
"""How the settings begin that Spark gives its Python processes. The driver's own has none."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def telling(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return ``work``, after whose errors for people this worker, which ends, tells these only."""

    @wraps(work)
    def tell(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return work(*args, **kwargs)
        except OttlaError:
            _hide_traceback()
            raise

    return tell


def telling_each(found: Iterator[Result]) -> Iterator[Result]:
    """Yield what is found, with errors as for ``telling``."""
    try:
        yield from found
    except OttlaError:
        _hide_traceback()
        raise


def _hide_traceback() -> None:
    if any(name.startswith(OF_A_WORKER) for name in os.environ):
        os.environ[HIDE] = "1"
