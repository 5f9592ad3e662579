"""Random programs: steps that make frames of frames, ask them, and change the world meanwhile.

A program is a list of steps, each a list that JSON can hold; frames are known by their index. All
frames have the same columns, so that any two may meet. What each step means is in ``model`` (over
pandas) and ``queries`` (over Spark). Knows neither.

    ["base", options]                a topic, some topics, a part of one, by the source's options
    ["filter", frame, predicate]     ["sql", frame, predicate]: the same by a view
    ["union", frame, frame]          ["semi"|"anti"|"inner", frame, frame, columns]
    ["within", frame, frame, column] by a subquery
    ["distinct"|"shuffled"|"renamed", frame]                ["first", frame, count]
    ["cache", frame] ["uncache", frame]
    ["ask", frame, question]         rows, count, by partition, by key, is it empty
    ["all"]                          the rows of every frame, in one query
    ["write", frame, options]        into a topic of its own
    ["stream", topic, [[limit, format], ...], more]    into Parquet files, in several runs on one
                                     checkpoint, the first stopped; ``more`` is written in between
    ["fill"|"cut"|"anew"|"widen", topic] ["restart"] ["pushdown", on]
"""

from tests.campaigns.programs.topics import CODECS, KEYS, START_MS

QUESTIONS = ("rows", "rows", "count", "by partition", "by key", "empty")
PLACE = ["topic", "partition", "offset"]
FRAMES_MAX = 14
TOPIC = "@"
"""How the name of each topic begins in a program."""


def random_world(dice):
    """Return how many partitions each topic has, and which are compacted."""
    return [
        {"partitions": dice.randrange(1, 5), "compacted": dice.random() < 0.3, "fills": fills}
        for fills in (dice.randrange(0, 4), dice.randrange(1, 4), dice.randrange(1, 4))
    ]


def random_base(dice, topics, ends):
    """Return a frame's options. ``ends`` gives log start and end of each partition of a topic."""
    options = {"includeHeaders": dice.choice(("true", "false")), "failOnDataLoss": "false"}
    if dice.random() < 0.4:
        options["kafka.isolation.level"] = "read_committed"
    if dice.random() < 0.4:
        options["minPartitions"] = str(dice.randrange(1, 12))
    if dice.random() < 0.3:
        options["maxRecordsPerPartition"] = str(dice.randrange(5, 200))
    if dice.random() < 0.3:
        options["kafka.max.partition.fetch.bytes"] = dice.choice(("100", "3000"))
    way = dice.choice(("subscribe", "subscribe", "pattern", "assign", "offsets"))
    if way == "pattern":
        options["subscribePattern"] = TOPIC + dice.choice(("[12]", ".*"))
        return options
    name = dice.choice(topics)
    if way == "assign":
        count = len(ends(name))
        chosen = sorted(dice.sample(range(count), dice.randint(1, count)))
        options["assign"] = {name: chosen}
        return options
    options["subscribe"] = name
    if way == "offsets":
        starts, stops = {}, {}
        for number, (low, high) in enumerate(ends(name)):
            first, last = sorted((dice.randint(low, high), dice.randint(low, high)))
            starts[str(number)] = dice.choice((first, first, -2))
            stops[str(number)] = dice.choice((last, last, -1))
        options["startingOffsets"], options["endingOffsets"] = {name: starts}, {name: stops}
    elif dice.random() < 0.2:
        options["subscribe"] = ",".join(sorted(dice.sample(topics, 2)))
    return options


