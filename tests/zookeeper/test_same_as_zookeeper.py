"""The same requests to the keeper and to Apache ZooKeeper, byte for byte on the wire, get the same answers.

What must differ is made the same first: transaction numbers are counted from the beginning of a script, times and the
ids of sessions are named by the order in which they appear. A script has its own znode on both servers.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.raw_zookeeper import Answer, ConnectionEnded, RawZooKeeper
from penstock.testing.zookeeper_processes import ApacheZooKeeper, KeeperProcess, ask
from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.multi import MultiHeader
from penstock.zookeeper.operations import ANYONE, OPEN_ACL, Acl, Identity, Stat
from penstock.zookeeper.protocol import (
    ANSWERS,
    AUTH_XID,
    SET_WATCHES_XID,
    AclStat,
    AuthPacket,
    Children,
    CreateRequest,
    CreateTtlRequest,
    DataStat,
    Nothing,
    Number,
    OnlyPath,
    OnlyStat,
    Op,
    PathMode,
    PathStat,
    PathVersion,
    PathWatch,
    SetAclRequest,
    SetDataRequest,
    SetWatches,
    SetWatches2,
)

pytestmark = pytest.mark.zookeeper

ALL = 31
READ_ONLY = (Acl(1, ANYONE),)
OF_USER = (Acl(ALL, Identity("auth", "")),)
READABLE = (Acl(1, ANYONE), Acl(ALL, Identity("digest", "u:h")))
BAD_ACLS: tuple[tuple[Acl, ...], ...] = (
    (),
    *(
        (Acl(ALL, Identity(scheme, name)),)
        for scheme, name in [
            ("digest", ""),
            ("digest", "a"),
            ("digest", "a:"),
            ("digest", ":"),
            ("world", "x"),
            ("ip", "x"),
            ("x509", "q"),
            ("super", ""),
            ("", ""),
        ]
    ),
)
GOOD_ACLS: tuple[tuple[Acl, ...], ...] = (
    OPEN_ACL,
    OPEN_ACL + OPEN_ACL,
    READ_ONLY,
    READABLE,
    (Acl(0, ANYONE), Acl(16, ANYONE)),
    (Acl(99, ANYONE),),
    *((Acl(ALL, Identity("digest", name)), Acl(25, ANYONE)) for name in ("a:b", "a:b:", ":b")),
    (Acl(ALL, Identity("ip", "127.0.0.1")),),
)


class Names:
    """What differs between two servers, named by the order of its appearance."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], str] = {}

    def of(self, kind: str, value: int) -> str:
        return self._names.setdefault((kind, value), f"{kind}{len(self._names)}") if value else "0"


