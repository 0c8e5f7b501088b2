"""The pieces of work that are measured, one row each, and how much of each makes a full or a quick run.

An item's name is what `--only` takes. Sizes are chosen so that a figure settles while tmpfs stays small.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.load import Options
from bench.rebalances import MakeMember, classic, new


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything: one of these for a full run, one for a quick one."""

    rounds: int
    large_batch_bytes: int  # produced per measurement, in all
    small_batch_bytes: int
    seconds: float  # for work that is measured by time
    fill_bytes: int  # what a fetch finds in each partition
    fetch_bytes: int
    warm_bytes: int  # page memory touched beforehand
    warm_up: float  # share of the work that is done, unmeasured, before it is measured
    settle_s: float  # before memory is read
    quiet_seconds: float
    cold_bytes: int
    group_changes: int  # members that leave and join, in a measurement
    replicated_bytes: int  # produced to a cluster, which keeps three times as much
    failovers: int  # of each kind, in a measurement
    column_rows: int  # read and written as columns
    message_rows: int  # and message by message


FULL = Sizes(
    rounds=3,
    large_batch_bytes=1_500_000_000,
    small_batch_bytes=600_000_000,
    seconds=5,
    fill_bytes=400_000_000,
    fetch_bytes=4_000_000_000,
    warm_bytes=6_000_000_000,
    warm_up=0.3,
    settle_s=3,
    quiet_seconds=10,
    cold_bytes=1_500_000_000,
    group_changes=20,
    replicated_bytes=900_000_000,
    failovers=3,
    column_rows=3_000_000,
    message_rows=1_000_000,
)
QUICK = Sizes(
    rounds=1,
    large_batch_bytes=300_000_000,
    small_batch_bytes=100_000_000,
    seconds=1,
    fill_bytes=100_000_000,
    fetch_bytes=800_000_000,
    warm_bytes=2_000_000_000,
    warm_up=0.5,
    settle_s=1,
    quiet_seconds=2,
    cold_bytes=300_000_000,
    group_changes=5,
    replicated_bytes=150_000_000,
    failovers=1,
    column_rows=1_000_000,
    message_rows=300_000,
)


@dataclass(frozen=True, slots=True)
class Item:
    """One load against one topic."""

    name: str
    title: str
    mode: str
    options: Options
    amount: str  # the field of Sizes that says how much, and so in which unit
    partitions: int = 1
    fill: bool = False  # the topic is filled first
    shown: tuple[str, ...] = field(default=("mb_s", "cpu_s_per_gb"))

    def load_options(self, sizes: Sizes, share: float = 1.0) -> Options:
        amount = getattr(sizes, self.amount) * share
        limit: Options = {"seconds": amount} if self.amount == "seconds" else {"total_bytes": int(amount)}
        return {**self.options, **limit, "partitions": self.partitions}

    def stored_bytes(self, sizes: Sizes) -> int:
        """How much of one copy of the log a measurement writes, where that is known beforehand."""
        return 0 if self.fill or self.amount == "seconds" else int(getattr(sizes, self.amount))


LARGE = ("mb_s", "messages_s", "cpu_s_per_gb", "p99_ms")
SMALL = ("requests_s", "p50_ms", "p99_ms", "cpu_us_per_request")
TRANSACTIONS = ("transactions_s", "p50_ms", "p99_ms", "cpu_us_per_request")

