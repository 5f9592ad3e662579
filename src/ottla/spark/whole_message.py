"""What Spark tells a worker at the begin of each task, read from bytes that are all there.

Spark 4.3 reads it, some sixty small pieces, through a stream that another thread may be filling: a
lock and a view for each piece, 70 us a task. On a socket the message is complete before the first
piece is read, and such a stream is for nothing. Installed by ``daemon`` before it forks; a Spark
that has no such stream stays as it is. Standard library only.
"""

import importlib
import io

RECEIVER = "pyspark.messages.socket.spark_socket_message_receiver"
STREAM = "ZeroCopyByteStream"
"""What that module makes of a complete message, and uses for nothing else."""


class WholeMessage(io.BytesIO):
    """A message as a file. Reading beyond its end gives nothing, which Spark takes for its end."""

    def finish(self) -> None:
        """Take note that nothing more comes, as nothing ever does."""


def read_whole_messages() -> None:
    """Have this process, and those forked from it, read the messages of tasks without locks."""
    try:
        receiver = importlib.import_module(RECEIVER)
    except ImportError:  # another Spark's
        return
    if hasattr(receiver, STREAM):
        setattr(receiver, STREAM, WholeMessage)