class Side:
    """One server: its connections, and a znode for this script alone."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.root = f"/t-{uuid.uuid4().hex}"
        self.names = Names()
        self.connections: list[RawZooKeeper] = []
        setup = self.connect()
        setup.ask(Op.CREATE, CreateRequest(self.root, b"", OPEN_ACL, 0))

    def connect(self, **options: Any) -> RawZooKeeper:
        connection = RawZooKeeper(self.port)
        self.connections.append(connection)
        connection.connect(**options)
        return connection

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    # What is told to the server, and what it tells, without what is this side's own

    def full(self, path: str) -> str:
        return self.root + path if path.startswith("/") and path != "/" else (self.root if path == "/" else path)

    def shown(self, value: Any) -> Any:
        match value:
            case Stat():
                return value._replace(
                    czxid=0,
                    mzxid=value.mzxid == value.czxid,
                    pzxid=(value.pzxid == value.czxid, value.pzxid > value.mzxid),
                    ctime_ms=0,
                    mtime_ms=value.mtime_ms >= value.ctime_ms,
                    ephemeral_owner=self.names.of("session", value.ephemeral_owner),
                )
            case str():
                return value.replace(self.root, "") or "/"
            case list():
                return sorted(self.shown(each) for each in value)
            case tuple() if not isinstance(value, Acl):
                return tuple(self.shown(each) for each in value)
            case _:
                return value

    def answer(self, connection: RawZooKeeper, op: int, answer: Answer) -> Any:
        error = answer.header.error
        if op in (Op.MULTI, Op.MULTI_READ) and answer.body:
            return error, self.results(answer.body)
        if error or op not in ANSWERS:
            return error, answer.body
        return error, self.shown(answer.record(ANSWERS[Op(op)]))

    def results(self, body: bytes) -> list[Any]:
        kinds = {
            Op.CREATE: OnlyPath,
            Op.CREATE2: PathStat,
            Op.SET_DATA: OnlyStat,
            Op.DELETE: Nothing,
            Op.CHECK: Nothing,
            Op.ERROR: Number,
            Op.GET_DATA: DataStat,
            Op.GET_CHILDREN: Children,
        }
        reader, found = Reader(body), []
        while not (header := read_record(MultiHeader, reader)).done:
            found.append((header, self.shown(read_record(kinds[Op(header.type)], reader))))
        assert reader.is_at_end
        return found

    def events(self, connection: RawZooKeeper) -> list[Any]:
        return [(event.type, event.state, self.shown(event.path)) for event in connection.settle()]


@pytest.fixture
def sides(apache_zookeeper: ApacheZooKeeper, keeper_process: KeeperProcess) -> Iterator[list[Side]]:
    made = [Side(apache_zookeeper.port), Side(keeper_process.port)]
    yield made
    for side in made:
        side.close()


def same(sides: list[Side], what: Callable[[Side], Any], note: object = "") -> Any:
    """Do it on both sides; the outcome, which must be the same."""
    outcomes = []
    for side in sides:
        try:
            outcomes.append(what(side))
        except ConnectionEnded:
            outcomes.append("the connection was ended")
    assert outcomes[0] == outcomes[1], f"Apache ZooKeeper and then the keeper, asked for {note}"
    return outcomes[0]


def same_asked(sides: list[Side], pair: list[RawZooKeeper], op: int, record: Any, note: object = "") -> Any:
    """One request on a connection to each side."""
    return same(sides, lambda side: perform(side, pair[sides.index(side)], op, record), note or (op, record))


def same_events(sides: list[Side], pair: list[RawZooKeeper], note: object) -> None:
    same(sides, lambda side: side.events(pair[sides.index(side)]), note)


def multi_body(operations: list[tuple[int, Any]]) -> bytes:
    out = bytearray()
    for op, record in operations:
        write_record(MultiHeader(op, False, -1), out)
        write_record(record, out)
    write_record(MultiHeader(-1, True, -1), out)
    return bytes(out)


def create(path: str, flags: int = 0, op: int = Op.CREATE2, acl: tuple[Acl, ...] = OPEN_ACL) -> tuple[int, Any]:
    return op, CreateRequest(path, b"x", acl, flags)


def asked(side: Side, connection: RawZooKeeper, op: int, record: Any) -> Any:
    """One request whose paths are below the script's znode."""
    moved = record._replace(path=side.full(record.path)) if hasattr(record, "path") else record
    return side.answer(connection, op, connection.ask(op, moved))


# ── what a script can ask for ────────────────────────────────────────────────────────────────────────────────────────

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/c")


def draw_write(draw: random.Random) -> tuple[int, Any]:
    path = draw.choice(PATHS)
    version = draw.choice([-1, -1, -1, 0, 1, 2])
    match draw.randrange(9):
        case 0 | 1 | 2 | 3:
            op = draw.choice([Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER])
            flags = draw.choice([0, 0, 0, 1, 1, 2, 3, 4]) if op is not Op.CREATE_CONTAINER else 4
            return op, CreateRequest(path, draw.randbytes(draw.randrange(20)), OPEN_ACL, flags)
        case 4 | 5:
            return Op.DELETE, PathVersion(path, version)
        case 6 | 7:
            return Op.SET_DATA, SetDataRequest(path, draw.randbytes(draw.randrange(20)), version)
        case _:
            return Op.CHECK, PathVersion(path, version)


