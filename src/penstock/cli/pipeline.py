"""`penstock pipeline`: the family of commands for data pipelines."""

from __future__ import annotations

from penstock.cli.options import family
from penstock.cli.pipeline_new import new
from penstock.cli.pipeline_run import check, run
from penstock.cli.pipeline_service_commands import status, up

app = family("Write, check, run and watch data pipelines on Spark.")

app.command()(new)
app.command()(check)
app.command()(run)
app.command()(status)
app.command()(up)
