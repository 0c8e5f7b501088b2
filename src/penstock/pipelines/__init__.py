"""Data pipelines on Spark: sources, steps and sinks, declared in a YAML file and run exactly once.

`reading` makes a `specification.Pipeline` of a file and tells all its mistakes; `checking` finds what is wrong with it
without running it; `running` runs it: one streaming query for each sink, each with its own checkpoint. Topics are read
and written through `format("penstock")`, tables of databases through `format("penstock-table")` (`relational`).
`status` is what a running pipeline tells others.
"""