LOADS = [
    Item(
        "produce-1mb-100b",
        "produce, 1 MB batches of 100-byte messages, 1 connection, 5 in flight",
        "produce",
        {"batch_bytes": 1_000_000, "record_bytes": 100, "inflight": 5},
        "large_batch_bytes",
        shown=LARGE,
    ),
    Item(
        "produce-1mb-1kb",
        "produce, 1 MB batches of 1 KB messages, 1 connection, 5 in flight",
        "produce",
        {"batch_bytes": 1_000_000, "record_bytes": 1000, "inflight": 5},
        "large_batch_bytes",
        shown=LARGE,
    ),
    Item(
        "produce-16kb",
        "produce, 16 KB batches of 100-byte messages, 4 connections, 4 partitions, 5 in flight",
        "produce",
        {"batch_bytes": 16_000, "record_bytes": 100, "inflight": 5, "connections": 4},
        "small_batch_bytes",
        partitions=4,
        shown=LARGE,
    ),
    Item(
        "one-message-1",
        "one 100-byte message per request, 1 connection in lock step",
        "produce",
        {"record_bytes": 100},
        "seconds",
        shown=SMALL,
    ),
    Item(
        "one-message-100",
        "one 100-byte message per request, 100 connections",
        "produce",
        {"record_bytes": 100, "connections": 100},
        "seconds",
        shown=SMALL,
    ),
    Item(
        "fixed-rate",
        "2,000 requests a second of 1 KB over 10 connections",
        "rate",
        {"record_bytes": 1000, "connections": 10, "rate": 2000},
        "seconds",
        shown=("p50_ms", "p99_ms", "p999_ms", "cpu_us_per_request"),
    ),
    Item(
        "fetch-1",
        "fetch, 1 MB at a time, 1 connection",
        "fetch",
        {"max_bytes": 1_000_000},
        "fetch_bytes",
        fill=True,
        shown=("mb_s", "messages_s", "cpu_s_per_gb"),
    ),
    Item(
        "fetch-4",
        "fetch, 1 MB at a time, 4 connections, 4 partitions",
        "fetch",
        {"max_bytes": 1_000_000, "connections": 4},
        "fetch_bytes",
        partitions=4,
        fill=True,
        shown=("mb_s", "messages_s", "cpu_s_per_gb"),
    ),
    Item(
        "group-commit-1",
        "one offset commit at a time, 1 group",
        "commit",
        {},
        "seconds",
        shown=SMALL,
    ),
    Item(
        "group-commit-100",
        "one offset commit at a time in each of 100 groups",
        "commit",
        {"connections": 100},
        "seconds",
        shown=SMALL,
    ),
    Item(
        "transaction-1",
        "transactions of one 100-byte message, 1 producer, one after the other",
        "transaction",
        {"record_bytes": 100},
        "seconds",
        shown=TRANSACTIONS,
    ),
    Item(
        "transaction-paced",
        "the same with a rest of 20 ms after each",
        "transaction",
        {"record_bytes": 100, "pause_ms": 20},
        "seconds",
        shown=("p50_ms", "p99_ms"),
    ),
    Item(
        "transaction-20",
        "transactions of one 100-byte message, 20 producers to 4 partitions",
        "transaction",
        {"record_bytes": 100, "connections": 20},
        "seconds",
        partitions=4,
        shown=TRANSACTIONS,
    ),
]

REPLICATED = [
    Item(
        "cluster-1mb",
        "three replicas, acks=all: 1 MB batches of 100-byte messages, 3 partitions, 3 connections, 5 in flight",
        "produce",
        {"batch_bytes": 1_000_000, "record_bytes": 100, "inflight": 5, "connections": 3},
        "replicated_bytes",
        partitions=3,
        shown=LARGE,
    ),
    Item(
        "cluster-one-message-1",
        "three replicas, acks=all: one 100-byte message per request, 1 connection in lock step",
        "produce",
        {"record_bytes": 100},
        "seconds",
        shown=SMALL,
    ),
    Item(
        "cluster-one-message-100",
        "three replicas, acks=all: one 100-byte message per request, 100 connections, 3 partitions",
        "produce",
        {"record_bytes": 100, "connections": 100},
        "seconds",
        partitions=3,
        shown=SMALL,
    ),
]

FILL: Options = {"batch_bytes": 100_000, "record_bytes": 100, "inflight": 5}

START = "start"
START_TITLE = "start to the first acknowledged message; resident memory"
START_SHOWN = ("fresh_s", "thousand_partitions_s", "idle_mb", "thousand_partitions_mb")

MEMORY = "memory-after-load"
MEMORY_TITLE = "resident memory after the loads above"
MEMORY_SHOWN = ("loaded_mb",)

QUIET = "quiet-client"
QUIET_TITLE = "100 requests a second of 1 KB, on disk, beside a cold reader and a writer that waits for the disk"
QUIET_SHOWN = ("p50_ms", "p99_ms", "reader_mb_s", "writer_requests_s")

NOISY = "noisy-client"
NOISY_TITLE = (
    "200 requests a second of 1 KB, alone, beside a client that writes all it can, and with a quota on that client"
)
NOISY_SHOWN = ("p99_ms", "noise_p99_ms", "quota_p99_ms", "noise_mb_s", "quota_mb_s")

