"""How much clients may: what counts for a connection, what it has used, and holding those who used more.

Which limits count is decided once for a connection (`Allowance`), and again when limits change or its peer is somebody
else after a login. As long as nobody has a limit, all of this is one look at a flag. What is used is counted in meters
that all connections of the same user or client id share.

Whoever is over a limit is told so in the answer (`throttle_time_ms`), and their connection is not read from for that
long, so it makes no difference whether they listen. What brokers do among themselves is not counted: the requests that
only brokers make, of those who may make them, and the fetches of followers. Nothing is believed because of a client id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.settings import Settings
from penstock.base.world import Clock
from penstock.broker.connection import Connection
from penstock.security.allowance import Allowance
from penstock.security.api_rights import BROKERS_SINCE
from penstock.security.principal import Principal
from penstock.security.quota_rates import Meter, TokenBucket, Windows
from penstock.security.quotas import CLIENT_KEYS, CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST, QuotaTable

METERS_SWEPT_FROM = 1000
UNLIMITED_BYTES = 1 << 62

_MeterKey = tuple[str, str | None, str | None]


@dataclass(slots=True)
class Throttled:
    """How often clients were held because of one kind of limit, and for how long together."""

    times: int = 0
    total_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        self.times += 1
        self.total_ms += throttle_ms


class ClientQuotas:
    """See the head of this file."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self.table = QuotaTable({})
        self.is_limiting = False  # whether any client has a limit
        self.limits_requests = False  # whether the time of requests matters
        self.may_act_as_broker: Callable[[Connection], bool] = lambda _connection: True
        self.windows = Windows(
            settings.integer("quota.window.num"), settings.integer("quota.window.size.seconds") * 1000
        )
        self.throttled = {key: Throttled() for key in (*CLIENT_KEYS, CONNECTION)}
        self._mutation_windows = Windows(
            settings.integer("controller.quota.window.num"),
            settings.integer("controller.quota.window.size.seconds") * 1000,
        )
        self._monotonic = clock.monotonic
        self._version = 0
        self._meters: dict[_MeterKey, Meter] = {}
        self._buckets: dict[_MeterKey, TokenBucket] = {}
        self._swept_from = METERS_SWEPT_FROM

    def now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    def use(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """These are the limits from now on; what was used stays counted."""
        self.table = QuotaTable.of(configs)
        self.is_limiting = self.table.limits_clients
        self.limits_requests = REQUEST in self.table.limits
        self._version += 1

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def of(self, connection: Connection) -> Allowance | None:
        """What counts for a connection; None if nothing does."""
        if not self.is_limiting:
            return None
        known = connection.allowance
        if known is not None and known.version == self._version and known.principal is connection.principal:
            return known
        connection.allowance = self._decided(connection.principal, connection.client_id or "")
        return connection.allowance

    def _decided(self, principal: Principal, client_id: str) -> Allowance:
        self._sweep()
        return Allowance(
            principal,
            self._version,
            self._meter(PRODUCE, principal.name, client_id),
            self._meter(FETCH, principal.name, client_id),
            self._meter(REQUEST, principal.name, client_id),
        )

    def _meter(self, key: str, user: str, client_id: str) -> Meter | None:
        match = self.table.match(key, user, client_id)
        if match is None:
            return None
        shared_by = (key, match.user, match.client_id)
        meter = self._meters.get(shared_by)
        if meter is None:
            throttle_ms_max = {"throttle_ms_max": self.windows.size_ms} if key == REQUEST else {}
            meter = self._meters[shared_by] = Meter(self.windows, **throttle_ms_max)
        meter.bound = match.limit
        return meter

    def _bucket(self, user: str, client_id: str) -> TokenBucket | None:
        match = self.table.match(MUTATION, user, client_id)
        if match is None:
            return None
        shared_by = (MUTATION, match.user, match.client_id)
        bucket = self._buckets.get(shared_by)
        if bucket is None:
            bucket = self._buckets[shared_by] = TokenBucket(self._mutation_windows, match.limit, self.now_ms())
        bucket.per_s = match.limit
        return bucket

    def _sweep(self) -> None:
        """Forget the meters that say the same as new ones: client ids are whatever clients say, so many they may be."""
        if len(self._meters) + len(self._buckets) < self._swept_from:
            return
        now_ms = self.now_ms()
        self._meters = {key: meter for key, meter in self._meters.items() if not meter.is_idle(now_ms)}
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_idle(now_ms)}
        self._swept_from = max(METERS_SWEPT_FROM, 2 * (len(self._meters) + len(self._buckets)))
        self._version += 1  # nobody goes on with a meter that is not shared any more

    # ── counting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def produced(self, connection: Connection, size_bytes: int) -> int:
        """A produce has come; for how many milliseconds its client is held."""
        allowance = self.of(connection)
        if allowance is None:
            return 0
        throttle_ms = allowance.produce.take(size_bytes, self.now_ms()) if allowance.produce is not None else 0
        self._hold(connection, PRODUCE, throttle_ms)
        return max(throttle_ms, self.requested(connection))

    def produces_freely(self, connection: Connection) -> Callable[[int], bool] | None:
        """For the next produces like one: whether one of a size is within the limit, and if it is, it is counted."""
        allowance = self.of(connection)
        if allowance is None or (allowance.produce is None and allowance.request is None):
            return None
        meter, now_ms, version = allowance.produce, self.now_ms, self._version

        def is_free(size_bytes: int) -> bool:
            if version != self._version or allowance.request is not None or meter is None:
                return False
            return meter.take_if_free(size_bytes, now_ms())

        return is_free

    def fetch_bytes_max(self, connection: Connection) -> int:
        """How much can be told at once without a wait."""
        allowance = self.of(connection)
        if allowance is None or allowance.fetch is None:
            return UNLIMITED_BYTES
        return int(allowance.fetch.bound * allowance.fetch.burst_max)

    def fetched(self, connection: Connection, size_bytes: int) -> tuple[int, bool]:
        """An answer to a fetch is about to be sent: for how long its client is held, and whether it is sent empty.

        A batch that is larger than all windows allow together would never be sent: it is, when nothing else was of
        late, and the wait comes after it.
        """
        allowance = self.of(connection)
        if allowance is None:
            return 0, False
        meter, now_ms = allowance.fetch, self.now_ms()
        request_ms = self.requested(connection)
        if meter is None or not size_bytes:
            return request_ms, request_ms > 0 and size_bytes > 0
        if request_ms:
            return request_ms, True
        if meter.is_idle(now_ms):
            throttle_ms, is_empty = meter.take(size_bytes, now_ms), False
        else:
            throttle_ms = meter.take_or_wait(size_bytes, now_ms)
            is_empty = throttle_ms > 0
        self._hold(connection, FETCH, throttle_ms)
        return throttle_ms, is_empty

    def is_among_brokers(self, connection: Connection, api_key: int, version: int) -> bool:
        """Whether a request is one that only brokers make, of somebody who may."""
        since = BROKERS_SINCE.get(api_key)
        return since is not None and version >= since and self.may_act_as_broker(connection)

    def requested(self, connection: Connection) -> int:
        """A request is about to be answered: for how long its client is held for the time that it has taken of late."""
        if not self.limits_requests:
            return 0
        allowance = self.of(connection)
        if allowance is None or allowance.request is None:
            return 0
        throttle_ms = allowance.request.take(0.0, self.now_ms())
        self._hold(connection, REQUEST, throttle_ms)
        return throttle_ms

    def spent(self, connection: Connection, seconds: float) -> None:
        """A request has taken so much of the broker's time."""
        allowance = self.of(connection)
        if allowance is not None and allowance.request is not None:
            allowance.request.take(seconds * 100, self.now_ms())  # percents of one second

    def mutations(self, principal: Principal, client_id: str) -> TokenBucket | None:
        """What a client may change of the cluster's topics; None without a limit."""
        if MUTATION not in self.table.limits:
            return None
        self._sweep()
        return self._bucket(principal.name, client_id)

    def hold_for_mutations(self, connection: Connection, throttle_ms: int) -> None:
        self._hold(connection, MUTATION, throttle_ms)

    def _hold(self, connection: Connection, key: str, throttle_ms: int) -> None:
        if throttle_ms > 0:
            self.throttled[key].add(throttle_ms)
            connection.throttle(throttle_ms / 1000)


class Timed:
    """Awaits something, and adds up the time that its own steps take, without what it waits for."""

    def __init__(self, awaited: Any, monotonic: Callable[[], float]) -> None:
        self.spent_s = 0.0
        self._awaited = awaited
        self._monotonic = monotonic

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaited.__await__()
        step, value = steps.send, None
        while True:
            started_s = self._monotonic()
            try:
                waits_for = step(value)
            except StopIteration as end:
                return end.value
            finally:
                self.spent_s += self._monotonic() - started_s
            try:
                step, value = steps.send, (yield waits_for)
            except BaseException as error:
                step, value = steps.throw, error
