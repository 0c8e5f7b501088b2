"""The durable store: crashed at every disk operation, with lost and torn writes; group commit; errors of the disk."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.testing.sim_disk import Crashed, Operation, SimDisk
from penstock.zookeeper import operations as ops
from penstock.zookeeper.errors import ConnectionLossError, StorageFullError
from penstock.zookeeper.journal import JournalCorruptError
from penstock.zookeeper.operations import Create, Delete, SetData
from penstock.zookeeper.store import Store, Watcher
from penstock.zookeeper.tree import Tree
from penstock.zookeeper.tree_snapshot import encode_tree

FOLDER = "/data/keeper"


class FixedClock:
    def wall_ms(self) -> int:
        return 1000

    def monotonic(self) -> float:
        return 1.0


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.delays_s = dict.fromkeys(disk.delays_s, (0.0, 0.0))
    return disk


def open_store(disk: SimDisk) -> Store:
    return Store.open(disk, FixedClock(), FOLDER)


class Workload:
    """Transactions, some alone and some together, over two rounds of the journal; remembers what was answered."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.answered_zxid = 0
        self.states: dict[int, bytes] = {0: encode_tree(Tree())}

    async def run(self) -> None:
        for restart in range(2):
            store = open_store(self.disk)
            store.journal_size_bytes_max = 1500
            session_id = store.tree.last_zxid + 1
            await self.submit(store, ops.OpenSession(session_id, 1000))
            await self.submit(store, ops.Write(session_id, (Create(f"/r{restart}"), Create("/e", ephemeral=True))))
            answers = []
            for number in range(14):
                write = Create(f"/r{restart}/n", bytes([number]) * 90, sequential=True)
                answers.append(asyncio.ensure_future(self.submit(store, ops.Write(session_id, (write,)))))
                for _ in range(number % 3):
                    await asyncio.sleep(0)  # so that some come while a sync or a snapshot is under way
            await asyncio.gather(*answers)
            await self.submit(store, ops.Write(session_id, (Delete(f"/r{restart}/n{0:010d}"), SetData("/e", b"x"))))
            await self.submit(store, ops.CloseSession(session_id))
            await store.close()

    async def submit(self, store: Store, transaction: ops.Transaction) -> None:
        answer = store.submit(transaction)
        zxid = store.tree.last_zxid
        self.states[zxid] = encode_tree(store.tree)
        await answer
        self.answered_zxid = max(self.answered_zxid, zxid)


def run_until_stopped(disk: SimDisk, work: Coroutine[Any, Any, None]) -> None:
    """Run until it is done or the disk stops; what then still waits will never be answered."""

    async def main() -> None:
        stopped = asyncio.Event()
        disk.device.on_stop = stopped.set
        task, watch = asyncio.ensure_future(work), asyncio.ensure_future(stopped.wait())
        await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not isinstance(error := task.exception(), Crashed) and error is not None:
            raise error

    asyncio.run(main())
    disk.device.on_stop = None


def crash_images(disk: SimDisk, seed: int) -> list[SimDisk]:
    chance = random.Random(seed)
    pending = [change.number for change in disk.pending()]
    lost = [chance.sample(pending, chance.randint(0, len(pending))) for _ in range(3)]
    images = [disk.after_crash(lost="all"), disk.after_crash(lost="none")]
    images += [disk.after_crash(lost=set(some)) for some in lost]
    images += [disk.after_crash(lost="none", torn=size) for size in (0, 1, chance.randint(2, 400))]
    images += [disk.after_crash(lost={number}) for number in pending]
    return images


def check_recovered(disk: SimDisk, workload: Workload) -> None:
    store = open_store(disk)
    zxid = store.tree.last_zxid
    assert zxid >= workload.answered_zxid
    assert encode_tree(store.tree) == workload.states[zxid]
    again = open_store(disk.after_crash(lost="all"))
    assert encode_tree(again.tree) == workload.states[zxid]


def go_on(workload: Workload) -> None:
    """One more transaction after a recovery."""

    async def main() -> None:
        store = open_store(workload.disk)
        await workload.submit(store, ops.OpenSession(99, 1000))

    asyncio.run(main())


def test_nothing_answered_is_lost_at_any_crash() -> None:
    whole = Workload(new_disk())
    run_until_stopped(whole.disk, whole.run())
    assert any(name.startswith("snapshot.") for name in whole.disk.list_dir(FOLDER))
    for number in range(1, whole.disk.operations_count + 1):
        workload = Workload(new_disk())
        workload.disk.stop_at(number)
        run_until_stopped(workload.disk, workload.run())
        assert workload.states.items() <= whole.states.items()
        for image in crash_images(workload.disk, number):
            check_recovered(image, workload)
        workload.disk.kill()
        check_recovered(workload.disk, workload)
        workload.disk.kill()
        go_on(workload)
        for image in crash_images(workload.disk, number):
            check_recovered(image, workload)


