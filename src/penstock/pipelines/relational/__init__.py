"""Tables of PostgreSQL, MySQL, MariaDB and SQLite as sources and sinks of Spark, over plain Python drivers."""