AUTHORIZER = "authorizer"
AUTHORIZER_TITLE = (
    "one-message-100 and produce-16kb with an authorizer and 400 rules, and what share that is of the same without one"
)
AUTHORIZER_SHOWN = (
    "one_message_guarded_s",
    "one_message_share",
    "one_message_cpu_share",
    "batches_guarded_s",
    "batches_share",
    "batches_cpu_share",
)

COMPACTION = "compaction"
COMPACTION_TITLE = "500 requests a second of 1 KB, on disk, before and while a log is compacted"
COMPACTION_SHOWN = ("p50_ms", "p99_ms", "beside_p50_ms", "beside_p99_ms", "compacted_mb_s")


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A group of twenty members that changes, in one of the two protocols."""

    name: str
    title: str
    make: MakeMember


REBALANCES = [
    Rebalance(
        "group-rebalance-classic", "a member joins, leaves, dies: until all of 20 have their partitions", classic
    ),
    Rebalance("group-rebalance-new", "the same with the new protocol", new),
]
REBALANCE_SHOWN = ("join_ms", "leave_ms", "die_ms")


@dataclass(frozen=True, slots=True)
class Failover:
    """One broker of three goes: who, and how."""

    name: str
    title: str
    what: str
    is_controller: bool
    shown: tuple[str, ...]


FAILOVERS = [
    Failover(
        "failover-leader",
        "a leader is killed (-9): until confluent-kafka's next acknowledged message",
        "kill",
        False,
        ("writable_ms", "writable_ms_max"),
    ),
    Failover(
        "failover-leader-controller",
        "the same when it is the controller, too",
        "kill",
        True,
        ("writable_ms", "writable_ms_max"),
    ),
    Failover(
        "failover-1000",
        "the leader of 1,000 partitions is killed",
        "kill many",
        False,
        ("gone_ms", "elected_ms", "all_writable_ms"),
    ),
    Failover(
        "failover-1000-controller",
        "the same when it is the controller, too",
        "kill many",
        True,
        ("gone_ms", "elected_ms", "all_writable_ms"),
    ),
    Failover(
        "failover-controller",
        "the controller is killed: until another one has made a topic",
        "kill controller",
        True,
        ("topic_made_ms",),
    ),
    Failover(
        "failover-paused",
        "a leader is stopped (SIGSTOP): until the next acknowledged message of a client that waits a second",
        "pause",
        False,
        ("writable_s",),
    ),
]

COLUMNS_READ = "columns-read"
COLUMNS_READ_TITLE = (
    "read 200-byte rows from 4 partitions: penstock.columnar, confluent-kafka's consume, aiokafka's getmany"
)
COLUMNS_READ_SHOWN = ("columnar_rows_s", "confluent_rows_s", "aiokafka_rows_s", "over_confluent", "over_aiokafka")

COLUMNS_WRITE = "columns-write"
COLUMNS_WRITE_TITLE = "write 200-byte rows with keys to 4 partitions: penstock.columnar, confluent-kafka's producer"
COLUMNS_WRITE_SHOWN = ("columnar_rows_s", "confluent_rows_s", "over_confluent")

ROWS = [
    *((item.name, item.title, item.shown) for item in LOADS),
    (MEMORY, MEMORY_TITLE, MEMORY_SHOWN),
    *((item.name, item.title, item.shown) for item in REPLICATED),
    *((item.name, item.title, item.shown) for item in FAILOVERS),
    *((item.name, item.title, REBALANCE_SHOWN) for item in REBALANCES),
    (START, START_TITLE, START_SHOWN),
    (QUIET, QUIET_TITLE, QUIET_SHOWN),
    (NOISY, NOISY_TITLE, NOISY_SHOWN),
    (AUTHORIZER, AUTHORIZER_TITLE, AUTHORIZER_SHOWN),
    (COLUMNS_READ, COLUMNS_READ_TITLE, COLUMNS_READ_SHOWN),
    (COLUMNS_WRITE, COLUMNS_WRITE_TITLE, COLUMNS_WRITE_SHOWN),
    (COMPACTION, COMPACTION_TITLE, COMPACTION_SHOWN),
]
NAMES = [name for name, _, _ in ROWS]
TITLES = {name: title for name, title, _ in ROWS}
SHOWN = {name: shown for name, _, shown in ROWS}
