"""The event loop of the simulator: asyncio in virtual time, from one seed.

The loop runs what is ready, and when nothing is, jumps to the next timer: no time passes while code runs, and an hour
of waiting costs nothing. There is no input or output; the simulated disk and network are timers on this loop.

A callback belongs to the process that scheduled it, known from a context variable that asyncio carries along by itself.
The callbacks of an ended process never run, those of a paused one wait. Within a process callbacks run in the order
they were scheduled, as asyncio promises; with `shuffle`, the seed decides which process goes next.

A run fails loudly: on an exception that nobody handled, when nothing can ever happen again, when callbacks go on and on
without time moving, and when the time limit has passed. The garbage collector runs at counted moments only, so that
what finalisers do is the same in every run of a seed.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
import sys
import types
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from penstock.testing.sim_trace import Trace

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

CALLBACKS_PER_INSTANT_MAX = 1_000_000
CALLBACKS_PER_COLLECTION = 50_000
_SOURCES = ("handle", "task", "future")  # keys of what asyncio tells an exception handler


class ProcessState:
    """What the loop knows of a simulated process: whether its callbacks run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 64

    def add_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks.append(task)
        if len(self.tasks) > self._prune_at:
            self.tasks = [task for task in self.tasks if not task.done() or _is_unseen_failure(task)]
            self._prune_at = 2 * len(self.tasks) + 64

    def unseen_failures(self) -> list[asyncio.Task[Any]]:
        """Tasks that ended with an exception at which nobody has looked so far."""
        return [task for task in self.tasks if task.done() and _is_unseen_failure(task)]


CURRENT_PROCESS: contextvars.ContextVar[ProcessState | None] = contextvars.ContextVar("current_process", default=None)


class SimulationError(Exception):
    """The run itself is stuck or has gone on for too long."""


class SimFuture(asyncio.Future[T]):
    """A future that knows the process it was made in."""

    process: ProcessState | None = None


class SimTask(asyncio.Task[T]):
    """A task that knows its process."""

    process: ProcessState | None = None


class SimHandle(asyncio.Handle):
    """A callback that knows its process."""

    __slots__ = ("process",)

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: contextvars.Context
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.process = context.get(CURRENT_PROCESS)


