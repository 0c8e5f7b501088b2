"""Topics as Arrow: a bulk client that reads record batches into columns and writes columns as record batches.

reader = penstock.columnar.read("localhost:9092", "orders")         # a pyarrow.RecordBatchReader
"""

from __future__ import annotations

from penstock.columnar.reading import read

__all__ = ["read"]
