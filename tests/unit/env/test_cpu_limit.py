"""Work that holds the interpreter ends when its time is over, and only then."""

import re
import threading
import time

import pytest

from ottla.env.cpu_limit import CpuLimit, TooLong

pytestmark = pytest.mark.timeout(60)


def test_a_search_without_an_end_is_ended_and_the_next_is_not():
    limit = CpuLimit(0.05)
    for _ in range(3):
        began = time.process_time()
        with pytest.raises(TooLong):
            limit.run(lambda: re.fullmatch("(a+)+b", "a" * 60))
        assert time.process_time() - began < 5
        assert limit.run(lambda: re.fullmatch("a+", "aaa")) is not None


def test_a_signal_that_comes_late_does_nothing():
    limit = CpuLimit(60)
    limit.run(lambda: None)
    limit._end()
    with pytest.raises(ZeroDivisionError):
        limit.run(lambda: 1 / 0)
    limit._end()


def test_on_another_thread_the_work_is_done_all_the_same():
    done = []
    thread = threading.Thread(target=lambda: done.append(CpuLimit(1e-6).run(lambda: 7)))
    thread.start()
    thread.join()
    assert done == [7]