def draw_request(draw: random.Random) -> tuple[int, Any]:
    path = draw.choice((*PATHS, "/"))
    watch = draw.random() < 0.5
    match draw.randrange(14):
        case 0 | 1 | 2 | 3 | 4:
            op, record = draw_write(draw)
            return (Op.EXISTS, PathWatch(path, watch)) if op == Op.CHECK else (op, record)  # its own answer is a bug
        case 5 | 6:
            return Op.MULTI, [draw_write(draw) for _ in range(draw.randrange(1, 4))]
        case 7:
            return Op.GET_DATA, PathWatch(path, watch)
        case 8:
            return Op.EXISTS, PathWatch(path, watch)
        case 9:
            return draw.choice([Op.GET_CHILDREN, Op.GET_CHILDREN2]), PathWatch(path, watch)
        case 10:
            return draw.choice([Op.GET_ACL, Op.SYNC, Op.GET_EPHEMERALS, Op.GET_ALL_CHILDREN_NUMBER]), OnlyPath(path)
        case 11:
            return Op.REMOVE_WATCHES, PathMode(path, draw.randrange(1, 4))  # 3.8 counts others' at CHECK_WATCHES
        case 12:
            return Op.SET_ACL, SetAclRequest(path, draw.choice(GOOD_ACLS[:3]), draw.choice([-1, 0, 1]))
        case _:
            return Op.MULTI_READ, [
                (draw.choice([Op.GET_DATA, Op.GET_CHILDREN]), PathWatch(draw.choice(PATHS), False)) for _ in range(3)
            ]


def perform(side: Side, connection: RawZooKeeper, op: int, request: Any) -> Any:
    if isinstance(request, list):
        moved = [(kind, record._replace(path=side.full(record.path))) for kind, record in request]
        connection.send_body(op, multi_body(moved))
        return side.answer(connection, op, connection.answer())
    return asked(side, connection, op, request)


@pytest.mark.parametrize("seed", range(8))
def test_random_scripts(sides: list[Side], seed: int, is_long: bool) -> None:
    """Three sessions, one after the other, with their watches; now and then one closes, or comes again."""
    draw = random.Random(seed)
    clients = [[side.connect() for side in sides] for _ in range(3)]
    for step in range(1500 if is_long else 150):
        number = draw.randrange(3)
        pair = clients[number]
        op, request = draw_request(draw)
        chance = draw.random()
        if chance < 0.02:
            same_asked(sides, pair, Op.CLOSE, Nothing())
            clients[number] = [side.connect() for side in sides]
            continue
        if chance < 0.04:
            clients[number] = [come_again(side, old) for side, old in zip(sides, pair, strict=True)]
            continue
        same_asked(sides, pair, op, request, (seed, step, Op(op), request))
        for watching in clients:
            same_events(sides, watching, (seed, step, "events", Op(op), request))


def come_again(side: Side, old: RawZooKeeper) -> RawZooKeeper:
    old.close()
    _, _, session_id, password = old.session
    connection = side.connect(session_id=session_id, password=password)
    assert connection.session.session_id == session_id
    return connection


@pytest.mark.parametrize("seed", range(4))
def test_persistent_watches_in_random_scripts(sides: list[Side], seed: int, is_long: bool) -> None:
    """Watches that stay, on paths where no others are left: 3.8 lets those override each other."""
    draw = random.Random(seed)
    watcher, writer = [[side.connect() for side in sides] for _ in range(2)]
    modes: dict[str, int] = {}
    for step in range(1000 if is_long else 120):
        path = draw.choice((*PATHS, "/"))
        if draw.random() < 0.1:
            mode = modes.setdefault(path, draw.randrange(2))
            request: tuple[int, Any] = (Op.ADD_WATCH, PathMode(path, mode))
            pair = watcher
        elif draw.random() < 0.1:
            request = (draw.choice([Op.CHECK_WATCHES, Op.REMOVE_WATCHES]), PathMode(path, draw.randrange(1, 4)))
            pair = watcher
        else:
            op, record = draw_write(draw)
            request = (op, record) if op != Op.CHECK else (Op.SYNC, OnlyPath("/"))
            pair = writer
        same_asked(sides, pair, *request, (seed, step, request))
        same_events(sides, watcher, (seed, step, "events", request))


