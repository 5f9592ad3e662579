"""A local session's set-up: what is decided before any JVM runs."""

import os
import subprocess
import sys
import tempfile
import zipfile
import zipimport
from pathlib import Path

import pytest

from ottla.spark import daemon, local, made_files, planner

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="launchers are shell scripts")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def site(tmp_path):
    """A site-packages with pyspark and py4j as pip leaves them; returns it and its library."""
    packages = tmp_path / "site-packages"
    library = packages / "pyspark" / "python" / "lib"
    library.mkdir(parents=True)
    (packages / "py4j").mkdir()
    (packages / "pyspark" / "__init__.py").touch()
    (packages / "py4j" / "__init__.py").touch()
    return packages, library


def archives(library):
    return [f"{library}/pyspark.zip", f"{library}/py4j-0.10.9.9-src.zip"]


def test_archives_that_lie_unpacked_leave_the_path(site):
    packages, library = map(str, site)
    path = ["", *archives(library), "/mine", packages]
    assert daemon.unpacked(path) == ["", "/mine", packages]


def test_the_archive_of_another_spark_stays(site):
    packages = str(site[0])
    path = [*archives("/opt/spark/python/lib"), packages]
    assert daemon.unpacked(path) == path


def test_sparks_own_jar_leaves_the_path_and_what_was_noted_of_it(tmp_path):
    """Each of Spark's Python processes held the names of 6,000 classes of Java."""
    jar = tmp_path / "jars" / "spark-core_2.13-4.3.0.jar"
    jar.parent.mkdir()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("org/apache/spark/A.class", b"")
    path = [str(jar), "/jars/mine.jar", "/spark-core_2.13.jar", str(jar.parent)]
    assert daemon.unpacked(path) == path[1:]
    importer = zipimport.zipimporter(str(jar))
    sys.path_importer_cache[str(jar)] = importer
    daemon.forget([str(jar), "/never/there"])
    assert str(jar) not in sys.path_importer_cache
    assert str(jar) not in zipimport._zip_directory_cache


def test_an_archive_stays_whose_packages_are_not_on_the_path(site):
    path = [*archives(str(site[1])), "/mine"]
    assert daemon.unpacked(path) == path


def test_the_launcher_takes_the_archives_away_and_nothing_else(tmp_path, site):
    show = tmp_path / "show it"
    show.write_text('#!/bin/sh\nprintf "%s" "$PYTHONPATH"\nprintf "<%s>" "$@"\n')
    show.chmod(0o755)
    launcher = tmp_path / "python3"
    launcher.write_text(local.LAUNCHER.format(library=site[1], python=show))
    launcher.chmod(0o755)
    jar = "/opt/spark/jars/spark-core_2.13-4.3.0.jar"
    path = ":".join([jar, *archives(site[1]), "/my libraries", "/opt/pyspark.zip", "/x*", jar])
    done = subprocess.run(
        [launcher, "-m", "a b"], env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout == "/my libraries:/opt/pyspark.zip:/x*<-m><a b>"


@pytest.mark.parametrize(
    ("given", "started"),
    [
        (["-m", "pyspark.daemon", "a b"], "<-m><ottla.spark.daemon><a b>"),
        (["-m", "pyspark.daemon"], "<-m><ottla.spark.daemon>"),
        (["-m", "pyspark.worker", "x"], "<-m><pyspark.worker><x>"),
        (["-m", planner.RUNNER], "<-m><ottla.spark.planner>"),
        (["pyspark.daemon"], "<pyspark.daemon>"),
        (["-c", "-m pyspark.daemon"], "<-c><-m pyspark.daemon>"),
    ],
)
def test_the_launcher_starts_planners_our_way(tmp_path, given, started):
    show = tmp_path / "show"
    show.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    show.chmod(0o755)
    launcher = tmp_path / "python3"
    launcher.write_text(local.LAUNCHER.format(library=tmp_path, python=show))
    launcher.chmod(0o755)
    done = subprocess.run([launcher, *given], env={}, capture_output=True, text=True)
    assert done.stdout == started


@pytest.mark.parametrize(
    "module", [daemon.TASKS, daemon.PLAN, daemon.WRITE, daemon.COMMIT, daemon.CREATE]
)
def test_what_workers_import_is_there_before_the_fork(module):
    """Ten streams have ten processes that plan and ten that make writers: 39 MB each."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    names = (module, *daemon.PRELOADED[module])
    script = (
        "import sys\nfrom ottla.spark.daemon import preload\n"
        f"preload({module!r})\n"
        f"print([name for name in {names!r} if name not in sys.modules], 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] False"


def test_a_streams_planner_has_no_pyarrow():
    """Ten streams have ten of them: 11 MB each."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    code = (
        "import sys\nfrom ottla.spark import planner\n"
        "found = planner.runner()\nimport ottla.spark.planning.stream\n"
        "import ottla.spark.planning.tracker\n"
        "print(found.__name__, {'pyarrow', 'numpy'} & set(sys.modules))\n"
        "from pyspark.sql.types import StructType, LongType\n"
        "kind = StructType().add('a', LongType())\n"
        "rows = found.records_to_arrow_batches(iter([(1,), (2,)]), 1, kind, None)\n"
        "print([each.to_pydict() for each in rows])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        f"{planner.RUNNER} set()",
        "[{'a': [1]}, {'a': [2]}]",
    ], done.stderr


