"""The pipeline, a program of its own, so that it can be killed: topic to topic and table.

    python -m examples.flights.stream HOST:PORT FLIGHTS_TOPIC DELAYS_TOPIC OUT

Goes on from its checkpoint in OUT, and ends when all flights are in.
"""

import sys
from pathlib import Path

import ottla.spark
from examples.flights import data, delays


def main() -> None:
    """Run the streaming query to its end."""
    bootstrap, flights, target, out = sys.argv[1:]
    spark = ottla.spark.session("flights", master="local[2]")
    try:
        frame = delays.delays(spark, bootstrap, flights, data.airlines())
        delays.start(frame, bootstrap, target, Path(out)).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
