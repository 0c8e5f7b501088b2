"""A pipeline made of a Python dict and run once in the shared session, for tests that look at what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.pipelines.reading import read_document
from penstock.pipelines.running import Run
from penstock.pipelines.running_errors import TOO_BUSY
from penstock.pipelines.running_session import register_sources
from penstock.pipelines.specification import Pipeline
from penstock.pipelines.status import PipelineStatus, State
from penstock.testing.broker_process import BrokerProcess

BUSY_MAX = 3


def document(broker: BrokerProcess, **parts: Any) -> dict[str, Any]:
    return {"name": "shop", "brokers": broker.bootstrap, **parts}


def read(folder: Path, broker: BrokerProcess, **parts: Any) -> Pipeline:
    return read_document(document(broker, **parts), {}, folder / "shop.yaml")


def run_once(spark: Any, pipeline: Pipeline, folder: Path) -> PipelineStatus:
    """What it says of itself at the end, however that was."""
    register_sources(spark)
    return Run(spark, pipeline, folder / "state").run(once=True)


def finish(spark: Any, pipeline: Pipeline, folder: Path) -> PipelineStatus:
    """Run what is there; it must not fail. On a machine that is too busy it is started again, as a user would."""
    last = run_once(spark, pipeline, folder)
    for _ in range(BUSY_MAX):
        if TOO_BUSY not in (last.last_error or ""):
            break
        last = run_once(spark, pipeline, folder)
    assert last.state is State.FINISHED, last.last_error
    return last


def json_of(**columns: Any) -> bytes:
    return json.dumps(columns).encode()
