"""How soon a broker answers, and what it costs to stand idle: ``python bench/startup.py``.

From spawning the process to the answer to ApiVersions, warm (the first start is not counted), and
the resident memory a second later. The same for Apache Kafka on a formatted directory.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.run import make_peers


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--targets", default="ottla durable,kafka")
    parser.add_argument("--json", type=Path)
    machine.add_options(parser)
    arguments = parser.parse_args()
    machine.begin(arguments)
    report: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-startup-") as directory:
        for name, peer in make_peers(arguments.targets.split(","), Path(directory)).items():
            seconds, memory = [], []
            for number in range(arguments.starts + 1):
                peer.start()
                if number:
                    seconds.append(peer.started_in_seconds)
                    time.sleep(1)
                    memory.append(peer.rss_bytes() / 1e6)
                peer.stop()
            report[name] = {
                "start_seconds_median": round(statistics.median(seconds), 3),
                "start_seconds_min": round(min(seconds), 3),
                "start_seconds_max": round(max(seconds), 3),
                "idle_rss_megabytes": round(statistics.median(memory), 1),
            }
            row = report[name]
            print(
                f"{name:<15} start to ApiVersions {row['start_seconds_median']:.3f} s"
                f" ({row['start_seconds_min']:.3f}-{row['start_seconds_max']:.3f}),"
                f" idle {row['idle_rss_megabytes']:.0f} MB",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