# ── every corner once ────────────────────────────────────────────────────────────────────────────────────────────────


def test_ways_to_create(sides: list[Side]) -> None:
    pair = [side.connect() for side in sides]

    def do(op: int, record: Any) -> Any:
        return same_asked(sides, pair, op, record)

    for op in (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER):
        for flags in range(-1, 9):
            do(op, CreateRequest(f"/{op}-{flags}-", b"", OPEN_ACL, flags))
            do(Op.EXISTS, PathWatch(f"/{op}-{flags}-", False))
            do(op, CreateRequest(f"/{op}-{flags}-/below", b"", OPEN_ACL, flags))
    do(Op.CREATE_TTL, CreateTtlRequest("/ttl", b"", OPEN_ACL, 5, 1000))
    do(Op.CREATE_TTL, CreateTtlRequest("/ttl", b"", OPEN_ACL, 6, -1))
    do(Op.CREATE_TTL, CreateTtlRequest("/ttl", b"", OPEN_ACL, 0, 1000))
    do(Op.GET_EPHEMERALS, OnlyPath("/"))
    do(Op.GET_ALL_CHILDREN_NUMBER, OnlyPath("/"))


@pytest.mark.parametrize(
    "path", ["a", "//", "/a/", "/a//b", "/a/../b", "/a\0b", "/there/", "/nope/x", "/a/.", "/a\x01"]
)
def test_paths_that_are_none(sides: list[Side], path: str) -> None:
    pair = [side.connect() for side in sides]

    def do(op: int, record: Any) -> None:
        same_asked(sides, pair, op, record)

    do(*create("/there"))
    for op, record in [
        create(path),
        create(path, 2),
        (Op.DELETE, PathVersion(path, -1)),
        (Op.SET_DATA, SetDataRequest(path, b"", -1)),
        (Op.SET_ACL, SetAclRequest(path, OPEN_ACL, -1)),
        (Op.GET_DATA, PathWatch(path, False)),
        (Op.EXISTS, PathWatch(path, True)),
        (Op.GET_CHILDREN2, PathWatch(path, False)),
        (Op.GET_ACL, OnlyPath(path)),
        (Op.SYNC, OnlyPath(path)),
        (Op.GET_EPHEMERALS, OnlyPath(path)),
        (Op.GET_ALL_CHILDREN_NUMBER, OnlyPath(path)),
        (Op.ADD_WATCH, PathMode(path, 0)),
    ]:
        do(op, record)


def test_multis_that_fail(sides: list[Side]) -> None:
    pair = [side.connect() for side in sides]
    ttl = (Op.CREATE_TTL, CreateTtlRequest("/t", b"", OPEN_ACL, 5, 1000))
    cases: list[list[tuple[int, Any]]] = [
        [],
        [
            create("/1"),
            create("/2", 0, Op.CREATE),
            create("/3", 4, Op.CREATE_CONTAINER),
            (Op.DELETE, PathVersion("/1", 0)),
        ],
        [create("/4", 0, Op.CREATE_CONTAINER), (Op.CHECK, PathVersion("/4", 0))],
        [create("/5"), create("/2"), create("/6")],
        [create("/5"), create("/6", 5), create("/7")],
        [create("/5"), create("/6", 9), create("/7")],
        [create("/2"), create("/6", 9), create("/7")],
        [create("/5"), create("6"), create("/7")],
        [create("/5", acl=()), create("/6")],
        [create("/5"), ttl, create("/6")],
        [(Op.GET_DATA, PathWatch("/2", False))],
        [(Op.SET_ACL, SetAclRequest("/2", OPEN_ACL, -1))],
        [(77, PathVersion("/2", 0))],
        [create("/e", 1), create("/e/x"), create("/7")],
        [create("/s-", 2), create("/s-", 2), (Op.SET_DATA, SetDataRequest("/none", b"", -1))],
        [create("/s-", 2)],
    ]
    for case in cases:
        same_asked(sides, pair, Op.MULTI, case)
    for path in (*(f"/{number}" for number in range(1, 8)), "/e"):
        same_asked(sides, pair, Op.EXISTS, PathWatch(path, False))
    for reads in ([], [(Op.GET_CHILDREN2, PathWatch("/2", False))]):
        same_asked(sides, pair, Op.MULTI_READ, reads)


