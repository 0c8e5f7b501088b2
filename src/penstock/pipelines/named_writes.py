"""Rows that change, written batch by batch under a name and a number, so that each batch counts once.

Spark hands a Python sink only rows that never change (output mode append). For the other modes a batch is written as a
whole (`foreachBatch`), under the name of the query and the number of the batch: brokers and databases remember both,
and a batch that is run again is recognised. The name has the query's id in it, since a new checkpoint counts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class NamedWrites:
    """See the head of this file."""

    format: str
    options: Mapping[str, str]
    name: str
    is_named: bool = True
    """False: at least once is enough"""

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id, "Spark says to foreachBatch which query it is"
        naming = {"txnAppId": f"{self.name}.{query_id}", "txnVersion": str(batch_id)} if self.is_named else {}
        rows.write.format(self.format).options(**self.options, **naming).mode("append").save()
