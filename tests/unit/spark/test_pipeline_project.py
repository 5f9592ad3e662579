"""A project's spec: what is wrong with it is told before any Spark starts."""

from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="extra 'pipelines' is not installed")

from ottla.spark.pipelines.project import TEMPLATES, ProjectError, find, load, make

SPEC = "name: p\nstorage: state\nlibraries:\n  - glob:\n      include: t/**\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "t" / "deep").mkdir(parents=True)
    (tmp_path / "t" / "a.py").write_text("")
    (tmp_path / "t" / "deep" / "b.sql").write_text("")

    def write(text=SPEC):
        (tmp_path / "spark-pipeline.yml").write_text(text)
        return tmp_path

    return write


def test_a_sound_spec(project):
    path = project(SPEC + 'configuration:\n  ottla.bootstrap: "b:1"\n')
    found = load(find(path / "t" / "deep"))
    assert (found.name, found.bootstrap) == ("p", "b:1")
    assert found.storage == (path / "state").as_uri()
    assert [file.name for file in found.files()] == ["a.py", "b.sql"]


def test_a_storage_elsewhere_stays(project):
    found = load(find(project(SPEC.replace("state", "s3a://bucket/x"))))
    assert found.storage == "s3a://bucket/x"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: p\n", "storage is missing"),
        (SPEC + "zebra: x\n", "unknown field zebra"),
        (SPEC + "configuration: {a: 1}\n", "configuration a is 1, not a string"),
        (SPEC + "configuration: [a]\n", "no mapping"),
        ("name: p\nstorage: x\nlibraries: {}\n", "libraries is missing"),
        ("name: p\nstorage: x\nlibraries: [a]\n", "not a list of globs"),
        ("name: [\n", "yml:2: "),
        ("- a\n", "a mapping of fields is expected"),
    ],
)
def test_what_is_wrong_with_a_spec(project, text, told):
    with pytest.raises(ProjectError, match=told):
        load(find(project(text)))


def test_no_spec_two_specs_and_no_directory(tmp_path, project):
    with pytest.raises(ProjectError, match="there is no"):
        find(tmp_path / "absent")
    (tmp_path / "x").mkdir()
    with pytest.raises(ProjectError, match=r"no spark-pipeline\.yml"):
        find(tmp_path / "x")
    project()
    (tmp_path / "spark-pipeline.yaml").write_text(SPEC)
    with pytest.raises(ProjectError, match="two specs"):
        find(tmp_path)


def test_transformations_that_are_none(project):
    path = project()
    (path / "t" / "c.txt").write_text("")
    with pytest.raises(ProjectError, match=r"c\.txt is neither Python nor SQL"):
        load(find(path)).files()
    with pytest.raises(ProjectError, match="nothing matches u/"):
        load(find(project(SPEC.replace("t/**", "u/**")))).files()


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_a_sound_project(template, tmp_path):
    directory = tmp_path / "my project"
    written = make(directory, template, "b:1")
    project = load(find(directory))
    assert (project.name, project.bootstrap) == ("my project", "b:1")
    assert set(project.files()) <= {path.resolve() for path in written}
    assert {path.suffix for path in project.files()} == {".py", ".sql"}
    for path in written:
        assert "@" not in path.read_text().replace("@dp", "")
        if path.suffix == ".py":
            compile(path.read_text(), str(path), "exec")
    with pytest.raises(ProjectError, match="not empty"):
        make(directory, template, "b:1")


def test_a_project_made_here_has_the_name_of_the_directory(tmp_path, monkeypatch):
    """``init .`` wrote an empty name, which the next command refused."""
    monkeypatch.chdir(tmp_path)
    make(Path(), "topic-to-topic", "b:1")
    assert load(find(tmp_path)).name == tmp_path.name


@pytest.mark.parametrize("name", ["a: b", "null", "it's #1", 'say "x"', "é"])
def test_a_directory_may_have_any_name(tmp_path, name):
    make(tmp_path / name, "changes", "h:1")
    assert load(find(tmp_path / name)).name == name