def test_access_control(sides: list[Side]) -> None:
    owner, other = [[side.connect() for side in sides] for _ in range(2)]

    def do(pair: list[RawZooKeeper], op: int, record: Any) -> Any:
        return same_asked(sides, pair, op, record)

    for acl in (*BAD_ACLS, *GOOD_ACLS, OF_USER):
        do(owner, Op.CREATE, CreateRequest("/acl", b"x", acl, 0))
        for pair in (owner, other):
            do(pair, Op.GET_ACL, OnlyPath("/acl"))
            do(pair, Op.GET_DATA, PathWatch("/acl", False))
            do(pair, Op.GET_CHILDREN, PathWatch("/acl", False))
            do(pair, Op.SET_DATA, SetDataRequest("/acl", b"y", -1))
            do(pair, Op.CREATE, CreateRequest("/acl/child", b"", OPEN_ACL, 0))
            do(pair, Op.DELETE, PathVersion("/acl/child", -1))
            do(pair, Op.SET_ACL, SetAclRequest("/acl", acl, 0))
        do(owner, Op.DELETE, PathVersion("/acl", -1))
    for connection in owner:
        connection.send(Op.AUTH, AuthPacket(0, "digest", b"me:secret"), xid=AUTH_XID)
        assert connection.answer().header == (AUTH_XID, 0, 0)
    do(owner, Op.CREATE, CreateRequest("/mine", b"x", (*OF_USER, Acl(1, ANYONE)), 0))
    for pair in (owner, other):
        for op, record in [
            (Op.GET_ACL, OnlyPath("/mine")),
            (Op.SET_DATA, SetDataRequest("/mine", b"z", -1)),
            (Op.CREATE, CreateRequest("/mine/child", b"", OPEN_ACL, 0)),
            (Op.GET_ALL_CHILDREN_NUMBER, OnlyPath("/mine")),
        ]:
            do(pair, op, record)
    do(other, Op.DELETE, PathVersion("/mine/child", -1))
    same(sides, lambda side: sorted(read_who(owner[sides.index(side)])))


def read_who(connection: RawZooKeeper) -> list[tuple[str, str]]:
    reader = Reader(connection.ask(Op.WHO_AM_I).body)
    return [(reader.string(), reader.string()) for _ in range(reader.count())]


@pytest.mark.parametrize(
    "packet",
    [("digest", b"a:b"), ("digest", b"ab"), ("digest", b""), ("nope", b"x"), ("world", b"anyone"), ("ip", b"1")],
)
def test_authentication(sides: list[Side], packet: tuple[str, bytes]) -> None:
    def prove(side: Side) -> Any:
        connection = side.connect()
        connection.send(Op.AUTH, AuthPacket(0, *packet), xid=AUTH_XID)
        answer = connection.answer()
        return answer, connection.has_ended() if answer.header.error else False

    same(sides, prove, packet)


@pytest.mark.parametrize(
    "body", [b"", b"\0\0\0\x05ab", b"\xff\xff\xff\xf0ab", b"\xff\xff\xff\xff\0\0\0\0", b"\x7f\xff\xff\xff"]
)
def test_requests_that_cannot_be_read(sides: list[Side], body: bytes) -> None:
    for op in (Op.GET_DATA, Op.CREATE, Op.DELETE, Op.SET_DATA, Op.EXISTS, Op.MULTI, Op.SET_WATCHES):

        def send(side: Side, op: Op = op) -> Any:
            connection = side.connect()
            connection.send_body(op, body)
            first = connection.answer()
            return first.header.error, asked(side, connection, Op.EXISTS, PathWatch("/", False))[0]

        same(sides, send, (op, body))