def test_transactions_that_wait_share_a_sync() -> None:
    disk = new_disk()
    syncs: list[Operation] = []

    async def main() -> None:
        store = open_store(disk)
        session_id = await store.open_session(1000)
        disk.device.before_operation = lambda operation: syncs.append(operation) if operation.kind == "sync" else None
        await asyncio.gather(
            *(store.submit(ops.Write(session_id, (Create("/n", sequential=True),))) for _ in range(100))
        )
        await store.close()

    asyncio.run(main())
    assert len(syncs) <= 2


def test_a_read_waits_until_what_it_saw_is_durable() -> None:
    disk = new_disk()

    async def main() -> None:
        store = open_store(disk)
        session_id = await store.open_session(1000)
        write = store.submit(ops.Write(session_id, (Create("/a"),)))
        stat = await store.read(lambda tree: tree.exists("/a"))
        assert stat is not None
        assert write.done()
        refused = store.submit(ops.Write(session_id, (Create("/a"),)))
        assert refused.done()
        assert refused.exception() is not None
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_an_error_of_the_disk_stops_the_store(kind: str) -> None:
    disk = new_disk()
    stopped: list[Exception] = []

    async def main() -> None:
        store = open_store(disk)
        store.on_stopped.append(stopped.append)
        session_id = await store.open_session(1000)
        disk.fail_when(lambda operation: operation.kind == kind, OSError(5, "gone"))
        waiting = [store.submit(ops.Write(session_id, (Create(f"/{name}"),))) for name in "abc"]
        reading = asyncio.ensure_future(store.read(lambda tree: tree.exists("/a")))
        for answer in [*waiting, reading]:
            with pytest.raises(ConnectionLossError):
                await answer
        with pytest.raises(ConnectionLossError):
            store.submit(ops.Write(session_id, (Create("/d"),)))
        await store.close()

    asyncio.run(main())
    assert isinstance(stopped[0], OSError)
    assert len([change for change in disk.pending() if change.kind == "write"]) <= 1


def test_one_folder_has_one_owner() -> None:
    disk = new_disk()
    store = open_store(disk)
    with pytest.raises(BlockingIOError):
        open_store(disk.for_process())
    asyncio.run(store.close())
    asyncio.run(open_store(disk).close())


def test_a_journal_that_does_not_fit_is_refused_and_the_folder_let_go() -> None:
    disk = new_disk()
    asyncio.run(open_store(disk).close())
    path = f"{FOLDER}/journal.{0:016x}"
    for entries in (
        [ops.JournalEntry(2, 0, ops.OpenSession(1, 1000))],
        [ops.JournalEntry(1, 0, ops.CloseSession(1))],
    ):
        image = disk.after_crash(lost="none")
        store = open_store(image)
        store._journal.append(ops.encode_entries(entries))
        asyncio.run(store.close())
        assert image.file_size(path) > 16
        for _ in range(2):
            with pytest.raises(JournalCorruptError):
                open_store(image)


def test_a_cancelled_caller_disturbs_nobody() -> None:
    async def main() -> None:
        store = open_store(new_disk())
        session_id = await store.open_session(1000)
        first = store.submit(ops.Write(session_id, (Create("/a"),)))
        second = store.submit(ops.Write(session_id, (Create("/b"),)))
        first.cancel()
        await second
        assert await store.read(lambda tree: tree.children("/")[0]) == ["a", "b"]
        await store.close()

    asyncio.run(main())


# ── a disk without room ──────────────────────────────────────────────────────────────────────────────────────────


def no_room(disk: SimDisk, kind: str, name: str, *, times: int = 1, code: int = errno.ENOSPC, written: int = 0) -> None:
    def matches(operation: Operation) -> bool:
        return operation.kind == kind and operation.path.rpartition("/")[2].startswith(name)

    disk.fail_when(matches, OSError(code, "full"), times=times, written_bytes=written)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 1, 13, 60])
