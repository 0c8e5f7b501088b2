"""Raw requests to a running broker, and to Apache Kafka beside it.

A test takes `client` and asks in plain values: `client.ask("Metadata", 12, topics=[{"name": "a"}])`; fields that the
version does not have are left out, so that one body serves every version. Each test runs twice: on Penstock alone, and
(marked `kafka`) on Penstock and Apache Kafka together. There, every request goes to both, and every field of the two
answers is compared, whatever else the test looks at. What may differ is either loose for everybody (`LOOSE`: ports,
generated ids, the wording of messages) or named in the test, with the reason: `differs={"path.of.field": "why"}`.

`PENSTOCK_TEST_KAFKA=HOST:PORT` takes a Kafka that runs already, with `SETTINGS`, for a quick look.
"""

from __future__ import annotations

import dataclasses
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from penstock.base.errors import Error
from penstock.base.identifiers import NO_ID
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.wire.api import APIS
from penstock.wire.api_declaration import Api
from penstock.wire.batch import ATTRIBUTES_OFFSET, each_batch, problem_of_batch
from penstock.wire.codec import decode, encode
from penstock.wire.headers import decode_response_header
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import schema_of

#: Kafka answers before all of its parts know what was done; Penstock does not, and is asked only once.
KAFKA_CATCHES_UP_WITHIN_S = 5
NOW_MS = int(time.time() * 1000)

API_OF_NAME = {api.name: api for api in APIS.values()}


class Closed(Exception):
    """The broker closed the connection instead of answering."""


def message_of(cls: Any, version: int, values: Mapping[str, Any]) -> Any:
    """A message from plain values; nested structures are dicts. Fields that the version has not are dropped."""
    fields = {field.name: field for field in schema_of(cls).fields}
    unknown = values.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{cls.__name__} has no fields {sorted(unknown)}")
    made = {}
    for name, value in values.items():
        field = fields[name]
        if version not in field.versions:
            continue
        if field.struct is not None and value is not None:
            build = partial(message_of, field.struct, version)
            value = [build(each) for each in value] if field.is_array else build(value)
        made[name] = value
    return cls(**made)


class Link:
    """A connection to one broker that is made again after the broker has closed it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._client: RawClient | None = None

    def exchange(self, api: Api, version: int, body: Any, *, has_answer: bool = True) -> Any:
        """Send one request and wait for its answer; Closed if there is none."""
        frame = self.send(api, version, body)
        return self.receive(api, version, frame) if has_answer else None

    def send(self, api: Api, version: int, body: Any) -> bytes:
        """Send one request; what was sent."""
        if self._client is None:
            self._client = RawClient(*self._address)
        content = body if isinstance(body, bytes) else encode(body, version)
        frame = self._client.frame(api.key, version, content)
        self._client.send(frame)
        return frame

    def receive(self, api: Api, version: int, frame: bytes) -> Any:
        """The answer to a request that was sent; Closed if there is none."""
        assert self._client is not None
        try:
            answer = memoryview(self._client.receive_frame())
        except ConnectionEnded:
            self.close()
            raise Closed from None
        return _decoded(api, version, frame, answer)

    def is_closed(self) -> bool:
        """Wait for the broker to close the connection; False if it answers another request instead."""
        try:
            api = API_OF_NAME["ApiVersions"]
            self.exchange(api, 0, message_of(api.request, 0, {}))
        except Closed:
            return True
        return False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _decoded(api: Api, version: int, request: bytes, answer: memoryview) -> Any:
    number, position = decode_response_header(api.key, version, answer)
    assert number == int.from_bytes(request[8:12], "big")
    if api.name == "ApiVersions" and version > api.max_version:
        version = 0
    message, position = decode(api.response, version, answer, position)
    assert position == len(answer), "bytes after the answer"
    return message


TOKEN_TIMES = (
    *("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"),
    *("issue_timestamp", "expiry_timestamp", "max_timestamp"),
)
#: Fields that two brokers never have in common, and what must still be alike about them.
LOOSE: Mapping[str, Callable[[Any], Any]] = {
    "throttle_time_ms": lambda value: 0,
    "error_message": lambda value: "",
    "batch_index_error_message": lambda value: "",
    "documentation": lambda value: "",
    "port": lambda value: value > 0,
    "cluster_id": bool,
    "log_dir": bool,
    "total_bytes": lambda value: value > 0,
    "usable_bytes": lambda value: value > 0,
    **dict.fromkeys(TOKEN_TIMES, lambda value: min(value, 1)),
}
PRODUCER_ID_AT, TIMES_AT, CRC_AT = slice(43, 51), slice(27, 43), slice(17, 21)  # in a batch
#: Numbers and ids that each broker makes up: what ours stands for in Kafka is remembered and put in place of it.
GENERATED = ("session_id", "producer_id", "member_id", "leader", "token_id", "hmac")
ALSO_CALLED = {
    "v3_and_below_producer_id": "producer_id",
    "producer_id_filters": "producer_id",
    "leader": "member_id",
}
KEY_FIELDS = (
    *("name", "topic", "topic_id", "topic_name", "key", "resource_name", "resource_type", "log_dir", "index"),
    *("partition", "partition_index", "broker_id", "node_id", "api_key", "source", "group_id", "member_id"),
    *("producer_id", "entity_type", "token_id"),
)


def with_producer_ids(records: bytes | None, ids: Mapping[Any, Any]) -> bytes | None:
    """Batches with other producer ids in them, where those have another name; damaged ones stay as they are."""
    out = bytearray(records or b"")
    for header, batch in each_batch(memoryview(out)):
        producer_id = ids.get(("producer_id", header.producer_id))
        if producer_id is not None and problem_of_batch(batch, header) is None:
            batch[PRODUCER_ID_AT] = struct.pack(">q", producer_id)
            batch[CRC_AT] = struct.pack(">I", crc32c(batch[ATTRIBUTES_OFFSET:]))
    return records if records is None else bytes(out)


def without_marker_times(records: bytes | None) -> bytes | None:
    """Batches in which markers, which carry the broker's own time, have none."""
    out = bytearray(records or b"")
    for header, batch in each_batch(memoryview(out)):
        if header.is_control:
            batch[TIMES_AT] = bytes(16)
            batch[CRC_AT] = bytes(4)
    return records if records is None else bytes(out)