class SimTimerHandle(asyncio.TimerHandle):
    """A timer that knows its process."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: contextvars.Context,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.process = context.get(CURRENT_PROCESS)


class SimLoop(asyncio.AbstractEventLoop):
    """Deterministic asyncio: same seed, same order of everything."""

    def __init__(
        self,
        seed: int = 0,
        *,
        shuffle: bool = False,
        limit_s: float | None = None,
        trace_size_max: int | None = None,
    ) -> None:
        self.seed = seed
        self.limit_s = limit_s
        self.trace = Trace(self.time, trace_size_max)
        self._random = random.Random(f"loop {seed}")
        self._shuffle = shuffle
        self._now = 0.0
        self._ready: deque[SimHandle | SimTimerHandle] = deque()
        self._timers: list[tuple[float, int, SimTimerHandle]] = []
        self._scheduled_count = 0
        self._tasks_count = 0
        self.callbacks_per_instant_max = CALLBACKS_PER_INSTANT_MAX
        self._callbacks_this_instant = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._failures: list[BaseException] = []
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self.on_ran: Callable[[ProcessState | None], None] | None = None
        """Called after every callback, with its process: invariants are looked at here."""
        self.callbacks_count = 0
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []
        self._ended_tasks: list[asyncio.Task[Any]] = []

    # Time and scheduling

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, _own_or_current(context))
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = SimTimerHandle(when, callback, args, self, _own_or_current(context))
        self._scheduled_count += 1
        heapq.heappush(self._timers, (when, self._scheduled_count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio; the heap drops a cancelled timer when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        future: SimFuture[Any] = SimFuture(loop=self)
        future.process = CURRENT_PROCESS.get()
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._tasks_count += 1
        task: SimTask[T] = SimTask(coro, loop=self, name=name or f"task-{self._tasks_count}", context=context)
        task.process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        if task.process is not None:
            task.process.add_task(task)
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Inline: the simulator has one thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    # Running

    def __enter__(self) -> SimLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_forever(self) -> None:
        assert not self._running and not self._closed, "the loop is running or closed"
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        sys.set_asyncgen_hooks(firstiter=self._generator_started, finalizer=self._generator_dropped)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not self._stopping:
                self._run_next()
        finally:
            self._running = self._stopping = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def run_until_complete(self, future: Any) -> Any:
        main: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        main.add_done_callback(self._main_done)
        try:
            self.run_forever()
        except BaseException:
            if main.done() and not main.cancelled():
                main.exception()  # seen: what stopped the run is the better story
            else:
                self.abandon_tasks([main] if isinstance(main, asyncio.Task) else [])
            raise
        finally:
            main.remove_done_callback(self._main_done)
        if not main.done():
            raise SimulationError("the loop was stopped before the main task was done")
        return main.result()

    def _main_done(self, _: asyncio.Future[Any]) -> None:
        self._stopping = True

    def _run_next(self) -> None:
        """One callback, after time has moved to it."""
        self._release_timers()
        if not self._ready:
            self._advance()
            return
        handle = self._take()
        if not handle.cancelled():
            process = handle.process
            if process is None or not (process.ended or process.paused):
                handle._run()
                self._count()
                if self.on_ran is not None:
                    self.on_ran(process)
            elif not process.ended:
                process.held.append(handle)
        if self._failures:
            raise self._failures.pop(0)

    def _take(self) -> SimHandle | SimTimerHandle:
        """The first in line; with `shuffle`, the first in line of a process chosen by the seed."""
        if not self._shuffle or len(self._ready) == 1:
            return self._ready.popleft()
        first: dict[int, int] = {}
        for index, handle in enumerate(self._ready):
            first.setdefault(id(handle.process), index)
        index = list(first.values())[self._random.randrange(len(first))]
        handle = self._ready[index]
        del self._ready[index]
        return handle

    def _release_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)

    def _advance(self) -> None:
        while self._timers and (self._timers[0][2].cancelled() or _is_over(self._timers[0][2].process)):
            heapq.heappop(self._timers)
        if not self._timers:
            raise SimulationError(f"nothing can happen any more at {self._now:.6f} s; waiting:\n{self._waiting()}")
        when = self._timers[0][0]
        if self.limit_s is not None and when > self.limit_s:
            raise SimulationError(f"not done after {self.limit_s} s of virtual time; waiting:\n{self._waiting()}")
        self._now = max(self._now, when)
        self._callbacks_this_instant = 0

    def _count(self) -> None:
        self.callbacks_count += 1
        self._callbacks_this_instant += 1
        if self.callbacks_count % CALLBACKS_PER_COLLECTION == 0:
            gc.collect()
        if self._callbacks_this_instant > self.callbacks_per_instant_max:
            next_ones = "\n".join(f"  {handle!r}" for handle in list(self._ready)[:5])
            raise SimulationError(
                f"callbacks without end at {self._now:.6f} s:\n{next_ones}\nwaiting:\n{self._waiting()}"
            )

    def _waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: (len(task.get_name()), task.get_name()))
        return "\n".join(f"  {_describe(task)}" for task in tasks) or "  no task"

    def resume(self, process: ProcessState) -> None:
        """Let a paused process go on, with what became ready in the meantime first."""
        process.paused = False
        held, process.held = process.held, []
        for handle in held:
            assert isinstance(handle, SimHandle | SimTimerHandle)
            self._ready.append(handle)

    def abandon_tasks(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Keep tasks that will never go on, so that no finaliser runs their `finally` blocks before the loop closes."""
        for task in tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._ended_tasks.append(task)

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End what never ended, ignoring what it says; then fail if anything unhandled came to light."""
        if self._closed:
            return
        self._closed = True
        self.abandon_tasks(sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()))
        for task in self._ended_tasks:
            _close_coroutine(task)
        self._ready.clear()
        self._timers.clear()
        self._ended_tasks.clear()
        if self._failures:
            raise self._failures.pop(0)

    # Generators and exceptions

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators = [known for known in self._generators if known() is not None]
        self._generators.append(weakref.ref(generator))

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        generators, self._generators = self._generators, []
        for known in generators:
            generator = known()
            if generator is not None:
                await generator.aclose()

    async def shutdown_default_executor(self) -> None:
        """There is none."""

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run with the exception; what an ended process says no longer counts."""
        if self._closed or any(_is_over(getattr(context.get(key), "process", None)) for key in _SOURCES):
            return
        error = context.get("exception") or SimulationError(context["message"])
        error.add_note(f"unhandled in the simulation at {self._now:.6f} s: {context['message']}")
        self._failures.append(error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Debug mode measures real time; there is none here."""

    def get_task_factory(self) -> None:
        return None


def _own_or_current(context: contextvars.Context | None) -> contextvars.Context:
    return contextvars.copy_context() if context is None else context  # an empty context is false


def _is_unseen_failure(task: asyncio.Task[Any]) -> bool:
    return bool(task._log_traceback)  # what asyncio itself goes by


def _is_over(process: ProcessState | None) -> bool:
    return process is not None and process.ended


def _describe(task: asyncio.Task[Any]) -> str:
    coroutine: object = task.get_coro()
    where: list[str] = []
    while isinstance(coroutine, types.CoroutineType):
        frame = coroutine.cr_frame
        where.append(f"{coroutine.__qualname__}:{frame.f_lineno if frame else '?'}")
        coroutine = coroutine.cr_await
    return f"{task.get_name()} in {' > '.join(where)}"


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    while isinstance(coroutine, types.CoroutineType) and coroutine.cr_frame is not None:
        try:
            coroutine.close()
        except BaseException:  # what the cleanup of a dead task says is of no interest; if it awaits, close it again
            continue
