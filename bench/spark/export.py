"""A topic to Parquet: ``ottla.spark.to_parquet`` beside Spark's own Kafka connector, tuned.

    python -m bench.spark.export                       100 B and 1 KiB, uncompressed
    python -m bench.spark.export --sizes 100 --codecs none,lz4 --rounds 3 --json FILE

Three arms, in turn within each round of one session (local[2]): the connector's
``read.format("kafka").write.parquet``, the same with ``format("ottla")``, and ``to_parquet``. All
write every column with snappy, as files of the same number of rows. Round 0 is left out, of the
others the median is shown. CPU as in ``reading``. Afterwards each directory is read back and must
hold the same rows. Linux only; the connector's jars come from Maven.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.reading import PARTITIONS, TUNED, Run, fill, measure, show
from tools.kafka_peer import connector_libraries
from tools.ottla_peer import OttlaPeer

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
Arms = dict[str, Callable[[], Any]]


def arms(spark: Any, bootstrap: str, topic: str, root: Path, per_file: int) -> Arms:
    """Return what to run, by name; each replaces a directory of its name in ``root``."""
    import ottla.spark

    def by_spark(name: str, form: str, options: dict[str, object]) -> Callable[[], Any]:
        def run() -> None:
            reader = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap)
            frame = reader.option("subscribe", topic).options(**options).load()
            frame.write.mode("overwrite").parquet(str(root / name))

        return run

    def directly() -> None:
        shutil.rmtree(root / "to_parquet", ignore_errors=True)
        ottla.spark.to_parquet(
            topic,
            str(root / "to_parquet"),
            bootstrap=bootstrap,
            spark=spark,
            records_per_file=per_file,
        )

    split = {"maxRecordsPerPartition": per_file}
    return {
        "jvm": by_spark("jvm", "kafka", {**TUNED, **split}),
        "format": by_spark("format", "ottla", dict(split)),
        "to_parquet": directly,
    }


def check(spark: Any, root: Path, names: list[str]) -> None:
    """Raise RuntimeError unless all directories hold the same rows."""
    sums = [f"sum(hash({', '.join(COLUMNS)}))", "count(*)", "sum(length(value))"]
    found = {name: spark.read.parquet(str(root / name)).selectExpr(*sums).first() for name in names}
    if len(set(found.values())) != 1:
        raise RuntimeError(f"the directories differ: {found}")


def main() -> None:
    """Run the command line of the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--codecs", default="none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=300, help="of values, for each topic")
    parser.add_argument("--json")
    options = parser.parse_args()

    from ottla.spark.local import session

    jars = ",".join(map(str, sorted(connector_libraries().glob("*.jar"))))
    results: dict[str, dict[str, list[Run]]] = {}
    with (
        tempfile.TemporaryDirectory() as directory,
        OttlaPeer(Path(directory, "data")) as peer,
    ):
        peer.start()
        spark = session(master="local[2]", confs={"spark.jars": jars})
        for size in map(int, options.sizes.split(",")):
            for codec in options.codecs.split(","):
                topic = f"bench-{size}-{codec}"
                records = options.megabytes * 1_000_000 // size
                fill(peer, topic, size=size, records=records, codec=codec)
                root = Path(directory, topic)
                named = arms(spark, peer.bootstrap, topic, root, records // PARTITIONS)
                runs: dict[str, list[Run]] = {name: [] for name in named}
                for number in range(options.rounds + 1):
                    for name in sorted(named, reverse=bool(number % 2)):
                        run, _ = measure(named[name])
                        if number:
                            runs[name].append(run)
                check(spark, root, list(named))
                show(f"{size} B {codec}", records, {"export": runs})
                results[topic] = runs
        spark.stop()
    if options.json:
        Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
