"""How the process ends: at once, but with what others have asked for at its end."""

import subprocess
import sys

import pytest


def ended(code):
    command = [sys.executable, "-c", f"import sys\nsys.argv = ['ottla', 'version', '-q']\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


MAIN = "from ottla.cli.main import main\nmain()\n"


def test_what_was_registered_for_the_end_is_done():
    done = ended("import atexit\natexit.register(print, 'at the end', flush=True)\n" + MAIN)
    assert (done.returncode, done.stdout.split("\n", 1)[1]) == (0, "at the end\n"), done


def test_nothing_is_taken_apart():
    """Half of a short command's own time went into destroying modules."""
    done = ended(
        "class Last:\n    def __del__(self):\n        print('taken apart', flush=True)\n"
        "last = Last()\n" + MAIN
    )
    assert (done.returncode, "taken apart" in done.stdout) == (0, False), done


def test_a_thread_that_runs_is_waited_for():
    done = ended(
        "import threading\n"
        "def work():\n    threading.main_thread().join()\n    print('worked', flush=True)\n"
        "threading.Thread(target=work).start()\n" + MAIN
    )
    assert (done.returncode, done.stdout.split("\n", 1)[1]) == (0, "worked\n"), done


@pytest.mark.parametrize(("typed", "code"), [(["nothing"], 2), (["--help"], 0), ([], 0)])
def test_the_exit_code_is_kept(typed, code):
    command = [sys.executable, "-m", "ottla", *typed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    assert done.stdout or done.stderr
