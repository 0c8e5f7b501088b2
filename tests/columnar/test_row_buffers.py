"""Rows into Arrow's buffers: what a first small read must not cost."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from penstock.base.identifiers import TopicPartition
from penstock.columnar.decode import ColumnChoice
from penstock.columnar.row_buffers import RowBuffers

rows = RowBuffers(TopicPartition("töpic", 7), ColumnChoice(headers=True).schema).finish()
assert rows.num_rows == 0 and "pyarrow" in sys.modules
print("pandas" in sys.modules)
"""


def test_pandas_is_not_imported() -> None:
    """Importing it takes longer than reading a million rows, in every Python worker of Spark."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "False"
