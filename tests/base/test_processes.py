"""Processes that help: results in order, few under way, a killed one said as a sentence."""

import os
import signal
import time

import pytest

from liebig.base import machine
from liebig.base.errors import ResourceError
from liebig.base.machine import Pace, helpers, in_order, spread

_begun: list[int] = []


def begin(number):
    _begun.append(number)


def times(number):
    return number * _begun[0]


def killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(number):
    os.kill(os.getpid(), signal.SIGINT)
    return number


def leaves_a_file(path):
    time.sleep(0.02)
    path.touch()


def test_results_come_in_order_and_few_tasks_are_under_way():
    asked = []

    def tasks():
        for number in range(20):
            asked.append(number)
            yield number

    with helpers(2, begin, 7) as pool:
        results = in_order(pool, times, tasks(), 4)
        assert next(results) == 0
        assert asked == [0, 1, 2, 3]
        assert [0, *results] == [7 * number for number in range(20)]


def test_a_killed_process_is_said_as_a_sentence(forked_helpers):
    with (
        pytest.raises(ResourceError, match="one of 1 worker processes was killed") as caught,
        helpers(1) as pool,
    ):
        list(in_order(pool, killed, range(3), 2))
    assert "__main__" in str(caught.value.fix)


def test_ctrl_c_is_left_to_the_process_that_is_helped(forked_helpers):
    with helpers(1) as pool:
        assert list(in_order(pool, interrupted, range(3), 2)) == [0, 1, 2]


def test_what_has_not_begun_is_not_done_after_an_error(tmp_path, forked_helpers):
    with pytest.raises(ZeroDivisionError), helpers(1) as pool:
        done = [pool.submit(leaves_a_file, tmp_path / str(number)) for number in range(200)]
        done[0].result()
        _ = 1 / 0
    assert 0 < len(list(tmp_path.iterdir())) < 200


def own_process(number):
    return number, os.getpid()


@pytest.mark.parametrize(
    ("total", "parts", "most", "count"),
    [
        (100, [], 16, 0),  # nothing is known yet
        (100, [(1, 0.1)], 16, 0),  # 10 seconds are left: this process is done before a helper has begun
        (100, [(1, 0.28)], 16, 0),  # work for one helper is this process's own
        (100, [(1, 1.0)], 16, 6),  # each of 6 has 15 seconds to do
        (100, [(1, 1.0)], 2, 2),
        (100, [(1, 1.0)], 1, 0),
        (100, [(1, 1.0)], 0, 0),
        (1000, [(1, 1.0)], 16, 16),
        (100, [(1, 9.0), (10, 1.0)], 16, 0),  # the first part was slow, the second tells
        (100, [(90, 1000.0)], 16, 7),  # 10 of 100 are left
        (100, [(100, 1000.0)], 16, 0),
        (None, [(1, 29.0)], 16, 0),  # where the end is not known, as much again is expected
        (None, [(1, 31.0)], 16, 2),
        (None, [(1, 500.0)], 16, 16),
    ],
)
def test_helpers_are_started_where_the_rest_takes_longer_than_their_start(total, parts, most, count):
    pace = Pace(total)
    for size, seconds in parts:
        pace.count(size, seconds)
    assert pace.helpers(most) == count


def test_threads_that_share_the_work_need_fewer_helpers():
    counts = []
    for threads in (1, 3):
        pace = Pace(100, threads)
        pace.count(1, 1.0)
        counts.append(pace.helpers(16))
    assert counts == [6, 2]


def test_little_work_is_done_by_this_process_alone(monkeypatch):
    monkeypatch.setattr(machine, "helpers", lambda *_: pytest.fail("a process was started"))
    monkeypatch.setattr(machine, "free_cores", lambda: 16)
    assert list(spread(own_process, range(50))) == [(number, os.getpid()) for number in range(50)]
    assert list(spread(own_process, range(3), 1)) == [(number, os.getpid()) for number in range(3)]
    assert list(spread(own_process, [])) == list(spread(own_process, [], 4)) == []


def test_long_work_is_shared_after_its_first_part_and_stays_in_order(monkeypatch, forked_helpers):
    monkeypatch.setattr(machine, "START", 1e-9)
    monkeypatch.setattr(machine, "free_cores", lambda: 2)
    results = list(spread(own_process, range(20)))
    assert [number for number, _ in results] == list(range(20))
    assert [process == os.getpid() for _, process in results] == [True] + [False] * 19


def test_a_number_of_processes_that_is_told_is_kept(monkeypatch, forked_helpers):
    counts = []
    monkeypatch.setattr(machine, "helpers", lambda n, *rest: counts.append(n) or helpers(n, *rest))
    assert all(process != os.getpid() for _, process in spread(own_process, range(4), 2))
    assert counts == [2]
