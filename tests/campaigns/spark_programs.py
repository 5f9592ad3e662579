"""Random programs over shared DataFrames: our rows, the Kafka connector's, and those of pandas.

    python tests/campaigns/spark_programs.py [--seconds 3600] [--seed 1] [--programs N]
        [--target kafka] [--without connector]

One Spark session for all programs. Each has topics of its own, of all kinds (codecs, transactions,
compaction, deletions), some frames of them, and steps that make frames of frames, ask them, write
them, stream them, and meanwhile write, delete, and kill the broker: ``programs/steps.py`` has the
list. Every answer of format("ottla") has to be that of pandas over what librdkafka reads. Where
the connector's is another one, that is told of, and no problem. A program that goes wrong is run
again without the steps that do not matter, and printed. Prints a JSON report; exit code 1 when rows
were wrong or a query failed.
"""

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.campaigns.programs.model import Model, answer, ordered
from tests.campaigns.programs.queries import PUSHDOWN, Queries
from tests.campaigns.programs.steps import TOPIC, random_program, random_world
from tests.campaigns.programs.topics import Topics
from tools.kafka_peer import KafkaPeer, connector_libraries, free_port
from tools.ottla_peer import OttlaPeer

STEPS = (8, 26)
PROBLEMS_MAX = 5
SHRINKING_SECONDS = 300
STREAM_SECONDS = 300
CONNECTOR_ASKED = 0.4
FRAMES = {
    "base", "filter", "sql", "union", "semi", "anti", "inner", "within", "distinct", "shuffled",
    "renamed", "first",
}  # fmt: skip


class WrongError(Exception):
    """An answer of ours is not the truth."""


class Campaign:
    """One session, one broker, and what was found."""

    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.counts = Counter()
        self.ordinals = itertools.count()
        """Of the topics that programs write: each has a name of its own."""
        self.differences = []
        """Where the connector is not right."""
        self.problems = []
        if options.target == "kafka":
            self.peer = KafkaPeer(directory / "data")
        else:
            self.peer = OttlaPeer(
                directory / "data", {"log.cleaner.backoff.ms": 100}, port=free_port()
            )
        self.spark = None
        self.lives = 0

    def run(self):
        """Run programs until the time is up. Returns the report."""
        begin, number = time.monotonic(), 0
        self.peer.start()
        try:
            self.spark = self._session()
            while time.monotonic() - begin < self.options.seconds:
                seed = self.options.seed + number
                self.try_seed(seed)
                number += 1
                print(
                    f"{time.monotonic() - begin:.0f} s: {seed} {dict(self.counts)}", file=sys.stderr
                )
                if number == self.options.programs or len(self.problems) == PROBLEMS_MAX:
                    break
        finally:
            if self.spark is not None:
                self.spark.stop()
            self.peer.kill9()
        return {
            "seed": self.options.seed,
            "programs": number,
            "seconds": round(time.monotonic() - begin),
            **self.counts,
            "the connector differs": self.differences[:20],
            "problems": self.problems,
        }

    def _session(self):
        from ottla.spark import session

        confs = {
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.sql.autoBroadcastJoinThreshold": "100000",
        }
        spark = session("programs", master="local[2]", confs=confs, log_level="off")
        if self.options.without != "connector":
            for jar in connector_libraries().glob("*.jar"):
                spark.sql(f"ADD JAR '{jar}'")
        return spark

    def try_seed(self, seed):
        """Make a program and run it; shrink it if it goes wrong."""
        dice = random.Random(seed)
        world = random_world(dice)
        length = dice.randrange(*STEPS)
        program = None
        try:
            with Life(self, seed, world) as life:
                names = [f"{TOPIC}{number}" for number in range(len(world))]
                program = random_program(dice, names, life.ends, length)
                life.run(program)
            self.counts["steps"] += len(program)
        except Exception as error:  # noqa: BLE001 - whatever ends a program is a finding
            print(f"seed {seed}: {_told(error)}", file=sys.stderr)
            if program is None:
                program, told = [], traceback.format_exc()
            else:
                program, told = self.shrunk(seed, world, program, error)
            problem = {"seed": seed, "world": world, "program": program, "what": told}
            print(json.dumps(problem), file=sys.stderr)
            self.problems.append(problem)

    def shrunk(self, seed, world, program, first):
        """Return the program without steps that do not matter, and what goes wrong in it.

        It goes wrong by an error of the same kind: one that is not a program any more does, too.
        """
        told = _told(first)
        deadline = time.monotonic() + SHRINKING_SECONDS
        for position in reversed(range(len(program))):
            if time.monotonic() > deadline:
                break
            fewer = without(program, position)
            try:
                with Life(self, seed, world) as life:
                    life.run(fewer)
            except Exception as error:  # noqa: BLE001
                if type(error) is type(first):
                    program, told = fewer, _told(error)
        return program, told


def _told(error):
    text = str(error) if isinstance(error, WrongError) else f"{type(error).__name__}: {error}"
    return text[:3000]