class Translation:
    """Which generated value of Kafka's stands for which of ours."""

    def __init__(self) -> None:
        fixed = {NO_ID: NO_ID, ("session_id", 0): 0, ("producer_id", -1): -1, ("member_id", ""): ""}
        fixed |= {("token_id", ""): "", ("hmac", b""): b""}
        self._theirs: dict[Any, Any] = dict(fixed)
        self._ours: dict[Any, Any] = dict(fixed)

    def request(self, value: Any, name: str = "") -> Any:
        """A request of ours with Kafka's ids in it."""
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return type(value)(**{each: self.request(getattr(value, each), each) for each in names})
        if isinstance(value, list):
            return [self.request(each, name) for each in value]
        if name == "records":
            return with_producer_ids(value, self._theirs)
        return self._theirs.get(self._entry(name, value), value)

    def flat(self, value: Any, path: str = "", name: str = "", *, is_ours: bool = True) -> dict[str, Any]:
        """Every field by its path; elements of lists by what names them, because their order says nothing."""
        if dataclasses.is_dataclass(value):
            rows: dict[str, Any] = {}
            for field in dataclasses.fields(value):
                inner = f"{path}.{field.name}" if path else field.name
                rows |= self.flat(getattr(value, field.name), inner, field.name, is_ours=is_ours)
            return rows
        if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            rows = {path: len(value)}
            for number, each in enumerate(value):
                key = self._key(each, is_ours)
                inner = f"{path}[{key}]"
                if f"{inner}#" in rows:
                    inner = f"{inner}#{number}"
                rows[f"{inner}#"] = True
                rows |= self.flat(each, inner, name, is_ours=is_ours)
            return rows
        if isinstance(value, list):
            return {path: value or 0}
        if isinstance(value, memoryview):
            value = bytes(value)
        if name == "records":
            value = without_marker_times(with_producer_ids(value, {} if is_ours else self._ours))
        return {path: LOOSE[name](value) if name in LOOSE else value}

    def _key(self, element: Any, is_ours: bool) -> str:
        parts: list[str] = []
        for name in KEY_FIELDS:
            value = getattr(element, name, None)
            if isinstance(value, uuid.UUID):
                if parts or value == NO_ID:
                    continue
                value = value if is_ours else self._ours.get(value, value)
            if name in GENERATED and not is_ours:
                value = self._ours.get(self._entry(name, value), value)
            if value not in (None, ""):
                parts.append("*" if name == "log_dir" else str(value))
        return ",".join(parts)

    def learn_member(self, ours: Any, theirs: Any) -> None:
        """Whom an answer is for is named beside the list that has it among others."""
        mine, other = getattr(ours, "member_id", None), getattr(theirs, "member_id", None)
        if mine and other:
            self.equal("member_id", mine, other)

    def equal(self, path: str, ours: Any, theirs: Any) -> bool:
        name = path.rpartition(".")[2]
        if not isinstance(ours, uuid.UUID) and name not in GENERATED:
            return bool(ours == theirs)
        mine, other = self._entry(name, ours), self._entry(name, theirs)
        if mine not in self._theirs and other not in self._ours:
            self._theirs[mine], self._ours[other] = theirs, ours
        return bool(self._theirs.get(mine, ours) == theirs)

    @staticmethod
    def _entry(name: str, value: Any) -> Any:
        """Ids of topics are the same everywhere; numbers mean something only in their field."""
        return value if isinstance(value, uuid.UUID) else (ALSO_CALLED.get(name, name), value)


