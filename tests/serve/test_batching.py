"""Batches across requests: results in order, fair, bounded, and nothing computed that nobody waits for."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from liebig.serve.batching import Batcher, BatchLimits
from liebig.serve.middleware import Busy


class Work:
    """Doubles numbers, remembers the batches, and waits at a gate while it is shut."""

    def __init__(self, shut=False):
        self.batches, self.gate = [], threading.Event()
        if not shut:
            self.gate.set()

    def __call__(self, items):
        self.gate.wait(20)
        self.batches.append(list(items))
        if "bad" in items:
            raise ValueError("bad")
        return [item * 2 for item in items]


def run(scenario, work, workers=1, **how):
    async def main():
        with ThreadPoolExecutor(workers) as pool:
            return await scenario(Batcher(work, pool, workers, BatchLimits(**how)))

    return asyncio.run(main())


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_results_come_back_in_order_whatever_shared_their_batch():
    async def scenario(batcher):
        asked = [list(range(i, i + 5)) for i in range(20)]
        found = await asyncio.gather(*(batcher.submit(items, [1] * 5) for items in asked))
        return found == [[2 * x for x in items] for items in asked]

    assert run(scenario, Work(), workers=2, budget=7)


def test_requests_that_wait_while_a_worker_is_busy_go_together():
    work = Work(shut=True)

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit([0], [1]))
        await until(lambda: batcher.waiting == 0)
        others = [asyncio.create_task(batcher.submit([i], [1])) for i in range(1, 6)]
        await until(lambda: batcher.waiting == 5)
        work.gate.set()
        await asyncio.gather(first, *others)

    run(scenario, work)
    assert work.batches == [[0], [1, 2, 3, 4, 5]]


def test_a_batch_costs_no_more_than_the_budget():
    work = Work(shut=True)

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit([0], [1]))
        await until(lambda: batcher.waiting == 0)
        rest = asyncio.create_task(batcher.submit(list(range(1, 8)), [4, 4, 4, 30, 1, 1, 1]))
        await asyncio.sleep(0)
        work.gate.set()
        await asyncio.gather(first, rest)

    run(scenario, work, budget=10)
    assert work.batches == [[0], [1, 2], [3], [4], [5, 6, 7]]


def test_a_small_request_does_not_wait_for_a_large_one():
    work = Work(shut=True)

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit([0], [1]))
        await until(lambda: batcher.waiting == 0)
        large = asyncio.create_task(batcher.submit(list(range(100, 200)), [1] * 100))
        small = asyncio.create_task(batcher.submit([7], [1]))
        await asyncio.sleep(0)
        work.gate.set()
        await asyncio.gather(first, large, small)

    run(scenario, work, budget=10)
    assert 7 in work.batches[1]


def test_free_workers_share_what_waits():
    work = Work()

    async def scenario(batcher):
        await batcher.submit(list(range(8)), [1] * 8)

    run(scenario, work, workers=2)
    assert sorted(len(batch) for batch in work.batches) == [4, 4]


def test_without_batching_every_item_goes_alone():
    work = Work()

    async def scenario(batcher):
        await batcher.submit(list(range(5)), [1] * 5)

    run(scenario, work, together=False)
    assert [len(batch) for batch in work.batches] == [1] * 5


def test_a_full_line_refuses_and_takes_again_when_it_is_shorter():
    work = Work(shut=True)

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit([0], [1]))
        await until(lambda: batcher.waiting == 0)
        second = asyncio.create_task(batcher.submit([1, 2, 3], [1] * 3))
        await asyncio.sleep(0)
        with pytest.raises(Busy) as refusal:
            await batcher.submit([4, 5], [1, 1])
        work.gate.set()
        await asyncio.gather(first, second)
        return refusal.value.status, refusal.value.headers, await batcher.submit([4, 5], [1, 1])

    assert run(scenario, work, queue=4) == (503, {"Retry-After": "1"}, [8, 10])


def test_what_nobody_waits_for_any_more_is_not_computed():
    work = Work(shut=True)

    async def scenario(batcher):
        first = asyncio.create_task(batcher.submit([0], [1]))
        await until(lambda: batcher.waiting == 0)
        gone = asyncio.create_task(batcher.submit([1, 2], [1, 1]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        waiting = batcher.waiting
        work.gate.set()
        await first
        await batcher.submit([3], [1])
        return waiting

    assert run(scenario, work) == 0
    assert work.batches == [[0], [3]]


def test_an_error_reaches_the_requests_of_its_batch_and_no_other():
    async def scenario(batcher):
        with pytest.raises(ValueError):
            await batcher.submit(["bad"], [1])
        return await batcher.submit(["good"], [1])

    assert run(scenario, Work()) == ["goodgood"]


def test_an_item_that_is_an_error_fails_its_own_request_only():
    async def scenario(batcher):
        asked = [batcher.submit(items, [1] * len(items)) for items in (["a"], ["b", "wrong", "c"], ["d"])]
        return await asyncio.gather(*asked, return_exceptions=True)

    def work(items):
        return [KeyError(item) if item == "wrong" else item for item in items]

    first, failed, last = run(scenario, work)
    assert (first, repr(failed), last) == (["a"], "KeyError('wrong')", ["d"])


def test_closing_finishes_what_is_in_line_and_takes_nothing_new():
    work = Work(shut=True)

    async def scenario(batcher):
        asked = [asyncio.create_task(batcher.submit([i], [1])) for i in range(4)]
        await until(lambda: batcher.waiting == 3)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.submit([9], [1])
        work.gate.set()
        await closing
        return [task.result() for task in asked]

    assert run(scenario, work) == [[0], [2], [4], [6]]
