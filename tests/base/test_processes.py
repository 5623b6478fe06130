"""Processes that help: results in order, few under way, a killed one said as a sentence."""

import os
import signal
import time

import pytest

from liebig.base.errors import ResourceError
from liebig.base.machine import helpers, in_order

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


def test_a_killed_process_is_said_as_a_sentence():
    with (
        pytest.raises(ResourceError, match="one of 1 worker processes was killed") as caught,
        helpers(1) as pool,
    ):
        list(in_order(pool, killed, range(3), 2))
    assert "__main__" in str(caught.value.fix)


def test_ctrl_c_is_left_to_the_process_that_is_helped():
    with helpers(1) as pool:
        assert list(in_order(pool, interrupted, range(3), 2)) == [0, 1, 2]


def test_what_has_not_begun_is_not_done_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), helpers(1) as pool:
        done = [pool.submit(leaves_a_file, tmp_path / str(number)) for number in range(200)]
        done[0].result()
        _ = 1 / 0
    assert 0 < len(list(tmp_path.iterdir())) < 200