def test_planners_meet_where_all_that_they_were_started_with_is_the_same(monkeypatch, tmp_path):
    """A planner has its settings, modules and directory from the process that it is forked from."""
    there = {planner.SOCKET: "/run/mine/.1.sock", "PYTHONPATH": "/a", "X": "\udcff"}
    name = planner.name_of(there)
    if sys.platform != "linux":
        assert name is None
        return
    assert planner.name_of({**there, planner.SOCKET: "/run/mine/.2.sock"}) == name
    others = [
        {**there, planner.SOCKET: "/run/other/.1.sock"},
        {**there, "PYTHONPATH": "/b"},
        {**there, "SPARK_JOB_ARTIFACT_UUID": "another session"},
    ]
    names = {name, *map(planner.name_of, others)}
    for target, value in (("os.getppid", lambda: 1), ("sys.path", ["/elsewhere"])):
        with monkeypatch.context() as changed:
            changed.setattr(target, value)
            names.add(planner.name_of(there))
    monkeypatch.chdir(tmp_path)
    names.add(planner.name_of(there))
    assert len(names) == 7
    assert planner.name_of({"PYTHON_WORKER_FACTORY_PORT": "1"}) is None
    assert planner.name_of({**there, planner.SECRET: "x"}) is None


def test_the_launcher_is_made_for_pips_spark_only(monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    launcher = local.python_launcher()
    answer = [launcher, "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(answer, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sys.executable
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert local.python_launcher() == sys.executable


def test_a_python_that_the_user_chose_is_kept(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    monkeypatch.setenv("SPARK_LOCAL_IP", "")
    monkeypatch.setattr("ottla.spark.java.java_home", lambda: "/jdk")
    monkeypatch.setenv("PYSPARK_PYTHON", "/my/python")
    local.set_environment()
    assert os.environ["PYSPARK_PYTHON"] == "/my/python"
    assert os.environ["JAVA_HOME"] == "/jdk"
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    local.set_environment()
    assert os.environ["PYSPARK_PYTHON"] == local.python_launcher()


@pytest.mark.parametrize(
    ("master", "count"), [("local", 1), ("local[3]", 3), ("local[2,1]", 2)]
)  # fmt: skip
def test_partitions_of_a_shuffle_are_as_many_as_cores(master, count):
    assert local.local_confs(master, "error")["spark.sql.shuffle.partitions"] == str(count)
    every = local.local_confs("local[*]", "error")["spark.sql.shuffle.partitions"]
    assert every == str(os.cpu_count())


def test_files_are_made_once_and_mended(cache):
    first = made_files.program("bin/x", "#!/bin/sh\n")
    assert first.stat().st_mode & 0o777 == 0o755
    made = first.stat().st_ino
    assert made_files.program("bin/x", "#!/bin/sh\n").stat().st_ino == made
    first.write_text("torn")
    assert made_files.program("bin/x", "#!/bin/sh\n").read_text() == "#!/bin/sh\n"
    assert made_files.program("bin/x", "other").parent != first.parent
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == ["x", "x"]


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert made_files.program("x", "text").read_text() == "text"


PLANNERS = (
    "ottla.spark",
    "ottla.spark.planning.source",
    "ottla.spark.options",
    "ottla.spark.planning.plan",
)
"""What Spark's planner processes import of ours; each step of each query may start one anew."""


@pytest.mark.parametrize("module", PLANNERS)
def test_the_planners_side_imports_the_standard_library_only(module):
    pytest.importorskip("pyspark")
    code = (
        f"import sys, pyspark.sql.datasource; before = set(sys.modules); import {module};"
        "own = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(own - set(sys.stdlib_module_names) - {'ottla'}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_reading_does_not_import_pandas():
    """It would cost a third of a CPU second in every worker of a session."""
    pytest.importorskip("pyarrow")
    code = """
import sys
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.record import Record
from ottla.spark.reading.columns import TYPES, ArrowDecoder
from ottla.spark.offsets import OffsetRange
data = build_batch([Record(timestamp=1, key=b"k", value=b"v")], codec=Codec.NONE, level=None)
decoder = ArrowDecoder(tuple(TYPES))
rows = [*decoder.decode(memoryview(bytes(data)), OffsetRange("t\u00e9", 7, 0, 1)), decoder.rest()]
seen = "pandas" in sys.modules
print(rows[0].column("topic")[0].as_py(), rows[0].column("partition")[0].as_py(), seen)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["t\u00e9", "7", "False"], "")


def test_workers_do_not_look_for_garbage_among_what_was_imported_before_the_fork():
    script = (
        "import gc\nfrom ottla.spark.daemon import preload\npreload()\nprint(gc.get_freeze_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 10_000


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_worker_on_which_spark_hangs_up_ends_without_a_stack_trace(error):
    def work(sock, authenticated):
        raise error

    assert daemon.quiet(work)(None, True) == daemon.HUNG_UP
    assert daemon.quiet(lambda sock, authenticated: 7 if authenticated else 8)(None, True) == 7


def test_other_errors_of_a_worker_are_told():
    def work(sock, authenticated):
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        daemon.quiet(work)(None, True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is TCP")
def test_pipes_to_python_are_sockets_that_nobody_else_can_reach(monkeypatch):
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        confs = local.socket_confs()
        directory = Path(confs["spark.python.unix.domain.socket.dir"])
        assert confs["spark.python.unix.domain.socket.enabled"] == "true"
        assert directory.stat().st_mode & 0o777 == 0o700
        assert local.socket_confs() == confs
        directory.parent.chmod(0o770)
        assert local.socket_confs() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is TCP")
def test_sockets_that_killed_processes_left_are_taken_away(monkeypatch):
    """They piled up, forty an hour."""
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        monkeypatch.setattr(made_files, "_SOCKETS", {})
        sockets = Path(home) / "ottla-spark" / "sockets"
        script = "from ottla.spark.made_files import socket_directory as d; print(d(), flush=True)"
        command = [sys.executable, "-c", f"{script}; input()"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            theirs = Path(other.stdout.readline().strip())
            (theirs / ".1.sock").touch()
            ours = made_files.socket_directory()
            assert {*sockets.iterdir()} == {ours, theirs}, "theirs is in use"
            other.kill()
        monkeypatch.setattr(made_files, "_SOCKETS", dict(made_files._SOCKETS))
        kept = made_files._SOCKETS.pop(os.getpid())
        fresh = made_files.socket_directory()
        assert {*sockets.iterdir()} == {ours, fresh}
        kept.lock.release()


def test_where_the_path_of_a_socket_would_be_too_long_it_is_tcp(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("x" * 60)))
    assert local.socket_confs() == {}
