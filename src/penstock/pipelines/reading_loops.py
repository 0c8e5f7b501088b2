"""Pipelines that would feed themselves: what is read must not be written by the same pipeline, or it never ends."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.base.topic_patterns import PatternError, topic_matcher
from penstock.pipelines.specification import (
    BadRecordsToParquet,
    BadRecordsToTopic,
    FileSource,
    ParquetSink,
    Pipeline,
    TableSource,
    TopicSink,
    TopicSource,
)


def loops(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """The key that writes, and what is wrong with it."""
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink):
            source = _reader_of_topic(pipeline, sink.topic)
            if source is not None:
                yield f"sinks.{sink.name}.topic", f"{_topic_is_read(sink.topic, source)}: it would feed itself"
        elif isinstance(sink, ParquetSink) and (by := _reader_of_folder(pipeline, sink.path)) is not None:
            yield f"sinks.{sink.name}.parquet", f"the source {by} reads this folder: it would feed itself"
    yield from _loops_of_bad_records(pipeline)


def _loops_of_bad_records(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for each in pipeline.sources.values():
        if isinstance(each, TableSource):
            continue
        key = "on_bad_record" if each.on_bad_record is None else f"sources.{each.name}.on_bad_record"
        kept = pipeline.bad_records_of(each)
        if isinstance(kept, BadRecordsToTopic) and (source := _reader_of_topic(pipeline, kept.topic)) is not None:
            yield key, f"{_topic_is_read(kept.topic, source)}: bad records would come again"
        elif isinstance(kept, BadRecordsToParquet) and (by := _reader_of_folder(pipeline, kept.path)) is not None:
            yield key, f"the source {by} reads this folder: bad records would come again"


def _reader_of_topic(pipeline: Pipeline, topic: str) -> TopicSource | None:
    sources = (each for each in pipeline.sources.values() if isinstance(each, TopicSource))
    return next((each for each in sources if reads_topic(each, topic)), None)


def reads_topic(source: TopicSource, topic: str) -> bool:
    """Whether a topic is one of those that the source reads."""
    if source.pattern is None:
        return topic in source.topics
    try:
        return topic_matcher(source.pattern)(topic)
    except PatternError:  # which has been told
        return False


def _topic_is_read(topic: str, source: TopicSource) -> str:
    by_pattern = "" if source.pattern is None else f", whose pattern {source.pattern!r} matches it"
    return f"{topic} is read by the source {source.name}{by_pattern}"


def _reader_of_folder(pipeline: Pipeline, path: str) -> str | None:
    sources = (each for each in pipeline.sources.values() if isinstance(each, FileSource) and not each.is_lookup)
    return next((each.name for each in sources if each.path.rstrip("/") == path.rstrip("/")), None)
