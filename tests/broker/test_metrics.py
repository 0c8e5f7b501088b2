"""What a broker tells of itself, read by the parser of Prometheus' own client: what it takes is what we wrote."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.base.broker_settings import load_broker_settings
from penstock.broker.metrics import LINES_AT_ONCE, SECTIONS
from penstock.broker.metrics_format import Kind, labels, number
from penstock.broker.metrics_scrape import in_slices
from penstock.broker.start import RunningBroker, StartError, start_broker
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import PRODUCE_VERSION, SimClient, batch_of, produce_request
from penstock.testing.sim_cluster import SimCluster
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.zookeeper.local import LocalCoordination

DOCS = Path(__file__).resolve().parents[2] / "docs"
FAMILIES = {family.name: family for section in SECTIONS for family in section.families}
SUFFIXES = {Kind.COUNTER: ("",), Kind.GAUGE: ("",), Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
SERIES = {f"{family.name}{suffix}" for family in FAMILIES.values() for suffix in SUFFIXES[family.kind]}


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    @classmethod
    async def of(cls, running: RunningBroker | None) -> Scraped:
        assert running is not None
        return cls("".join([piece.decode() async for piece in running.metrics.text()]))

    def __call__(self, name: str, **tags: object) -> float | None:
        """The sum of the samples with such labels; None if there are none."""
        assert name in SERIES
        wanted = {key: str(value) for key, value in tags.items()}
        found = [each.value for each in self.samples if each.name == name and wanted.items() <= each.labels.items()]
        return sum(found) if found else None


class Bench:
    """A broker and one client of it."""

    def __init__(self) -> None:
        self.simulation = Simulation(5, limit_s=300)
        self.world = self.simulation.machine("client").process("client").world

    def run(
        self, drive: Callable[[RunningBroker, SimClient], Awaitable[None]], settings: dict[str, str] | None = None
    ) -> None:
        async def main() -> None:
            broker = SimBroker(self.simulation.machine("broker"), settings)
            running = await broker.start()
            await drive(running, await SimClient.connect(self.world, "broker", PORT))
            await broker.stop()

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


async def commit(client: SimClient, group: str, offset: int, topic: str = "t", partition: int = 0) -> None:
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    await coordinator_is_there(client, group, 0)
    while (await client.call(request, 8)).topics[0].partitions[0].error_code:
        await asyncio.sleep(0.1)


async def coordinator_is_there(client: SimClient, key: str, kind: int) -> None:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    while (await client.call(request, 4)).coordinators[0].error_code:
        await asyncio.sleep(0.1)


# ── names and forms ──────────────────────────────────────────────────────────────────────────────────────────────


def test_names_are_as_prometheus_wants_them() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"(penstock|process)_[a-z_]+[a-z]", name), name
        assert name.endswith("_total") is (family.kind is Kind.COUNTER), name
        assert not name.endswith(("_bucket", "_sum", "_count", "_ms", "_kb")), name
        assert family.help.endswith(".") and "\n" not in family.help, name
        assert all(re.fullmatch(r"[a-z_]+", label) for label in family.labels), name
    assert len(FAMILIES) == sum(len(section.families) for section in SECTIONS)


def test_labels_and_numbers_are_written_as_they_are_read() -> None:
    odd = 'a "quoted" \\ back\\slash\nline {brace}, ü €'
    text = f"# TYPE x gauge\nx{labels(group=odd)} {number(float('inf'))}\nx{labels(group='')} {number(True)}\n"
    (family,) = text_string_to_metric_families(text)
    assert [(sample.labels["group"], sample.value) for sample in family.samples] == [(odd, float("inf")), ("", 1)]
    assert [number(value) for value in (0, -1, 0.25, float("-inf"), float("nan"))] == ["0", "-1", "0.25", "-Inf", "NaN"]


def test_what_is_told_is_what_was_declared(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 2)
        await client.produce("t", 0, batch_of([b"a"]))
        await client.produce("nothing", 0, batch_of([b"a"]))
        await commit(client, "g", 1)
        scraped = await Scraped.of(running)
        told = {family.name for family in scraped.families}
        # the parser takes the ending off the names of counters
        assert told == {name.removesuffix("_total") for name in FAMILIES}
        for found in scraped.families:
            declared = FAMILIES.get(found.name) or FAMILIES[f"{found.name}_total"]
            assert (found.type, found.documentation) == (declared.kind.value, declared.help)
            for sample in found.samples:
                assert set(sample.labels) - {"le"} == set(declared.labels), sample
        keys = [(sample.name, *sorted(sample.labels.items())) for sample in scraped.samples]
        assert len(set(keys)) == len(keys)

    bench.run(drive)


def test_the_rules_and_the_guide_use_metrics_that_exist() -> None:
    for path in (DOCS / "alerts.yml", DOCS / "guides" / "metrics.md"):
        text = path.read_text(encoding="utf-8")
        rules = set(re.findall(r"record: (\S+)", (DOCS / "alerts.yml").read_text(encoding="utf-8")))
        assert set(re.findall(r"\bpenstock:[a-z0-9_:]*[a-z0-9]", text)) <= rules
        used = set(re.findall(r"\b(?:penstock|process)_[a-z_]+\b", text)) - {"penstock_"}
        assert used <= SERIES, path


# ── what is counted ──────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_their_times_errors_and_bytes(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t")
        for _ in range(100):  # all but the first take the short way
            await client.produce("t", 0, batch_of([b"a", b"b"]), acks=1)
        await client.produce("t", 9, batch_of([b"a"]))
        waiting = asyncio.ensure_future(client.fetch("t", 0, 200, max_wait_ms=2000))
        await asyncio.sleep(1)
        scraped = await Scraped.of(running)
        assert scraped("penstock_requests_total", api="Produce") == 101
        assert scraped("penstock_requests_total", api="Fetch") == 1
        assert scraped("penstock_request_seconds_count", api="Fetch") is None  # it waits still
        assert scraped("penstock_request_errors_total") == 1
        unknown = "UNKNOWN_TOPIC_OR_PARTITION"
        assert scraped("penstock_request_errors_total", api="Produce", error=unknown) == 1
        # two went the long way; of 99 the first and the 65th were timed
        assert scraped("penstock_request_seconds_count", api="Produce") == 2 + 2 * 64
        assert scraped("penstock_request_seconds_bucket", api="Produce", le="+Inf") == 2 + 2 * 64
        await waiting
        scraped = await Scraped.of(running)
        assert scraped("penstock_request_seconds_bucket", api="Fetch", le="1.0") == 0
        assert scraped("penstock_request_seconds_bucket", api="Fetch", le="2.5") == 1
        assert scraped("penstock_request_seconds_sum", api="Fetch") == pytest.approx(2, abs=0.1)
        assert scraped("penstock_connections", listener="PLAINTEXT") == 1
        received, sent = scraped("penstock_received_bytes_total"), scraped("penstock_sent_bytes_total")
        assert received is not None and sent is not None and received > 100 * len(batch_of([b"a", b"b"])) > sent > 0
        client.close()
        await asyncio.sleep(1)
        scraped = await Scraped.of(running)
        assert scraped("penstock_connections") == 0
        assert scraped("penstock_connections_accepted_total") == 1
        assert scraped("penstock_received_bytes_total") == received

    bench.run(drive)


def test_errors_that_are_deep_in_an_answer_are_counted(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.fetch("nothing", 0, 0)
        topics = [DeleteTopicsRequestTopic(name=name) for name in ("a", "b")]
        await client.call(DeleteTopicsRequest(topics=topics, timeout_ms=1000))
        scraped = await Scraped.of(running)
        unknown = "UNKNOWN_TOPIC_OR_PARTITION"
        assert scraped("penstock_request_errors_total", api="DeleteTopics", error=unknown) == 2
        assert scraped("penstock_request_errors_total", api="Fetch", error=unknown) == 1

    bench.run(drive)


def test_peers_that_break_the_protocol_and_connections_beyond_the_limit(bench: Bench) -> None:
    async def drive(running: RunningBroker, _client: SimClient) -> None:
        strangers = [await bench.world.network.connect("broker", PORT) for _ in range(3)]
        await asyncio.sleep(1)
        strangers[0].send(b"\xff" * 100)
        await asyncio.sleep(1)
        scraped = await Scraped.of(running)
        assert scraped("penstock_connections_broken_total") == 1
        assert scraped("penstock_connections_refused_total", reason="max.connections") == 1
        assert scraped("penstock_connections_refused_total", reason="max.connections.per.ip") == 0

    bench.run(drive, {"max.connections": "3"})


def test_partitions_and_disks(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 3)
        batch = batch_of([b"x" * 100] * 10)
        for _ in range(5):
            await client.produce("t", 1, batch)
        await client.read_all("t", 1)
        scraped = await Scraped.of(running)
        where = {"topic": "t", "partition": 1}
        for name, expected in {
            "is_leader": 1,
            "leader_epoch": 0,
            "log_start_offset": 0,
            "high_watermark": 50,
            "log_end_offset": 50,
            "high_watermark_lag": 0,
            "size_bytes": 5 * len(batch),
            "segments": 1,
            "appended_bytes_total": 5 * len(batch),
            "appended_records_total": 50,
            "replicated_bytes_total": 0,
            "fetched_bytes_total": 5 * len(batch),
            "replicas": 1,
            "in_sync_replicas": 1,
            "under_replicated": 0,
            "under_min_isr": 0,
            "unstable_offsets": 0,
            "follower_lag": None,
        }.items():
            assert scraped(f"penstock_partition_{name}", **where) == expected, name
        assert scraped("penstock_partition_log_end_offset", topic="t") == 50
        assert scraped("penstock_replicas", role="leader") == 3
        assert scraped("penstock_replicas", role="follower") == 0
        assert scraped("penstock_log_size_bytes") == 5 * len(batch)
        path = "/data/logs"
        free, total = scraped("penstock_log_dir_free_bytes", path=path), scraped("penstock_log_dir_total_bytes")
        assert free is not None and total is not None and 0 < free <= total
        assert scraped("penstock_log_dir_offline", path=path) == 0

    bench.run(drive)


def test_groups_and_their_lag(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 2)
        await client.produce("t", 1, batch_of([b"x"] * 10))
        odd = 'group "one"\n'
        await commit(client, odd, 4, partition=1)
        await commit(client, odd, 7, partition=0)  # beyond the end: no lag
        scraped = await Scraped.of(running)
        where = {"group": odd, "topic": "t"}
        assert scraped("penstock_group_committed_offset", **where, partition=1) == 4
        assert scraped("penstock_group_lag", **where, partition=1) == 6
        assert scraped("penstock_group_lag", **where, partition=0) == 0
        assert scraped("penstock_group_members", group=odd) == 0
        assert scraped("penstock_groups", type="classic", state="Empty") == 1

    bench.run(drive, {"offsets.topic.num.partitions": "3"})


def test_transactions_and_what_they_hold_back(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t")
        await coordinator_is_there(client, "x", 1)
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        while (producer := await client.call(request, 4)).error_code:
            await asyncio.sleep(0.1)
        batch = batch_of(
            [b"x"] * 3,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        produce = produce_request("t", 0, batch)
        produce.transactional_id = "x"
        answer = await client.call(produce, PRODUCE_VERSION)
        assert not answer.responses[0].partition_responses[0].error_code
        scraped = await Scraped.of(running)
        assert scraped("penstock_partition_unstable_offsets", topic="t", partition=0) == 3
        assert scraped("penstock_transactions") == 1

    bench.run(drive, {"transaction.partition.verification.enable": "false"})


def test_one_broker_is_its_own_cluster(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 4)
        scraped = await Scraped.of(running)
        assert scraped("penstock_broker_info", node_id=0) == 1
        for name, expected in {
            "broker_admitted": 1,
            "session_connected": 1,
            "session_silence_seconds": 0,
            "session_expirations_total": 0,
            "controller_active": 1,
            "controller_epoch": 1,
            "controller_unclean_elections_total": 0,
            "cluster_brokers": 1,
            "cluster_partitions": 4,
            "cluster_offline_partitions": 0,
            "cluster_under_replicated_partitions": 0,
            "cluster_partitions_not_led_by_preferred": 0,
        }.items():
            assert scraped(f"penstock_{name}") == expected, name

    bench.run(drive)


def test_of_very_many_only_some_have_series_of_their_own(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 30)
        for number_ in range(12):
            await commit(client, f"g{number_}", 0, partition=number_)
        scraped = await Scraped.of(running)
        own = [each for each in scraped.samples if each.name == "penstock_partition_is_leader"]
        assert len(own) == 10
        assert scraped("penstock_replicas", role="leader") == 31
        assert scraped("penstock_metrics_omitted", of="partitions") == 21
        assert len([each for each in scraped.samples if each.name == "penstock_group_members"]) == 10
        assert scraped("penstock_metrics_omitted", of="groups") == 2
        assert len([each for each in scraped.samples if each.name == "penstock_group_committed_offset"]) == 10
        assert scraped("penstock_metrics_omitted", of="group offsets") == 2
        assert scraped("penstock_groups") == 12

    bench.run(drive, {"metrics.series.max": "10", "offsets.topic.num.partitions": "1"})


# ── how it is told ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_large_scrape_is_made_between_other_work(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 200)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count_turns())
        turn_of_piece = []
        async for piece in running.metrics.text():
            assert piece.count(b"\n") <= 2 * LINES_AT_ONCE  # the head of a family is two
            turn_of_piece.append(turns)
        counting.cancel()
        assert len(turn_of_piece) > 200 * 15 / LINES_AT_ONCE
        assert len(set(turn_of_piece)) == len(turn_of_piece)

    bench.run(drive)


def test_scrapes_at_the_same_time_share_the_turns(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 50)
        turns = 0
        pieces_of_turn: dict[int, int] = {}

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async def scrape() -> str:
            text = ""
            async for piece in running.metrics.text():
                pieces_of_turn[turns] = pieces_of_turn.get(turns, 0) + 1
                text += piece.decode()
            return text

        counting = asyncio.ensure_future(count_turns())
        texts = await asyncio.gather(*(scrape() for _ in range(5)))
        counting.cancel()
        assert max(pieces_of_turn.values()) <= 2
        assert len({len(Scraped(text).samples) for text in texts}) == 1

    bench.run(drive)


def test_topics_may_come_and_go_during_a_scrape(bench: Bench) -> None:
    async def drive(running: RunningBroker, client: SimClient) -> None:
        await client.create_topic("t", 60)
        for group in range(10):
            await commit(client, f"g{group}", 0)
        text = ""
        async for piece in running.metrics.text():
            if not text:
                deleting = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
                await client.call(deleting)
                await client.create_topic("u", 3)
                await commit(client, "new", 0, topic="u")
            text += piece.decode()
        assert Scraped(text)("penstock_metrics_omitted") == 0

    bench.run(drive)


def test_slices_give_everything_once() -> None:
    async def drive() -> None:
        assert [each async for each in in_slices(list(range(1234)))] == list(range(1234))
        assert [each async for each in in_slices([])] == []

    asyncio.run(drive())


# ── the listener ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"metrics.listener": "0.0.0.0:9308"}, "give metrics.login"),
        ({"metrics.listener": "[::]:9308+"}, "give metrics.login"),
        ({"metrics.listener": "broker:9308", "metrics.login": "secret"}, "user:password"),
        ({"metrics.listener": f"127.0.0.1:{PORT}"}, "cannot serve metrics on 127.0.0.1:9092"),
    ],
)
def test_a_start_that_would_tell_too_much_or_nothing_is_refused(
    bench: Bench, settings: dict[str, str], problem: str
) -> None:
    world = bench.simulation.machine("broker").process("broker").world
    values = {"listeners": f"PLAINTEXT://127.0.0.1:{PORT}", "log.dirs": "/data/logs", **settings}

    async def main() -> None:
        coordination = await LocalCoordination.open(world.disk, world.clock, "/data/keeper")
        with pytest.raises(StartError, match=problem):
            await start_broker(world, load_broker_settings(values), coordination)
        await coordination.close()

    bench.simulation.run(main())


@pytest.mark.parametrize("listener", ["127.0.0.1:9308", "127.0.0.1:9308+", "localhost:9308", "[::1]:9308"])
def test_loopback_needs_no_login(bench: Bench, listener: str) -> None:
    async def drive(running: RunningBroker, _client: SimClient) -> None:
        assert running.metrics.address is not None and running.metrics.address.port == 9308
        assert running.metrics.is_healthy

    bench.run(drive, {"metrics.listener": listener})


# ── clusters ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_as_its_brokers_tell_of_it() -> None:
    settings = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}

    async def until(condition: Callable[[list[Scraped]], bool], cluster: SimCluster) -> list[Scraped]:
        while True:
            scraped = [await Scraped.of(each.running) for each in cluster.brokers if each.is_running]
            if condition(scraped):
                return scraped
            await asyncio.sleep(0.5)

    async def main() -> None:
        cluster = SimCluster(simulation, 3, settings)
        await cluster.start()
        client = await cluster.broker(1).connect(process)
        await client.create_topic("t", 3, replicas=3)
        leader = cluster.broker(1).running
        assert leader is not None
        index = next(each.name.partition for each in leader.broker.partitions if each.leader is not None)
        for _ in range(10):
            await client.produce("t", index, batch_of([b"x" * 100]))
        where = {"topic": "t", "partition": index}
        scraped = await until(
            lambda all_: sum(each("penstock_partition_high_watermark", **where) or 0 for each in all_) == 30, cluster
        )
        assert scraped[0]("penstock_requests_total", api="Produce") == 10
        assert scraped[0]("penstock_request_seconds_count", api="Produce") == 10
        assert sorted(each("penstock_controller_active") for each in scraped) == [0, 0, 1]
        assert sum(each("penstock_partition_is_leader", **where) or 0 for each in scraped) == 1
        assert [each("penstock_partition_in_sync_replicas", **where) for each in scraped] == [3, None, None]
        assert {each("penstock_partition_replicated_bytes_total", **where) or 0 for each in scraped[1:]} == {
            scraped[0]("penstock_partition_appended_bytes_total", **where)
        }
        assert scraped[0]("penstock_partition_follower_lag", **where, follower=2) == 0
        assert sum(each("penstock_replicas", role="follower") or 0 for each in scraped) == 6

        cluster.broker(3).kill()
        scraped = await until(lambda all_: all_[0]("penstock_partition_in_sync_replicas", **where) == 2, cluster)
        assert scraped[0]("penstock_partition_under_replicated", **where) == 1
        assert scraped[0]("penstock_partition_under_min_isr", **where) == 0
        await client.produce("t", index, batch_of([b"x"] * 5))
        scraped = await until(
            lambda all_: all_[0]("penstock_partition_follower_lag", **where, follower=3) == 5, cluster
        )
        controller = next(each for each in scraped if each("penstock_controller_active"))
        assert controller("penstock_cluster_brokers") == 2
        assert controller("penstock_cluster_under_replicated_partitions") == 3

        cluster.broker(2).kill()
        scraped = await until(lambda all_: all_[0]("penstock_partition_in_sync_replicas", **where) == 1, cluster)
        assert scraped[0]("penstock_partition_under_min_isr", **where) == 1
        assert (scraped[0]("penstock_under_min_isr_partitions") or 0) >= 1

        session_id = cluster.broker(1).session_id
        cluster.keeper.expire(session_id)
        scraped = await until(lambda all_: all_[0]("penstock_session_expirations_total") == 1, cluster)
        await until(lambda all_: all_[0]("penstock_broker_admitted") == 1, cluster)

    with Simulation(11, limit_s=200) as simulation:
        process = simulation.machine("client").process("client")
        simulation.run(main())
