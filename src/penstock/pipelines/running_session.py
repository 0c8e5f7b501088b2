"""The Spark session that pipelines run in."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.specification import Pipeline

DEFAULT_MASTER = "local[*]"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: What a pipeline wants unless its file or the command line says otherwise.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.driver.host": "127.0.0.1",
    # Spark takes long errors of Python apart with a regular expression that needs a deep stack
    JAVA_OPTIONS: "-Xss4m",
}
LOG_OPTION = "log4j2.configurationFile"
LOG_SETTINGS = Path(__file__).resolve().with_name("log4j2.properties")
QUIET_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")


def make_session(
    pipeline: Pipeline, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session for this pipeline: settings of the command line win over those of its file."""
    prepare_workers(pipeline.folder)
    wanted = {**SETTINGS, **pipeline.spark, **(settings or {})}
    chosen = master or wanted.get("spark.master") or DEFAULT_MASTER
    if not chosen.startswith("local") and "spark.driver.host" not in {**pipeline.spark, **(settings or {})}:
        del wanted["spark.driver.host"]  # executors elsewhere must find the driver
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns of host names that loop back
    if "SPARK_CONF_DIR" not in os.environ and LOG_OPTION not in wanted[JAVA_OPTIONS]:  # or somebody said how to log
        wanted[JAVA_OPTIONS] += f" -D{LOG_OPTION}={LOG_SETTINGS.as_uri()}"
    builder = SparkSession.builder.appName(f"penstock pipeline {pipeline.name}").master(chosen)
    for setting, value in wanted.items():
        builder = builder.config(setting, value)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register_sources(session)
    return session


def register_sources(session: SparkSession) -> None:
    """Makes `format("penstock-table")` known; `format("penstock")` Spark finds by itself."""
    session.dataSource.register(RelationalTable)


def prepare_workers(folder: Path) -> None:
    """Spark's Python workers must be this Python, and find Penstock and the modules of the user's project."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    places = [str(folder), str(Path(penstock.__file__).parents[1])]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([*(each for each in places if each not in known), *filter(None, known)])
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