def without(program, position):
    """Return a program without a step, and without those that need its frame."""
    gone, kept, frames, number = set(), [], {}, -1
    for index, step in enumerate(program):
        makes = step[0] in FRAMES
        number += makes
        used = _frames_of(step)
        if index == position or any(each in gone for each in used):
            if makes:
                gone.add(number)
            continue
        if makes:
            frames[number] = len(frames)
        new = list(step)
        for place, each in enumerate(used, 1):
            new[place] = frames[each]
        kept.append(new)
    return kept


def _frames_of(step):
    if step[0] in {"union", "semi", "anti", "inner", "within"}:
        return step[1:3]
    one = {"filter", "sql", "distinct", "shuffled", "renamed", "first", "cache", "uncache", "ask",
           "write"}  # fmt: skip
    return step[1:2] if step[0] in one else []


class Life:
    """One program's topics and frames. A context manager."""

    def __init__(self, campaign, seed, world):
        self.campaign = campaign
        self.counts = campaign.counts
        self.dice = random.Random(f"{seed} inside")
        # The topics of a program's next run, in which it is shrunk, have other names.
        self.prefix = f"programs-{campaign.lives}-"
        campaign.lives += 1
        self.names = [f"{self.prefix}{number}" for number in range(len(world))]
        self.topics = Topics(campaign.peer.bootstrap, self.prefix)
        self.world = world
        self.written = 0
        formats = ["ottla"] if campaign.options.without == "connector" else ["ottla", "kafka"]
        self.sides = [Queries(campaign.spark, each, campaign.peer.bootstrap) for each in formats]
        self.model = Model(self.topics, self.names)

    def __enter__(self):
        self.campaign.spark.conf.set(PUSHDOWN, "false")
        for name, each in zip(self.names, self.world, strict=True):
            self.topics.make(name, each["partitions"], compacted=each["compacted"])
            for _ in range(each["fills"]):
                self.topics.fill(name, self.dice)
        return self

    def __exit__(self, *_):
        self.campaign.spark.catalog.clearCache()
        self.topics.close()

    def ends(self, name):
        """Return the log start and end of each partition of a topic of the program."""
        return self.topics.ends(name.replace(TOPIC, self.prefix))

    def run(self, program):
        """Do every step. Raises WrongError, or what Spark raises."""
        for step in json.loads(json.dumps(program).replace(TOPIC, self.prefix)):
            self.step(step)

    def step(self, step):
        kind, *more = step
        self.counts[kind] += 1
        if kind in FRAMES:
            self.model.steps.append(step)
            for side in self.sides:
                side.add(step)
        elif kind == "pushdown":
            self.campaign.spark.conf.set(PUSHDOWN, str(more[0]).lower())
        elif kind == "cache":
            for side in self.sides:
                side.frames[more[0]].cache()
        elif kind == "uncache":
            for side in self.sides:
                side.frames[more[0]].unpersist(True)
        else:
            getattr(self, f"do_{kind}")(*more)

    def do_ask(self, frame, question):
        before = answer(question, self.model.rows(frame))
        # The connector is asked now and then only: it is not what is on trial.
        asked = self.sides if self.dice.random() < CONNECTOR_ASKED else self.sides[:1]

        def ask():
            return {side.name: side.ask(frame, question) for side in asked}

        self.compare(
            ask(), before, lambda: answer(question, self.model.rows(frame, anew=True)), ask
        )

    def do_all(self):
        expected = self.model.all_rows()
        asked = self.sides if self.dice.random() < CONNECTOR_ASKED else self.sides[:1]

        def ask():
            return {side.name: side.ask_all() for side in asked}

        self.compare(ask(), expected, lambda: self.model.all_rows(anew=True), ask)

    def compare(self, answers, expected, anew, ask=None):
        """Judge the answers. ``anew`` tells the truth of now: compaction may have gone on.

        It may have gone on since a frame was cached, too: then ``ask`` asks once more, without.
        """
        if self.topics.compacted and ask is not None and answers["ottla"] != expected:
            self.campaign.spark.catalog.clearCache()
            self.counts["asked without caches"] += 1
            answers, expected = ask(), anew()
        self.counts["rows"] += len(expected)
        if any(each != expected for each in answers.values()):
            again = anew()
            if again != expected:
                self.counts["moved meanwhile"] += 1
                return
        if answers.get("kafka", expected) != expected:
            self.campaign.differences.append(difference(answers["kafka"], expected))
        if answers["ottla"] != expected:
            raise WrongError(difference(answers["ottla"], expected))

    def do_write(self, frame, options):
        expected = self.model.rows(frame).to_dict("records")
        names, answers = [], {}
        for side in self.sides:
            # No pattern of the program names it, which are found anywhere in a topic's name.
            name = f"written-{next(self.campaign.ordinals)}-{side.name}"
            self.topics.make(name, 3)
            names.append(name)
            given = {k: v for k, v in options.items() if side.name == "ottla" or k != "delivery"}
            side.write(frame, name, given)
            answers[side.name] = [
                (row["k"], row["v"], row["partition"] if row["k"] is not None else None)
                for row in self.topics.truth(name, "read_committed")
            ]
        texts = [(row["k"], _text(row).encode().hex().upper()) for row in expected]
        if ordered(each[:2] for each in answers["ottla"]) != ordered(texts):
            raise WrongError(difference([each[:2] for each in answers["ottla"]], texts))
        if "kafka" in answers and ordered(answers["kafka"]) != ordered(answers["ottla"]):
            raise WrongError("partitions: " + difference(answers["ottla"], answers["kafka"]))

    def do_stream(self, topic, runs, more):
        """Copy a topic into files, in several runs; the first of them is stopped.

        Compaction may take records between two runs: what the files have more than the topic in
        the end, it had before.
        """
        self.written += 1
        place = self.campaign.directory / f"stream-{self.prefix}{self.written}"
        there = {side.name for side in self.sides}

        def expected(**how):
            rows = self.topics.truth(topic, "read_uncommitted", **how)
            names = ("partition", "offset", "k", "v")
            return ordered(tuple(row[each] for each in names) for row in rows)

        before = expected()
        for number, (limit, wanted) in enumerate(runs):
            name = wanted if wanted in there else "ottla"
            reader = self.campaign.spark.readStream.format(name).option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", self.campaign.peer.bootstrap)
            reader = reader.option("startingOffsets", "earliest")
            if limit is not None:
                reader = reader.option("maxOffsetsPerTrigger", limit)
            rows = reader.load().selectExpr(
                "partition", "offset", "hex(key) AS k", "hex(value) AS v"
            )
            writer = rows.writeStream.format("parquet").option("path", str(place / "table"))
            writer = writer.option("checkpointLocation", str(place / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            if number == 0:
                query.awaitTermination(self.dice.uniform(0.2, 3))
                query.stop()
                self.forget_an_unwritten_beginning(place / "checkpoint")
            elif not query.awaitTermination(STREAM_SECONDS):
                query.stop()
                raise WrongError(f"a stream of {topic} did not end")
            if more and number == 0 and topic not in self.topics.compacted:
                self.topics.fill(topic, self.dice)
        found = ordered(self.campaign.spark.read.parquet(str(place / "table")).collect())
        if topic in self.topics.compacted:
            taken = Counter(before) - Counter(expected(anew=True))
            found = ordered((Counter(found) - taken).elements())
        self.compare({"ottla": found}, expected(), lambda: expected(anew=True))

    def forget_an_unwritten_beginning(self, checkpoint):
        """Remove a checkpoint in which the first batch was being noted when its query was stopped.

        Spark 4.3 refuses it at each start, whatever the source (the temporary file of ``offsets/0``
        is STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). No batch of it has run.
        """
        noted = checkpoint / "offsets"
        if noted.exists() and any(noted.iterdir()) and not (noted / "0").exists():
            shutil.rmtree(checkpoint)
            self.counts["checkpoints that Spark refuses"] += 1

    def do_fill(self, topic):
        self.topics.fill(topic, self.dice)

    def do_cut(self, topic):
        if topic not in self.topics.compacted:  # of those, Kafka deletes no records
            self.topics.delete_records(topic, self.dice)

    def do_anew(self, topic):
        self.topics.make_anew(topic, self.dice.randrange(1, 5))
        self.topics.fill(topic, self.dice)

    def do_widen(self, topic):
        self.topics.add_partitions(topic, 1)
        self.topics.fill(topic, self.dice)

    def do_restart(self):
        """Kill the broker; it comes back while the next step runs."""
        peer = self.campaign.peer
        peer.kill9()
        back = threading.Thread(target=peer.start)
        back.start()
        if self.model.steps:
            frame = self.dice.randrange(len(self.model.steps))
            answers = {side.name: side.ask(frame, "rows") for side in self.sides}
        back.join()
        if self.model.steps:
            expected = answer("rows", self.model.rows(frame))
            self.compare(
                answers, expected, lambda: answer("rows", self.model.rows(frame, anew=True))
            )


def _text(row):
    """Return the value as which a frame's row is written."""
    parts = (row[each] for each in ("topic", "partition", "offset", "n"))
    return " ".join(str(each) for each in parts if each is not None)


def difference(found, expected):
    """Say how two lists of rows differ."""
    ours, theirs = Counter(found), Counter(expected)
    more, less = ordered((ours - theirs).elements()), ordered((theirs - ours).elements())
    return (
        f"{sum(ours.values())} rows instead of {sum(theirs.values())}; {len(more)} too many, such "
        f"as {[str(each)[:200] for each in more[:2]]}; {len(less)} missing, such as"
        f" {[str(each)[:200] for each in less[:2]]}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--programs", type=int, default=0, help="end after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--without", choices=["connector"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="programs-") as work:
        report = Campaign(options, Path(work)).run()
    print(json.dumps(report, indent=2))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
