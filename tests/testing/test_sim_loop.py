"""The virtual-time loop: order, time, failures, processes."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.testing.sim_loop import CURRENT_PROCESS, ProcessState, SimLoop, SimulationError


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    with SimLoop(seed=1) as made:
        yield made


def in_process(name: str) -> tuple[ProcessState, contextvars.Context]:
    state = ProcessState(name)
    context = contextvars.copy_context()
    context.run(CURRENT_PROCESS.set, state)
    return state, context


def test_waiting_costs_no_real_time(loop: SimLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3600 * 24 * 365)
        return loop.time()

    assert loop.run_until_complete(main()) == 3600 * 24 * 365


def test_timers_run_in_order_of_time_then_of_call(loop: SimLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        for name, delay in [("c", 2.0), ("a", 1.0), ("b", 1.0), ("cancelled", 1.5)]:
            timer = loop.call_later(delay, seen.append, name)
        timer.cancel()
        loop.call_soon(seen.append, "now")
        await asyncio.sleep(3)

    loop.run_until_complete(main())
    assert seen == ["now", "a", "b", "c"]


def test_timeouts_gathering_and_queues_work(loop: SimLoop) -> None:
    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def put_late() -> None:
            await asyncio.sleep(5)
            queue.put_nowait(1)

        async def expire() -> str:
            try:
                async with asyncio.timeout(2):
                    await asyncio.Event().wait()
            except TimeoutError:
                return f"expired at {loop.time()}"
            return "no"

        found, expired, _ = await asyncio.gather(queue.get(), expire(), put_late())
        return [found, expired, await asyncio.to_thread(lambda: "inline")]

    assert loop.run_until_complete(main()) == [1, "expired at 2.0", "inline"]


def test_a_deadlock_names_who_waits(loop: SimLoop) -> None:
    async def waits_for_ever() -> None:
        await loop.create_future()

    with pytest.raises(SimulationError, match=r"nothing can happen any more(.|\n)*waits_for_ever"):
        loop.run_until_complete(waits_for_ever())


def test_the_time_limit(loop: SimLoop) -> None:
    loop.limit_s = 10

    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="not done after 10 s"):
        loop.run_until_complete(main())
    assert loop.time() == 10


def test_callbacks_without_end(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.testing.sim_loop.CALLBACKS_PER_INSTANT_MAX", 1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match="callbacks without end"):
        loop.run_until_complete(main())


def test_an_unhandled_exception_of_a_callback_fails_the_run(loop: SimLoop) -> None:
    def broken() -> None:
        raise ValueError("broken callback")

    async def main() -> None:
        loop.call_later(1, broken)
        await asyncio.sleep(100)

    with pytest.raises(ValueError, match="broken callback"):
        loop.run_until_complete(main())
    assert loop.time() == 1


def test_an_unhandled_exception_of_a_task_fails_the_run(loop: SimLoop) -> None:
    async def broken() -> None:
        raise ValueError("broken task")

    async def main() -> None:
        task = asyncio.ensure_future(broken())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(100)

    with pytest.raises(ValueError, match="broken task"):
        loop.run_until_complete(main())


def test_async_generators_are_closed(loop: SimLoop) -> None:
    closed: list[str] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(name)

    async def main() -> AsyncIterator[int]:
        async for _ in numbers("dropped"):
            break
        kept = numbers("kept")
        await anext(kept)
        await asyncio.sleep(2)
        assert closed == ["dropped"]
        return kept

    kept = loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_asyncgens())
    assert closed == ["dropped", "kept"]
    del kept


def test_asyncio_runner_can_use_it() -> None:
    async def main() -> float:
        await asyncio.sleep(7)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        assert runner.run(main()) == 7


def test_the_callbacks_of_an_ended_process_never_run(loop: SimLoop) -> None:
    seen: list[str] = []
    state, context = in_process("p")

    async def works() -> None:
        try:
            while True:
                seen.append(f"{loop.time()}")
                await asyncio.sleep(1)
        finally:
            seen.append("finally")

    async def main() -> None:
        context.run(loop.create_task, works())
        await asyncio.sleep(1.5)
        state.ended = True
        loop.abandon_tasks(state.tasks)
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert seen == ["0.0", "1.0"]


def test_a_paused_process_goes_on_where_it_was(loop: SimLoop) -> None:
    seen: list[float] = []
    state, context = in_process("p")

    async def works() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def main() -> None:
        task = context.run(loop.create_task, works())
        await asyncio.sleep(1.5)
        state.paused = True
        await asyncio.sleep(8.5)
        loop.resume(state)
        await task

    loop.run_until_complete(main())
    assert seen == [1.0, 10.0, 11.0]


def test_an_empty_context_belongs_to_no_process(loop: SimLoop) -> None:
    seen: list[str] = []
    state, context = in_process("p")

    async def main() -> None:
        context.run(loop.call_later, 1, seen.append, "mine")
        context.run(lambda: loop.call_later(1, seen.append, "nobody's", context=contextvars.Context()))
        state.ended = True
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    assert seen == ["nobody's"]


def interleaving(seed: int, shuffle: bool) -> str:
    order: list[str] = []

    async def works(name: str) -> None:
        for step in range(5):
            order.append(f"{name}{step}")
            await asyncio.sleep(0)

    async def main(loop: SimLoop) -> None:
        await asyncio.gather(*[in_process(name)[1].run(loop.create_task, works(name)) for name in "abc"])

    with SimLoop(seed, shuffle=shuffle) as loop:
        loop.run_until_complete(main(loop))
    return " ".join(order)


def test_the_seed_chooses_among_processes_but_keeps_the_order_of_each() -> None:
    assert interleaving(1, shuffle=False) == interleaving(2, shuffle=False)
    assert interleaving(1, shuffle=True) == interleaving(1, shuffle=True)
    assert len({interleaving(seed, shuffle=True) for seed in range(5)}) > 1
    for name in "abc":
        mine = [step for step in interleaving(3, shuffle=True).split() if step[0] == name]
        assert mine == [f"{name}{step}" for step in range(5)]


def test_the_trace_has_times_and_a_digest(loop: SimLoop) -> None:
    async def main() -> None:
        loop.trace.add("begin")
        await asyncio.sleep(2)
        loop.trace.add("end")

    loop.run_until_complete(main())
    assert list(loop.trace.entries) == [(0.0, "begin"), (2.0, "end")]
    assert "2.000000 end" in str(loop.trace)
    assert len(loop.trace.digest()) == 64
