"""Topics as Arrow: a bulk client that reads record batches into columns and writes columns as record batches.

    table = penstock.columnar.read("localhost:9092", "orders").read_all()
    penstock.columnar.write(table, "orders-copied", "localhost:9092")

What goes wrong is a `ColumnarError` in the caller's words. Spark's readers and writers are thin layers over the modules
of this package.
"""

from __future__ import annotations

from penstock.columnar.errors import ColumnarError
from penstock.columnar.reading import read
from penstock.columnar.writing import Written, write

__all__ = ["ColumnarError", "Written", "read", "write"]