def test_sizes_and_operations_that_end_the_connection(sides: list[Side]) -> None:
    for size in (-1, 0, 2, (1 << 20) - 1, 1 << 20, (1 << 31) - 1):

        def send_size(side: Side, size: int = size) -> Any:
            connection = side.connect()
            count = size if 0 <= size < 1 << 20 else 4
            connection.send_bytes(
                size.to_bytes(4, "big", signed=True) + b"\0\0\0\x01\0\0\0\x0b".ljust(count, b"\0")[:count]
            )
            return connection.answer().header.error

        same(sides, send_size, size)
    for op in (0, 10, 50, 99, 200, -5):

        def send_op(side: Side, op: int = op) -> Any:
            connection = side.connect()
            return connection.ask(op, OnlyPath("/")).header.error, connection.has_ended()

        same(sides, send_op, op)


def test_sessions(sides: list[Side]) -> None:
    for timeout_ms in (0, -5, 100, 7000, 1 << 30):
        same(sides, lambda side, asked_ms=timeout_ms: side.connect(timeout_ms=asked_ms).session.timeout_ms, timeout_ms)

    def wrong(side: Side) -> Any:
        refused = []
        known = side.connect().session.session_id
        for session_id in (known, 12345):
            connection = side.connect(session_id=session_id)
            refused.append((connection.session, connection.has_ended()))
        return refused

    def moved(side: Side) -> Any:
        first = side.connect()
        first.ask(Op.CREATE, CreateRequest(side.full("/e"), b"", OPEN_ACL, 1))
        second = side.connect(timeout_ms=4000, session_id=first.session.session_id, password=first.session.password)
        found = asked(side, second, Op.EXISTS, PathWatch("/e", False))
        return second.session.timeout_ms, first.has_ended(), found

    def closed(side: Side) -> Any:
        connection = side.connect()
        connection.ask(Op.CREATE, CreateRequest(side.full("/closing"), b"", OPEN_ACL, 1))
        connection.send(Op.CLOSE)
        connection.send(Op.CREATE, CreateRequest(side.full("/after"), b"", OPEN_ACL, 0))
        first = connection.answer().header.error
        ended = connection.has_ended()
        again = side.connect(session_id=connection.session.session_id, password=connection.session.password)
        left = [asked(side, side.connections[0], Op.EXISTS, PathWatch(path, False)) for path in ("/closing", "/after")]
        return first, ended, again.session.timeout_ms, left

    def from_the_future(side: Side) -> Any:
        return side.connect(last_zxid_seen=1 << 60)

    for what in (wrong, moved, closed, from_the_future):
        same(sides, what, what.__name__)


def test_session_expires_and_its_ephemeral_znodes_with_it(sides: list[Side]) -> None:
    def expire(side: Side) -> Any:
        silent = side.connect(timeout_ms=600)
        silent.ask(Op.CREATE, CreateRequest(side.full("/e"), b"", OPEN_ACL, 1))
        watcher = side.connect()
        watcher.ask(Op.EXISTS, PathWatch(side.full("/e"), True))
        ended = silent.has_ended()
        again = side.connect(session_id=silent.session.session_id, password=silent.session.password)
        return ended, again.session, side.events(watcher)

    same(sides, expire)


