"""What the frames of a program hold: by pandas, over what librdkafka reads. Knows no Spark."""

import re

import pandas as pd

COLUMNS = ["topic", "partition", "offset", "ts", "tt", "k", "v", "n", "h"]
COMPARE = {
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "in": lambda left, right: left in right,
}


class Model:
    """The frames of a program, each evaluated anew whenever it is asked for."""

    def __init__(self, topics, names):
        self._topics = topics
        self._names = names
        self.steps = []
        """The steps that made frames, by the frame's index."""

    def rows(self, frame, *, anew=False):
        """Return the frame's rows as a DataFrame of objects."""
        kind, *more = self.steps[frame]
        if kind == "base":
            return self._base(more[0], anew=anew)
        one = self.rows(more[0], anew=anew)
        if kind in {"filter", "sql"}:
            return _kept(one, [holds(more[1], row) is True for row in one.to_dict("records")])
        if kind == "first":
            return one.sort_values(COLUMNS[:3], kind="stable").head(more[1])
        if kind in {"shuffled", "renamed"}:
            return one
        if kind == "distinct":
            return one.drop_duplicates()
        other = self.rows(more[1], anew=anew)
        if kind == "union":
            return frame_of(one.to_dict("records") + other.to_dict("records"))
        columns = [more[2]] if kind == "within" else more[2]
        there = set(map(tuple, other[columns].values))
        found = [None not in place and place in there for place in map(tuple, one[columns].values)]
        if kind == "anti":
            return _kept(one, [not each for each in found])
        kept = _kept(one, found)
        return kept.drop_duplicates() if kind == "inner" else kept

    def all_rows(self, *, anew=False):
        """Return the rows of every frame, each with the frame's index."""
        return ordered(
            (frame, *row)
            for frame in range(len(self.steps))
            for row in self.rows(frame, anew=anew).itertuples(index=False, name=None)
        )

    def _base(self, options, *, anew):
        isolation = options.get("kafka.isolation.level", "read_uncommitted")
        rows = [
            row
            for name in self._subscribed(options)
            for row in self._topics.truth(name, isolation, anew=anew)
            if _is_in(options, row)
        ]
        if options["includeHeaders"] == "false":
            rows = [row | {"h": None} for row in rows]
        return frame_of(rows)

    def _subscribed(self, options):
        if "subscribePattern" in options:
            return [n for n in self._names if re.search(options["subscribePattern"], n)]
        return options["subscribe"].split(",") if "subscribe" in options else options["assign"]


def frame_of(rows):
    """Return rows as a DataFrame in which nothing becomes a float."""
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)


def _kept(rows, choice):
    return rows.loc[pd.Series(choice, index=rows.index, dtype=bool)]


def _is_in(options, row):
    if "assign" in options:
        return row["partition"] in options["assign"][row["topic"]]
    if "startingOffsets" not in options:
        return True
    number = str(row["partition"])
    start = options["startingOffsets"][row["topic"]][number]
    stop = options["endingOffsets"][row["topic"]][number]
    return row["offset"] >= start and (stop == -1 or row["offset"] < stop)


def holds(predicate, row):
    """Return True, False or None, as SQL does."""
    kind = predicate[0]
    if kind == "not":
        inner = holds(predicate[1], row)
        return None if inner is None else not inner
    if kind in {"and", "or"}:
        both = [holds(each, row) for each in predicate[1:]]
        decisive = kind == "or"
        if decisive in both:
            return decisive
        return None if None in both else not decisive
    column, operator, *values = predicate
    value = row[column]
    if operator == "is null":
        return value is None
    if value is None:
        return None
    if operator == "%":
        return value % values[0] == values[1]
    return COMPARE[operator](value, values[0])


def answer(question, rows):
    """Return what a frame answers: a sorted list of tuples."""
    if question == "count":
        return [(len(rows),)]
    if question == "empty":
        return [(rows.empty,)]
    if question == "rows":
        return ordered(rows.itertuples(index=False, name=None))
    keys = ["topic", "partition"] if question == "by partition" else ["k"]
    groups = rows.groupby(keys, dropna=False, sort=False)
    found = []
    for values, group in groups:
        named = tuple(None if pd.isna(each) else each for each in values)
        sizes = [each for each in group["n"] if each is not None]
        found.append(
            (*named, len(group), sum(group["offset"]), min(group["ts"]), max(sizes, default=None))
        )
    return ordered(found)


def ordered(rows):
    """Return rows in an order that nulls have, too."""
    return sorted(map(tuple, rows), key=lambda row: [(each is not None, each) for each in row])