def random_predicate(dice, topics, depth=0):
    kind = dice.randrange(4 if depth < 2 else 1)
    if kind == 1:
        return ["not", random_predicate(dice, topics, depth + 1)]
    if kind in {2, 3}:
        two = [random_predicate(dice, topics, depth + 1) for _ in range(2)]
        return ["and" if kind == 2 else "or", *two]
    column = dice.choice(("offset", "offset", "partition", "topic", "ts", "k", "n"))
    if column == "topic":
        return ["topic", "=", dice.choice(topics)]
    if column == "k":
        key = dice.choice(KEYS)
        return ["k", "is null"] if key is None else ["k", "=", key.hex().upper()]
    if column == "n" and dice.random() < 0.3:
        return ["n", "is null"]
    if column in {"n", "offset"} and dice.random() < 0.4:
        modulus = dice.randrange(2, 6)
        return [column, "%", modulus, dice.randrange(modulus)]
    if column == "offset" and dice.random() < 0.2:
        return ["offset", "in", sorted(dice.sample(range(100), 5))]
    value = {
        "offset": dice.randrange(150),
        "partition": dice.randrange(4),
        "ts": START_MS + dice.randrange(300_000),
        "n": dice.randrange(60),
    }[column]
    return [column, dice.choice(("<", ">=", "=", "<>")), value]


def random_program(dice, topics, ends, length):
    """Return a program. Its bases come first: what is shared is shared by all that follows."""
    steps = [["base", random_base(dice, topics, ends)] for _ in range(dice.randrange(1, 4))]
    if dice.random() < 0.3:
        steps.insert(0, ["pushdown", True])
    frames = sum(step[0] == "base" for step in steps)
    fixed = {
        name
        for step in steps
        if step[0] == "base" and ("startingOffsets" in step[1] or "assign" in step[1])
        for name in [*step[1].get("startingOffsets", {}), *step[1].get("assign", {})]
    }
    cached = set()
    while len(steps) < length:
        if frames < FRAMES_MAX and dice.random() < 0.4:
            steps.append(_random_frame(dice, topics, frames))
            frames += 1
        else:
            steps.append(_random_deed(dice, topics, frames, fixed, cached))
    return [*steps, ["ask", dice.randrange(frames), dice.choice(QUESTIONS)], ["all"]]


def _random_frame(dice, topics, frames):
    one, other = dice.randrange(frames), dice.randrange(frames)
    kind = dice.choice(
        ("filter", "filter", "filter", "sql", "union", "union", "semi", "anti", "inner", "within",
         "distinct", "shuffled", "renamed", "first")
    )  # fmt: skip
    if kind in {"filter", "sql"}:
        return [kind, one, random_predicate(dice, topics)]
    if kind == "union":
        return [kind, one, other]
    if kind in {"semi", "anti", "inner"}:
        return [kind, one, other, dice.choice((PLACE, PLACE, ["k"], ["partition", "offset"]))]
    if kind == "within":
        return [kind, one, other, dice.choice(("offset", "k"))]
    return [kind, one, dice.randrange(1, 60)] if kind == "first" else [kind, one]


def _random_deed(dice, topics, frames, fixed, cached):
    frame = dice.randrange(frames)
    chance = dice.random()
    if chance < 0.12 and not cached:  # what is cached is of its own time
        name = dice.choice(topics)
        if name not in fixed and dice.random() < 0.35:
            return [dice.choice(("anew", "widen")), name]
        return [dice.choice(("fill", "fill", "cut")), name]
    if chance < 0.20:
        if cached and dice.random() < 0.7:
            return ["uncache", cached.pop()]
        cached.add(frame)
        return ["cache", frame]
    if chance < 0.24:
        return ["restart"]
    if chance < 0.29:
        return ["write", frame, {
            "delivery": dice.choice(("at-least-once", "exactly-once")),
            "kafka.compression.type": dice.choice(CODECS),
            "kafka.batch.size": dice.choice(("200", "900000")),
        }]  # fmt: skip
    if chance < 0.32:
        limits = [dice.choice((None, dice.randrange(1, 80))) for _ in range(3)]
        formats = dice.choice((["ottla"] * 3, ["kafka", "ottla", "ottla"]))
        runs = [list(each) for each in zip(limits, formats, strict=True)]
        return ["stream", dice.choice(topics), runs, not cached]
    if chance < 0.40:
        return ["all"]
    return ["ask", frame, dice.choice(QUESTIONS)]