def test_containers_that_apache_zookeeper_removes(apache_zookeeper: ApacheZooKeeper, tmp_path: Path) -> None:
    """The rule that the keeper follows too, which is tested in simulated time: used, and empty."""
    with ApacheZooKeeper(tmp_path / "server", container_check_ms=200) as server:
        side = Side(server.port)
        connection = side.connections[0]
        for path in ("/never-used", "/full", "/empty"):
            asked(side, connection, *create(path, 4, Op.CREATE_CONTAINER))
        for path in ("/full/x", "/empty/x"):
            asked(side, connection, *create(path))
        asked(side, connection, Op.DELETE, PathVersion("/empty/x", -1))
        while asked(side, connection, Op.EXISTS, PathWatch("/empty", False))[0] == 0:
            pass
        assert asked(side, connection, Op.GET_CHILDREN, PathWatch("/", False)) == (0, (["full", "never-used"],))
        side.close()


def test_watches_that_are_set_again(sides: list[Side]) -> None:
    def again(side: Side) -> Any:
        first = side.connect()
        for path in ("/same", "/changed", "/gone", "/parent", "/kept"):
            first.ask(Op.CREATE, CreateRequest(side.full(path), b"", OPEN_ACL, 0))
        zxid = first.ask(Op.EXISTS, PathWatch(side.full("/same"), False)).header.zxid
        first.ask(Op.SET_DATA, SetDataRequest(side.full("/changed"), b"", -1))
        first.ask(Op.DELETE, PathVersion(side.full("/gone"), -1))
        first.ask(Op.CREATE, CreateRequest(side.full("/parent/child"), b"", OPEN_ACL, 0))
        first.ask(Op.CREATE, CreateRequest(side.full("/born"), b"", OPEN_ACL, 0))
        told = []
        for record in (
            SetWatches(
                zxid,
                [side.full(path) for path in ("/same", "/changed", "/gone")],
                [side.full(path) for path in ("/born", "/unborn")],
                [side.full(path) for path in ("/parent", "/kept", "/gone")],
            ),
            SetWatches2(zxid, [side.full("/changed")], [], [], [side.full("/kept")], [side.full("/same")]),
        ):
            connection = side.connect()
            connection.send(Op.SET_WATCHES if len(record) == 4 else Op.SET_WATCHES2, record, xid=SET_WATCHES_XID)
            answer = connection.answer()
            told.append((answer.header.xid, answer.header.error, sorted(side.events(connection))))
            for path in ("/same", "/kept", "/unborn"):
                first.ask(Op.CREATE, CreateRequest(side.full(f"{path}/x"), b"", OPEN_ACL, 0))
                first.ask(Op.SET_DATA, SetDataRequest(side.full(path), b"", -1))
                first.ask(Op.CREATE, CreateRequest(side.full(path), b"", OPEN_ACL, 0))
            first.ask(Op.DELETE, PathVersion(side.full("/unborn"), -1))
            told.append(side.events(connection))
        return told

    same(sides, again)


def test_kinds_of_watches_that_do_not_exist(sides: list[Side]) -> None:
    pair = [side.connect() for side in sides]
    for op, modes in [(Op.ADD_WATCH, (-1, 2)), (Op.CHECK_WATCHES, (0, 6)), (Op.REMOVE_WATCHES, (0, 6))]:
        for mode in modes:
            same_asked(sides, pair, op, PathMode("/", mode))


def test_acls_are_shown_alike(sides: list[Side]) -> None:
    for acl in GOOD_ACLS:

        def shown(side: Side, acl: tuple[Acl, ...] = acl) -> Any:
            connection = side.connections[0]
            path = side.full(f"/{uuid.uuid4().hex}")
            connection.ask(Op.CREATE, CreateRequest(path, b"", acl, 0))
            answer = connection.ask(Op.GET_ACL, OnlyPath(path))
            return answer.header.error or answer.record(AclStat).acl

        same(sides, shown, acl)


def test_four_letter_words(sides: list[Side]) -> None:
    assert same(sides, lambda side: ask(side.port, b"ruok")) == b"imok"
    lines = [ask(side.port, b"srvr").decode().splitlines() for side in sides]
    names = [{line.partition(":")[0] for line in each} for each in lines]
    assert names[1] <= names[0]
    assert all("Mode: standalone" in each for each in lines)
