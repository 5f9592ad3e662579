"""A pipeline's directory: its spec, its transformations, and the templates to begin from.

The form is Spark's (``spark-pipeline.yml``); a relative ``storage`` and ``warehouse`` are ours, and
mean the project's directory. First thing of every ``ottla pipeline``: whatever is wrong here is
told before any Spark starts. Knows no Spark; imports PyYAML where it reads.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ottla.errors import OttlaError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
REQUIRED = ("name", "storage", "libraries")
BOOTSTRAP = "ottla.bootstrap"
"""The setting that transformations take the cluster's address from."""
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TEMPLATES = {
    "topic-to-topic": "a topic, aggregated in SQL, to another topic, exactly once",
    "topic-to-table": "a topic to a Parquet table, and an SQL view on it by day",
    "changes": "a topic of changes to a table of the latest state",
}
SUFFIX = ".template"


class ProjectError(OttlaError):
    """A project that cannot be used. Carries what, why and what to do; the latter may be empty."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Project:
    """A spec that is sound, with its paths made absolute."""

    spec: Path
    name: str
    storage: str
    """A URI: where checkpoints and the like are."""
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    globs: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """Where the spec is."""
        return self.spec.parent

    @property
    def bootstrap(self) -> str:
        """The cluster's address, as the spec has it."""
        return self.configuration.get(BOOTSTRAP, DEFAULT_BOOTSTRAP)

    def files(self) -> list[Path]:
        """Return the files of transformations, in order. Raises ProjectError without any."""
        found: dict[Path, None] = {}
        for pattern in self.globs:
            plain = pattern + "/*" if pattern.endswith("/**") else pattern
            for path in sorted(self.directory.glob(plain)):
                if path.is_file() and "__pycache__" not in path.parts:
                    found[path] = None
        for path in found:
            if path.suffix not in {".py", ".sql"}:
                raise ProjectError(
                    f"{path} is neither Python nor SQL",
                    why=f"the libraries of {self.spec.name} name it",
                    fix="move it, or name only .py and .sql files",
                )
        if not found:
            raise ProjectError(
                f"no transformations: nothing matches {', '.join(self.globs)}",
                why=f"that is what {self.spec} names as libraries, below {self.directory}",
                fix="write a .py or .sql file there; ottla pipeline init shows examples",
            )
        return list(found)


def find(start: Path) -> Path:
    """Return the spec of ``start``: itself, or in that directory or one above. ProjectError."""
    if start.is_file():
        return start.resolve()
    if not start.exists():
        raise ProjectError(f"there is no {start}", fix="ottla pipeline init NAME makes a project")
    for directory in (start.resolve(), *start.resolve().parents):
        there = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
        if len(there) > 1:
            raise ProjectError(
                f"{directory} has two specs",
                fix="keep one, or name the file: ottla pipeline run FILE",
            )
        if there:
            return there[0]
    raise ProjectError(
        f"no {SPEC_NAMES[0]} in {start.resolve()} or above",
        fix="ottla pipeline init NAME makes a project; ottla pipeline run DIRECTORY names one",
    )


def load(spec: Path) -> Project:
    """Return the project of a spec. Raises ProjectError."""
    values = _read(spec)
    for name in values:
        if name not in FIELDS:
            near = difflib.get_close_matches(str(name), FIELDS, 1)
            fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
            raise ProjectError(f"{spec}: unknown field {name}", fix=fix)
    for name in REQUIRED:
        if not values.get(name):
            raise ProjectError(f"{spec}: the field {name} is missing")
    configuration = values.get("configuration") or {}
    if not isinstance(configuration, Mapping):
        raise ProjectError(f"{spec}: configuration is no mapping of settings to values")
    for name, value in configuration.items():
        if not isinstance(value, str):
            raise ProjectError(
                f"{spec}: configuration {name} is {value!r}, not a string",
                fix=f'write it in quotes: {name}: "{str(value).lower()}"',
            )
    return Project(
        spec=spec.resolve(),
        name=str(values["name"]),
        storage=_uri(str(values["storage"]), spec),
        catalog=_text(values, "catalog"),
        database=_text(values, "database") or _text(values, "schema"),
        configuration=dict(configuration),
        globs=tuple(_globs(values["libraries"], spec)),
    )


def _read(spec: Path) -> Mapping[str, object]:
    try:
        import yaml
    except ImportError as error:
        raise needs_pipelines() from error
    try:
        values = yaml.safe_load(spec.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{spec}:{mark.line + 1}" if mark else str(spec)
        raise ProjectError(f"{where}: {getattr(error, 'problem', None) or error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"cannot read {spec}", why=str(error)) from error
    if not isinstance(values, Mapping):
        raise ProjectError(
            f"{spec}: a mapping of fields is expected", fix=f"name: {spec.parent.name}"
        )
    return values


def needs_pipelines() -> ProjectError:
    """Return the error for an installation without what pipelines need."""
    return ProjectError(
        "pipelines need packages that are not installed", fix="pip install 'ottla[pipelines]'"
    )


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    return None if value is None else str(value)


def _uri(storage: str, spec: Path) -> str:
    if "://" in storage or storage.startswith("file:"):
        return storage
    return (spec.resolve().parent / storage).as_uri()


def _globs(libraries: object, spec: Path) -> Iterator[str]:
    wrong = ProjectError(
        f"{spec}: libraries is not a list of globs",
        fix="libraries:\n         - glob:\n             include: transformations/**",
    )
    if not isinstance(libraries, list):
        raise wrong
    for each in libraries:
        glob = each.get("glob") if isinstance(each, Mapping) else None
        include = glob.get("include") if isinstance(glob, Mapping) else None
        if not isinstance(include, str):
            raise wrong
        yield include


# ------------------------------------------------------------------------------------ templates


def make(directory: Path, template: str, bootstrap: str) -> list[Path]:
    """Make a project in ``directory``, which is made or empty, and return its files.

    Raises ProjectError.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ProjectError(f"{directory} is not empty", fix="choose another name")
    name = directory.resolve().name or "pipeline"  # init .
    written: list[Path] = []
    for path, text in _template_files(template):
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        filled = text.replace("@QUOTED_NAME@", json.dumps(name, ensure_ascii=False))
        filled = filled.replace("@NAME@", name).replace("@BOOTSTRAP@", bootstrap)
        target.write_text(filled, encoding="utf-8")
        written.append(target)
    return written


def _template_files(template: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each file of a template, those of every template first."""
    root = resources.files(__package__) / "templates"
    for folder in ("every", template):
        for path in _below(root / folder, ""):
            text = (root / folder / path).read_text(encoding="utf-8")
            yield path.removesuffix(SUFFIX), text


def _below(folder: resources.abc.Traversable, prefix: str) -> Iterator[str]:
    for each in sorted(folder.iterdir(), key=lambda item: item.name):
        if each.is_dir():
            yield from _below(each, f"{prefix}{each.name}/")
        elif each.name.endswith(SUFFIX):
            yield prefix + each.name
