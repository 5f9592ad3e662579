"""What a pipeline fails with, for people: Spark's text without stack traces, and the places.

Between Spark's errors and the command line. Imports no Spark.
"""

import re
from collections.abc import Sequence

from ottla.errors import OttlaError
from ottla.spark.pipelines.graph import Graph

PLACES_MAX = 10
"""At most so many places of definitions follow an error."""
_STACK = re.compile(r"\n\s*(?:JVM stacktrace|at [\w.$]+\().*", re.DOTALL)


class RunFailed(OttlaError):
    """A run or a check ended with an error of the pipeline; the text is Spark's, shortened."""


def explain(error: BaseException, failures: Sequence[str] = ()) -> str:
    """Return what went wrong, without stack traces; what flows failed with comes first."""
    texts = [_STACK.sub("", text).strip() for text in (*failures, str(error))]
    return "\n".join(dict.fromkeys(text for text in texts if text))


def with_places(text: str, graph: Graph) -> str:
    """Return an error of Spark's with where each data set that it names is defined."""
    places = [f"{node.name} is defined in {node.file}" for node in graph.named_in(text)]
    return "\n".join([text, *places[:PLACES_MAX]])