class Brokers:
    """The brokers that tests share, and what the tests know of them."""

    def __init__(self, penstock: tuple[str, int], kafka: tuple[str, int] | None = None) -> None:
        self.penstock = penstock
        self.kafka = kafka
        self.translation = Translation()
        self.shared: dict[str, Any] = {}


class Client:
    """Asks Penstock, and Apache Kafka too if it is there; see the head of this file."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._penstock = Link(brokers.penstock)
        self._kafka = Link(brokers.kafka) if brokers.kafka is not None else None
        self._translation = brokers.translation
        self._topics: set[str] = set()
        self._more_links: list[Link] = []
        self.differences: list[str] = []
        self.about = ""  # what the differences that follow belong to
        self.prefix = f"t{uuid.uuid4().hex[:10]}"

    def close(self) -> None:
        """Delete the topics of this client, so that a long run does not need the files of all of them."""
        for link in self._more_links:
            link.close()
        api = API_OF_NAME["DeleteTopics"]
        names = self._topics.difference(self._brokers.shared.values())
        request = message_of(api.request, 5, {"topic_names": sorted(names), "timeout_ms": 10_000})
        for connection in (self._penstock, self._kafka):
            if connection is not None:
                self._try(lambda connection=connection: connection.exchange(api, 5, request))  # type: ignore[misc]
                connection.close()

    def once(self, name: str, make: Callable[[], str]) -> str:
        """A topic that many tests read and none changes."""
        if name not in self._brokers.shared:
            self._brokers.shared[name] = make()
        found: str = self._brokers.shared[name]
        return found

    def versions(self, name: str) -> range:
        api = API_OF_NAME[name]
        return range(api.min_version, api.max_version + 1)

    def ask(
        self,
        name: str,
        version: int,
        *,
        differs: Mapping[str, str] | None = None,
        until: Callable[[Any], bool] | None = None,
        is_patient: bool = False,
        not_kafka: str = "",
        **values: Any,
    ) -> Any:
        """The answer, `Closed` if the broker closes the connection instead.

        `until` must hold for the answer: for Penstock's at once, for Kafka's after some time; `is_patient` gives
        both time, where it depends on what another connection does. `not_kafka` is the reason why Kafka is not asked
        at all.
        """
        api = API_OF_NAME[name]
        request = message_of(api.request, version, values)
        if name in ("CreateTopics", "Metadata"):
            self._topics.update(topic["name"] or "" for topic in values["topics"] or ())
        ours = self._ask_until(self._penstock, api, version, request, until if is_patient else None)
        if until is not None:
            assert until(ours), ours
        if self._kafka is not None and not not_kafka:
            translated = self._translation.request(request)
            theirs = self._ask_until(self._kafka, api, version, translated, until)
            self._compare(f"{name} v{version}", ours, theirs, differs or {})
        if ours is Closed:
            raise Closed
        return ours

    def ask_raw(self, name: str, version: int, body: bytes, *, differs: Mapping[str, str] | None = None) -> Any:
        """The answer to a request whose body may be anything; None if the broker closes the connection instead."""
        api = API_OF_NAME[name]
        ours = self._try(lambda: self._penstock.exchange(api, version, body))
        if (kafka := self._kafka) is not None:
            self._compare(
                f"{name} v{version}", ours, self._try(lambda: kafka.exchange(api, version, body)), differs or {}
            )
        return None if ours is Closed else ours

    def send(self, name: str, version: int, **values: Any) -> None:
        """A request that is not answered."""
        api = API_OF_NAME[name]
        request = message_of(api.request, version, values)
        self._penstock.exchange(api, version, request, has_answer=False)
        if self._kafka is not None:
            self._kafka.exchange(api, version, self._translation.request(request), has_answer=False)

    def begin(self, name: str, version: int, **values: Any) -> Callable[[], Any]:
        """Send a request that may wait, on a connection of its own; the result waits for the answer."""
        api = API_OF_NAME[name]
        request = message_of(api.request, version, values)
        penstock = Link(self._brokers.penstock)
        frame = penstock.send(api, version, request)
        kafka = Link(self._brokers.kafka) if self._brokers.kafka is not None else None
        frame_of_kafka = kafka.send(api, version, self._translation.request(request)) if kafka is not None else b""
        self._more_links += [link for link in (penstock, kafka) if link is not None]

        def answer() -> Any:
            ours = penstock.receive(api, version, frame)
            if kafka is not None:
                self._compare(f"{name} v{version}", ours, kafka.receive(api, version, frame_of_kafka), {})
            return ours

        return answer

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection, or is about to."""
        closed = self._penstock.is_closed()
        if self._kafka is not None and self._kafka.is_closed() != closed:
            self.differences.append(f"closed: ours {closed}, Kafka's {not closed}")
        return closed

    @staticmethod
    def _try(exchange: Callable[[], Any]) -> Any:
        try:
            return exchange()
        except Closed:
            return Closed

    def _ask_until(self, link: Link, api: Api, version: int, request: Any, until: Callable[[Any], bool] | None) -> Any:
        deadline = time.monotonic() + KAFKA_CATCHES_UP_WITHIN_S
        while True:
            answer = self._try(lambda: link.exchange(api, version, request))
            if until is None or until(answer) or time.monotonic() > deadline:
                return answer

    def _compare(self, what: str, ours: Any, theirs: Any, differs: Mapping[str, str]) -> None:
        if ours is Closed or theirs is Closed:
            if ours is not theirs and "closed" not in differs:
                self.differences.append(f"{what}: ours {ours}, Kafka's {theirs}")
            return
        flat = self._translation.flat
        self._translation.learn_member(ours, theirs)
        left, right = flat(ours), flat(theirs, is_ours=False)
        missing: list[str] = []
        for path in dict.fromkeys((*left, *right)):
            if any(path.startswith(each) for each in missing):
                continue
            if path.endswith("#") and (path in left) != (path in right):
                missing.append(path.removesuffix("#"))
            if any(fnmatchcase(path, each) for each in differs):
                continue
            mine, other = left.get(path), right.get(path)
            if not self._translation.equal(path, mine, other):
                self.differences.append(f"{self.about}{what} {path}: ours {mine!r}, Kafka's {other!r}")

    # ── what many tests need ─────────────────────────────────────────────────────────────────────────────────────

    def topic(self, suffix: str = "", *, partitions: int = 1, **configs: str) -> str:
        """A fresh topic, ready for use; settings with `_` for `.`."""
        name = f"{self.prefix}{suffix}"
        self.ask(
            "CreateTopics",
            7,
            differs={"topics[[]*].configs*": "compared by the tests of CreateTopics"},
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
        )
        indexes = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        self.ask(
            "ListOffsets",
            11,
            until=lambda answer: all(part.error_code == Error.NONE for part in answer.topics[0].partitions),
            replica_id=-1,
            topics=[{"name": name, "partitions": indexes}],
        )
        return name

    def topic_id(self, name: str) -> uuid.UUID:
        answer = self.ask("Metadata", 13, topics=[{"name": name}], allow_auto_topic_creation=False)
        found: uuid.UUID = answer.topics[0].topic_id
        return found

    @staticmethod
    def batch(*values: bytes | None, timestamp: int = NOW_MS, step_ms: int = 0, **options: Any) -> bytes:
        """One batch with these values and the keys k0, k1, …"""
        records = [
            Record(number, timestamp + number * step_ms, f"k{number}".encode(), value)
            for number, value in enumerate(values)
        ]
        return build_batch(records, **options)

    @staticmethod
    def keyless(*values: bytes) -> bytes:
        """One batch of records without keys."""
        return build_batch([Record(number, NOW_MS, None, value) for number, value in enumerate(values)])

    def produce(self, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
        """Append batches one by one; their base offsets."""
        offsets = []
        for batch in batches:
            data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
            answer = self.ask("Produce", 9, acks=-1, timeout_ms=10_000, topic_data=data)
            part = answer.responses[0].partition_responses[0]
            assert part.error_code == Error.NONE, part
            offsets.append(part.base_offset)
        return offsets


# ── the brokers ──────────────────────────────────────────────────────────────────────────────────────────────────


SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "message.max.bytes": "200000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.segment.delete.delay.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
#: What `penstock up` does of its own accord, and a quick stop.
KAFKA_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "controlled.shutdown.enable": "false"}


