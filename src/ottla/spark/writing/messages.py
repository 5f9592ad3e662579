"""What tasks of the sink tell the driver when they are done.

Between ``sink_task``, which makes these messages, and ``sink`` and ``delivery``, which take them;
Spark pickles them on the way. Imported on the planner's side: no Arrow.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ottla.ids import TopicPartition
from ottla.spark.writing.identity import NOTHING, BatchOf, Content

if TYPE_CHECKING:
    from ottla.spark.writing.staged_files import StagedFile


@dataclass
class Wrote(WriterCommitMessage):
    """What a task has written. By topic and partition: rows."""

    rows: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Staged(WriterCommitMessage):
    """What a task wants written: record batches, complete but for who writes them.

    Either here, or in a file where they are more than a message may hold.
    """

    batch_of: BatchOf | None = None
    """None: no micro-batch, as far as the task knows."""
    batches: list[tuple[TopicPartition, bytearray]] = field(default_factory=list)
    content: Content = NOTHING
    file: "StagedFile | None" = None
