"""Spark for a command: what goes wrong while it starts is one sentence, and nothing of it is left behind."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.cli.doctor_checks import OK, check_java
from penstock.cli.failure import Failure
from penstock.pipelines.running_session import make_session
from penstock.pipelines.spark_errors import in_short
from penstock.pipelines.specification import Pipeline

STOPS = (signal.SIGINT, signal.SIGTERM)


def open_session(pipeline: Pipeline, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Whoever asks for an end meanwhile waits until Spark is there: Java on its way up would stay for ever."""
    asked: list[int] = []
    before = {number: signal.signal(number, lambda number, _: asked.append(number)) for number in STOPS}
    try:
        spark = make_session(pipeline, master, settings)
    except Exception as error:  # Java's come as they like
        if asked:
            raise KeyboardInterrupt from error
        raise Failure(f"Spark does not start: {_why(error)}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        spark.stop()
        raise KeyboardInterrupt
    return spark


def _why(error: Exception) -> str:
    java = check_java()
    if java.status != OK:
        return f"java: {java.text}; {java.advice}"
    said = [line for line in str(error).splitlines() if line.strip()]
    cause = next((line.removeprefix(": ") for line in said if line.startswith(": ")), said[0] if said else repr(error))
    return f"{in_short(cause)} (see above)"