def apache_kafka(libs: Path, folder: Path, settings: Mapping[str, str]) -> ApacheKafka:
    return ApacheKafka(libs, folder, settings={**KAFKA_SETTINGS, **settings})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Beside Kafka, the newest version of each test is for every day, and all the others for the long run."""
    versions: dict[str, set[int]] = {}
    beside = [item for item in items if isinstance(item, pytest.Function) and "beside-kafka" in item.name]
    for item in beside:
        versions.setdefault(item.nodeid.partition("[")[0], set()).add(_version_of(item))
    for item in beside:
        if _version_of(item) < max(versions[item.nodeid.partition("[")[0]]):
            item.add_marker(pytest.mark.slow)


def _version_of(item: pytest.Function) -> int:
    parameters = item.callspec.params
    return int(parameters.get("version", parameters.get("fetcher", 0)))


@pytest.fixture(scope="session")
def penstock_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with BrokerProcess(tmp_path_factory.mktemp("penstock") / "data", settings=SETTINGS) as broker:
        yield broker.host, broker.port


@pytest.fixture(scope="session")
def kafka_address(tmp_path_factory: pytest.TempPathFactory, kafka_libs: Path) -> Iterator[tuple[str, int]]:
    if named := os.environ.get("PENSTOCK_TEST_KAFKA"):
        host, _, port = named.rpartition(":")
        yield host, int(port)
        return
    with apache_kafka(kafka_libs, tmp_path_factory.mktemp("kafka"), SETTINGS) as kafka:
        yield kafka.host, kafka.port


@pytest.fixture
def now_ms() -> int:
    return NOW_MS


@pytest.fixture(scope="session")
def penstock_alone(penstock_address: tuple[str, int]) -> Brokers:
    return Brokers(penstock_address)


@pytest.fixture(scope="session")
def penstock_beside_kafka(penstock_address: tuple[str, int], kafka_address: tuple[str, int]) -> Brokers:
    return Brokers(penstock_address, kafka_address)


STRICT_SETTINGS = {**SETTINGS, "auto.create.topics.enable": "false", "delete.topic.enable": "false"}


@pytest.fixture(scope="module")
def strict_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with BrokerProcess(tmp_path_factory.mktemp("penstock") / "data", settings=STRICT_SETTINGS) as broker:
        yield Brokers((broker.host, broker.port))


@pytest.fixture(scope="module")
def strict_brokers_beside_kafka(
    strict_brokers: Brokers, tmp_path_factory: pytest.TempPathFactory, kafka_libs: Path
) -> Iterator[Brokers]:
    with apache_kafka(kafka_libs, tmp_path_factory.mktemp("kafka"), STRICT_SETTINGS) as kafka:
        yield Brokers(strict_brokers.penstock, (kafka.host, kafka.port))


@pytest.fixture(params=["penstock", pytest.param("beside-kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
def strict_client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of brokers that neither create topics on demand nor delete any."""
    fixture = "strict_brokers" if request.param == "penstock" else "strict_brokers_beside_kafka"
    made = Client(request.getfixturevalue(fixture))
    yield made
    made.close()
    assert not made.differences, "\n".join(["Penstock differs from Kafka:", *made.differences])


@pytest.fixture(params=["penstock", pytest.param("beside-kafka", marks=pytest.mark.kafka)])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of Penstock, or of Penstock and Kafka; fails if their answers differed."""
    fixture = "penstock_alone" if request.param == "penstock" else "penstock_beside_kafka"
    made = Client(request.getfixturevalue(fixture))
    yield made
    made.close()
    assert not made.differences, "\n".join(["Penstock differs from Kafka:", *made.differences])
