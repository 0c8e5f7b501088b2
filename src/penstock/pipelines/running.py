"""Runs a pipeline: starts its queries, watches them, tells how they are, and ends all when one fails.

    with held_lock(state, pipeline.name):
        Run(spark, pipeline, state).run(once=True, show=print)

Every query has its checkpoint in `<checkpoints>/<pipeline>/checkpoints/<query>`: started again, it goes on from there.
`stop` may be called from a signal handler; the batch that is under way is then run again the next time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipelines.running_errors import explained
from penstock.pipelines.running_frames import Frames
from penstock.pipelines.running_progress import QueryProgress
from penstock.pipelines.running_sinks import PlannedQuery, planned_queries, query_name
from penstock.pipelines.running_sources import SlotWatch
from penstock.pipelines.specification import Pipeline
from penstock.pipelines.status import PipelineStatus, State, write_status

POLL_S = 0.25
WRITE_EVERY_S = 1.0
STOP_S_MAX = 30
SOURCES_S_MAX = 60.0
START_POLL_S = 0.05
#: What Spark says of a query whose sources are not there yet.
INITIALIZING = ("Initializing StreamExecution", "Initializing sources")

Show = Callable[[PipelineStatus], None]


class Run:
    """See the head of this file."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, state_folder: Path) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.state_folder = state_folder
        self._stopping = threading.Event()
        self._progress: list[QueryProgress] = []
        self._slots = SlotWatch(pipeline)
        self._status = PipelineStatus(
            pipeline.name, State.STARTING, str(pipeline.file) if pipeline.file else None, since_s=time.time()
        )

    def stop(self) -> None:
        """Ask it to end."""
        self._stopping.set()

    def run(self, *, once: bool, show: Show = lambda status: None) -> PipelineStatus:
        """Until everything is processed (`once`), somebody stops it, or a query fails. The last status."""
        self._tell(State.STARTING, show)
        started: list[StreamingQuery] = []
        try:
            frames = Frames(self.spark, self.pipeline)
            frames.build()
            for planned in planned_queries(frames):
                query = self._start(planned, once)
                started.append(query)
                self._until_it_reads(query)
                self._progress.append(QueryProgress(planned, query, self.pipeline, self._slots))
            failed = self._watch(started, show)
        except Exception as error:
            self._end(started)
            self._tell(State.FAILED, show, explained(error))
            return self._status
        self._end(started)
        if failed is not None:
            self._tell(State.FAILED, show, failed)
        else:
            self._tell(State.STOPPED if self._stopping.is_set() else State.FINISHED, show)
        return self._status

    def _start(self, planned: PlannedQuery, once: bool) -> StreamingQuery:
        place = self.pipeline.checkpoints or str(self.state_folder.resolve())
        checkpoint = f"{place}/{self.pipeline.name}/checkpoints/{planned.name}"
        writer = planned.writer.option("checkpointLocation", checkpoint)
        writer = writer.queryName(query_name(self.pipeline, planned.name))
        if once:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.trigger is not None:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        query = writer.start()
        return query

    def _until_it_reads(self, query: StreamingQuery) -> None:
        """Waits until its sources are there, so that queries start one after the other.

        Spark gives the Python process of each source ten seconds to come up, which are too short on a busy machine when
        all of them start at once.
        """
        deadline_s = time.monotonic() + SOURCES_S_MAX
        while query.isActive and query.status["message"] in INITIALIZING and time.monotonic() < deadline_s:
            if self._stopping.wait(START_POLL_S):
                return

    def _watch(self, queries: list[StreamingQuery], show: Show) -> str | None:
        """Until all have ended or somebody stops; what failed, if something did."""
        written_s = 0.0
        while not self._stopping.is_set():
            is_over = not any(query.isActive for query in queries)
            for progress in self._progress:
                error = progress.error()
                if error is not None:
                    return f"{progress.planned.name}: {explained(error)}"
            if time.monotonic() - written_s >= WRITE_EVERY_S:
                self._tell(State.RUNNING, show)
                written_s = time.monotonic()
            if is_over:
                return None
            self._stopping.wait(POLL_S)
        return None

    def _end(self, queries: list[StreamingQuery]) -> None:
        self._slots.end()
        if self._stopping.is_set():
            self.spark.sparkContext.setLogLevel("OFF")  # tasks that are cut off complain at length
        for query in queries:
            if query.isActive:
                with suppress(PySparkException):  # it may fail at this moment, as another one has: that is told already
                    query.stop()
                    query.awaitTermination(STOP_S_MAX)

    def _tell(self, state: State, show: Show, error: str | None = None) -> None:
        queries = tuple(progress.status() for progress in self._progress)
        changed = replace(self._status, state=state, queries=queries, changed_s=time.time())
        self._status = replace(changed, last_error=error or self._status.last_error)
        write_status(self.state_folder, self._status)
        show(self._status)
