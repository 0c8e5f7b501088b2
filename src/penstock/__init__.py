"""Penstock: a distributed commit log that speaks Apache Kafka's protocol."""

from penstock.base import compiled

__version__ = "0.1.0"

compiled.choose(__path__[0])