def test_without_room_changes_are_refused_and_never_seen(code: int, written: int) -> None:
    """Those that share the write, those that came while it was under way, and what was refused because of them."""
    disk = new_disk()
    events: list[ops.WatchEvent] = []

    async def main() -> None:
        store = open_store(disk)
        session_id = await store.open_session(1000)
        await store.submit(ops.Write(session_id, (Create("/a"), Create("/gone"), Create("/e", ephemeral=True))))
        for path in ("/a", "/b", "/gone"):
            store.watches.watch_node(path, Watcher(session_id, events.append))
        before = encode_tree(store.tree)
        journal_size = store._journal.size_bytes
        no_room(disk, "write", "journal", code=code, written=written)
        refused = [
            store.submit(ops.Write(session_id, (Create("/b", bytes(50)), SetData("/a", b"new")))),
            store.submit(ops.Write(session_id, (Delete("/gone"),))),
            store.submit(ops.OpenSession(9, 1000)),
        ]
        readings = [
            asyncio.ensure_future(store.read(lambda tree: tree.get("/a")[0])),
            asyncio.ensure_future(store.read(lambda tree: tree.get("/gone")[0])),
        ]
        while disk.device.operations_count < 1 or store._unwritten:
            await asyncio.sleep(0)
        refused += [
            store.submit(ops.Write(session_id, (Create("/b/c"), Create("/n", sequential=True)))),
            store.submit(ops.Write(session_id, (Create("/b"),))),  # it fails by what is taken back
            store.submit(ops.CloseSession(session_id)),
        ]
        for answer in refused:
            with pytest.raises(StorageFullError) as found:
                await answer
            assert found.value.definite
        assert [await reading for reading in readings] == [b"", b""]
        assert encode_tree(store.tree) == before
        assert store._journal.size_bytes == journal_size == disk.file_size(f"{FOLDER}/journal.{0:016x}")
        assert events == []
        assert store.failure is None
        assert encode_tree(open_store(disk.after_crash(lost="none")).tree) == before
        await store.submit(ops.Write(session_id, (Create("/b"), SetData("/a", b"newer"), Delete("/gone"))))
        await asyncio.sleep(0)
        assert [event.path for event in events] == ["/b", "/a", "/gone"]
        after = encode_tree(store.tree)
        for lost in ("all", "none"):
            assert encode_tree(open_store(disk.after_crash(lost=lost)).tree) == after
        await store.close()

    asyncio.run(main())


def test_a_journal_that_cannot_be_put_back_stops_the_store() -> None:
    disk = new_disk()

    async def main() -> None:
        store = open_store(disk)
        session_id = await store.open_session(1000)
        no_room(disk, "write", "journal", written=5)
        no_room(disk, "truncate", "journal", code=errno.EIO)
        with pytest.raises(ConnectionLossError):
            await store.submit(ops.Write(session_id, (Create("/a"),)))
        assert store.failure is not None
        await store.close()

    asyncio.run(main())


def test_a_sync_without_room_stops_the_store() -> None:
    """The data may be gone from the cache: only a write that was never made can be tried again."""
    disk = new_disk()

    async def main() -> None:
        store = open_store(disk)
        session_id = await store.open_session(1000)
        no_room(disk, "sync", "journal")
        with pytest.raises(ConnectionLossError):
            await store.submit(ops.Write(session_id, (Create("/a"),)))
        assert store.failure is not None
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "name"), [("create", "snapshot"), ("write", "snapshot"), ("rename", "snapshot"), ("write", "journal")]
)
def test_a_snapshot_without_room_is_put_off(kind: str, name: str) -> None:
    disk = new_disk()

    def is_of_the_next_round(operation: Operation) -> bool:
        return operation.kind == kind and operation.path.startswith(f"{FOLDER}/{name}.") and ".tmp" in operation.path

    async def main() -> None:
        store = open_store(disk)
        store.journal_size_bytes_max = 1000
        session_id = await store.open_session(1000)
        disk.fail_when(is_of_the_next_round, OSError(errno.ENOSPC, "full"), times=3)
        sizes = []
        for number in range(20):
            write = ops.Write(session_id, (Create("/n", bytes(100), sequential=True),))
            answers = [store.submit(write), store.submit(write)]
            await answers[0]
            for lost in ("all", "none"):
                recovered = open_store(disk.after_crash(lost=lost)).tree
                assert len(recovered.children("/")[0]) >= 2 * number + 1
            await asyncio.gather(*answers)
            sizes.append(store._journal.size_bytes)
        assert 1500 < max(sizes) < 3000
        base = f"{store._journal.base_zxid:016x}"
        assert disk.list_dir(FOLDER) == [f"journal.{base}", "lock", f"snapshot.{base}"]
        assert store._journal.base_zxid > 0
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_nothing_answered_is_lost_and_nothing_refused_is_seen_on_a_disk_that_fills_up(seed: int) -> None:
    """Room comes and goes; the tree is always that of the answered transactions, in memory and after a power loss."""
    chance = random.Random(seed)
    disk = new_disk()

    async def main() -> None:
        store = open_store(disk)
        store.journal_size_bytes_max = 2000
        session_id = await store.open_session(1000)
        made: set[str] = set()
        for number in range(60):
            disk.set_capacity(disk.device.used_bytes + chance.choice((0, 50, 400, 5000, 1 << 30)))
            paths = [f"/{number}-{index}" for index in range(chance.randrange(1, 5))]
            answers = []
            for path in paths:
                answers.append(store.submit(ops.Write(session_id, (Create(path, bytes(chance.randrange(200))),))))
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
            for path, answer in zip(paths, await asyncio.gather(*answers, return_exceptions=True), strict=True):
                assert not isinstance(answer, Exception) or isinstance(answer, StorageFullError)
                if not isinstance(answer, Exception):
                    made.add(path[1:])
            assert set(await store.read(lambda tree: tree.children("/")[0])) == made
            for lost in ("all", "none"):
                image = disk.after_crash(lost=lost)
                image.set_capacity(1 << 30)
                assert encode_tree(open_store(image).tree) == encode_tree(store.tree)
        assert 0 < len(made) < 140
        await store.close()

    asyncio.run(main())
