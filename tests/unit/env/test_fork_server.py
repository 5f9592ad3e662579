"""Processes forked from the first of them: who has what was handed over, and who ends when."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="names without a path are Linux's"),
    pytest.mark.timeout(60),
]
START = """
import os, sys
from ottla.env import fork_server
from ottla.env.fork_server import ForkServer, hand_over
fork_server.LOOK_SECONDS, fork_server.IDLE_LOOKS_MAX = float(sys.argv[3]), int(sys.argv[4])
name, descriptor = sys.argv[1], int(sys.argv[2])
if hand_over(name, [descriptor]):
    sys.exit(7)
server = ForkServer.claim(name)
if server is None:
    if hand_over(name, [descriptor]):
        sys.exit(7)
else:
    (descriptor,) = server.serve([descriptor])
print("written by", os.getpid(), flush=True)
os.write(descriptor, b"%d %d %d" % (os.getpid(), os.getppid(), os.getpgid(0)))
os.read(descriptor, 1)
"""
HANDED_OVER = 7


class Start:
    """A start of the program, and what became of it."""

    def __init__(self, name, *, look_seconds=0.05, idle_looks=10_000, command=()):
        self.end, other = socket.socketpair()
        self.end.settimeout(30)
        with other:
            given = (name, str(other.fileno()), str(look_seconds), str(idle_looks))
            self.process = subprocess.Popen(
                [*command, sys.executable, "-c", START, *given],
                pass_fds=[other.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

    def told(self):
        """The number of the process that works for this start, and of its parent."""
        number, parent, _ = map(int, self.end.recv(100).split())
        self.worker = number
        return number, parent

    def is_working(self):
        """Tell whether somebody holds what was handed over."""
        self.end.setblocking(False)
        try:
            return self.end.recv(1) != b""
        except BlockingIOError:
            return True
        finally:
            self.end.settimeout(30)

    def close(self):
        self.end.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def start():
    """Start the program; all starts of one test meet at one name."""
    name, made = f"test-{uuid.uuid4()}", []

    def begin(**more):
        made.append(Start(name, **more))
        return made[-1]

    begin.name, begin.made = name, made
    yield begin
    for each in made:
        each.close()


def is_there(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_later_starts_are_forked_from_the_first_and_end(start):
    first = start()
    worker, parent = first.told()
    assert (worker == first.process.pid, parent) == (False, first.process.pid)
    for _ in range(2):
        later = start()
        worker, parent = later.told()
        assert parent == first.process.pid
        assert later.process.wait(30) == HANDED_OVER
        assert later.process.stdout.readline() == b"written by %d\n" % worker
    assert first.is_working()


def test_starts_at_once_find_one_first(start):
    starts = [start() for _ in range(8)]
    told = [each.told() for each in starts]
    (server,) = {parent for _, parent in told}
    assert server in {each.process.pid for each in starts}
    assert len({worker for worker, _ in told}) == 8


def test_a_forked_process_that_is_killed_takes_nobody_with_it(start):
    starts = [start() for _ in range(3)]
    told = [each.told() for each in starts]
    os.kill(told[1][0], signal.SIGKILL)
    assert starts[1].end.recv(1) == b""
    assert starts[0].is_working()
    assert starts[2].is_working()
    assert start().told()[1] == told[0][1]


def test_the_others_outlive_the_first_and_the_next_start_is_the_first_again(start):
    starts = [start() for _ in range(2)]
    (server,) = {each.told()[1] for each in starts}
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: not is_there(server))
    assert all(each.is_working() for each in starts)
    another = start()
    assert another.told()[1] == another.process.pid


def test_the_end_of_the_first_ones_own_work_is_not_its_end(start):
    """Whoever starts these processes ends the first with a SIGTERM when its query ends."""
    first = start()
    first.told()
    first.process.terminate()
    first.end.close()
    assert start().told()[1] == first.process.pid


def test_it_ends_when_nobody_has_needed_it_for_a_while(start):
    first = start(look_seconds=0.02, idle_looks=3)
    first.told()
    time.sleep(0.5)  # many looks: it is needed as long as there is a process of its making
    assert start().told()[1] == first.process.pid
    for each in start.made:
        each.end.close()
    assert first.process.wait(30) == 0


def test_it_does_not_outlive_who_started_it(start):
    first = start(command=["sh", "-c", '"$@" & wait', "sh"])
    _, server = first.told()
    assert server != first.process.pid
    first.process.kill()
    wait_until(lambda: not is_there(server))


def test_what_nobody_took_is_still_ones_own(start):
    """A server that died with a request must not leave a query without a planner, nor with two."""
    assert not _hand_over(start.name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"\0{start.name}")
        server.listen()
        asking = start()
        asked, _ = server.accept()
        with asked:
            _, given, _, _ = socket.recv_fds(asked, 1, 9)
        for each in given:
            os.close(each)
        server.accept()[0].close()  # it asks again, when it finds that the name is taken
        worker, _ = asking.told()
        assert worker == asking.process.pid


def test_a_name_that_another_user_has_taken_is_left_alone(start, monkeypatch):
    first = start()
    first.told()
    monkeypatch.setattr("os.getuid", lambda: 1 + os.geteuid())
    assert not _hand_over(start.name)


@pytest.mark.parametrize("request_", [b"", b"x", b"\n"], ids=["nothing", "another", "bare"])
def test_what_is_no_request_is_refused_and_the_next_one_served(start, request_):
    first = start()
    _, server = first.told()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.connect(f"\0{start.name}")
        asking.settimeout(30)
        asking.sendall(request_)
        if not request_:
            asking.shutdown(socket.SHUT_WR)
        assert asking.recv(1) == b""
    assert start().told()[1] == server


def _hand_over(name):
    from ottla.env.fork_server import hand_over

    end, other = socket.socketpair()
    with end, other:
        return hand_over(name, [other.fileno()])
