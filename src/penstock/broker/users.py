"""The users of the cluster as logins find them: SCRAM credentials in znodes, and the brokers' own user.

Credentials live in `/config/scram/<user>`, one value for each mechanism, and are written by the controller alone. The
user whom brokers log in to each other as needs no znode on their listener: each broker has the password in its own
settings, so that brokers can meet before anybody could have made users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ApiError, Error
from penstock.base.world import Random
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole
from penstock.broker.login_settings import OwnLogin
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, Plan
from penstock.sasl.exchange import Login
from penstock.sasl.scram import HASH_NAMES, ITERATIONS_MIN, salted_password
from penstock.sasl.scram_server import (
    DEFAULT_ITERATIONS,
    DEFAULT_SHAPES,
    SALT_BYTES,
    STORED_ITERATIONS_MAX,
    Credential,
    Found,
    Shape,
    credential_of,
    fake_credential,
    new_credential,
    shape_of,
)
from penstock.zookeeper.paths import escaped_name, unescaped_name
from penstock.zookeeper.znodes import SCRAM_CONFIGS

#: The numbers that Kafka's protocol has for mechanisms.
MECHANISM_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NAME_LENGTH_MAX = 1000
_PREFIX = f"{SCRAM_CONFIGS}/"
_UNPROTECTED = (
    "whoever reaches ZooKeeper could read what is kept of users: give all brokers zookeeper.auth.digest, or allow it "
    "with zookeeper.unprotected.credentials.enable=true"
)


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A user's new salted password for one mechanism, as an administrator sends it."""

    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Users:
    """Those who can log in with SCRAM."""

    def __init__(self, view: ClusterView, role: ControllerRole, secret: bytes, *, may_keep: bool = True) -> None:
        self.secret = secret
        """Of the cluster: salts of users who do not exist are made from it."""
        self._view = view
        self._role = role
        self.may_keep = may_keep
        """Whether credentials, and other secrets, may be written where they would lie."""
        self._brokers: tuple[str, str, Found] | None = None  # their listener, mechanism, and user
        self._shapes_in: dict[str, dict[str, Shape]] = {}  # of each znode's credentials, by mechanism
        self._shapes: dict[str, tuple[Shape, ...]] = {}
        self._look_at(view.configs)
        view.on_change(self._view_changed)

    def use_own_login(self, listener_name: str, login: OwnLogin) -> None:
        """Let brokers in that log in as this one does."""
        if login.mechanism not in HASH_NAMES:
            return
        salt = fake_credential(login.mechanism, login.user, self.secret).salt
        credential = new_credential(login.mechanism, login.password, salt)
        self._brokers = (listener_name, login.mechanism, Found(credential, Login(login.user)))

    def find(self, listener_name: str, mechanism: str, user: str) -> Found | None:
        """The user's credential, or None."""
        if self._brokers is not None and self._brokers[:2] == (listener_name, mechanism):
            of_brokers = self._brokers[2]
            if user == of_brokers.login.user:
                return of_brokers
        text = self._view.config_values(SCRAM_CONFIGS, escaped_name(user)).get(mechanism)
        return Found(Credential.from_text(text), Login(user)) if text is not None else None

    def made_up(self, mechanism: str, user: str) -> Credential:
        """The credential that somebody seems to have who has none."""
        return fake_credential(mechanism, user, self.secret, self.shapes_of(mechanism))

    def shapes_of(self, mechanism: str) -> Sequence[Shape]:
        """Those that credentials have here, so that one that is made up looks like them."""
        return self._shapes.get(mechanism, DEFAULT_SHAPES)

    async def _view_changed(self, change: ViewChange) -> None:
        self._look_at(change.configs)

    def _look_at(self, names: Iterable[str]) -> None:
        changed = [name for name in names if name.startswith(_PREFIX)]
        if not changed:
            return
        for name in changed:
            values = self._view.config_values(SCRAM_CONFIGS, name.removeprefix(_PREFIX))
            self._shapes_in[name] = _shapes(values)
            if not values:
                del self._shapes_in[name]
        seen: dict[str, set[Shape]] = {}
        for shapes in self._shapes_in.values():
            for mechanism, shape in shapes.items():
                seen.setdefault(mechanism, set()).add(shape)
        self._shapes = {mechanism: tuple(sorted(shapes)) for mechanism, shapes in seen.items()}

    # ── for administrators ───────────────────────────────────────────────────────────────────────────────────────

    def names(self) -> list[str]:
        """Everybody with a credential."""
        return sorted(unescaped_name(name[len(_PREFIX) :]) for name in self._view.configs if name.startswith(_PREFIX))

    def iterations_of(self, user: str) -> dict[int, int]:
        """For each mechanism that a user has a credential for; empty if there is no such user."""
        values = self._view.config_values(SCRAM_CONFIGS, escaped_name(user))
        return {
            number: Credential.from_text(values[name]).iterations
            for number, name in MECHANISM_NAMES.items()
            if name in values
        }

    async def make(self, user: str, password: str, random: Random) -> None:
        """Where the controller is: a user with all mechanisms, unless there is one by this name."""
        if self.iterations_of(user):
            return
        upsertions = []
        for number, mechanism in MECHANISM_NAMES.items():
            salt = random.randbytes(SALT_BYTES)
            salted = salted_password(HASH_NAMES[mechanism], password, salt, DEFAULT_ITERATIONS)
            upsertions.append(Upsertion(number, DEFAULT_ITERATIONS, salt, salted))
        await self.alter(user, [], upsertions)

    async def alter(self, user: str, deletions: Sequence[int], upsertions: Sequence[Upsertion]) -> None:
        """Where the controller is: all of what is asked for one user, or ApiError and nothing of it."""
        new = _checked(user, deletions, upsertions)
        if new and not self.may_keep:
            raise ApiError(Error.POLICY_VIOLATION, _UNPROTECTED)
        name = escaped_name(user)

        def decide(_state: ClusterState) -> list[Plan]:
            values = dict(self._view.config_values(SCRAM_CONFIGS, name))
            for number in deletions:
                if values.pop(MECHANISM_NAMES[number], None) is None:
                    raise ApiError(Error.RESOURCE_NOT_FOUND, f"{user!r} has no {MECHANISM_NAMES[number]} credential")
            values |= new
            return [set_configs(SCRAM_CONFIGS, name, values, self._view.config_version(SCRAM_CONFIGS, name))]

        await self._role.decide(decide)


def _shapes(values: Mapping[str, str]) -> dict[str, Shape]:
    found = {}
    for mechanism in MECHANISM_NAMES.values():
        if mechanism in values:
            try:
                found[mechanism] = shape_of(Credential.from_text(values[mechanism]))
            except ValueError:
                continue  # nobody can log in with it
    return found


def _checked(user: str, deletions: Sequence[int], upsertions: Sequence[Upsertion]) -> Mapping[str, str]:
    if not user or len(user) > _NAME_LENGTH_MAX:
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, f"a user has a name, of at most {_NAME_LENGTH_MAX} characters")
    named = [*deletions, *(each.mechanism for each in upsertions)]
    if any(number not in MECHANISM_NAMES for number in named):
        raise ApiError(Error.UNSUPPORTED_SASL_MECHANISM, f"known are {', '.join(MECHANISM_NAMES.values())}")
    if len(set(named)) < len(named):
        raise ApiError(Error.DUPLICATE_RESOURCE, "the request has one mechanism of a user more than once")
    return {MECHANISM_NAMES[each.mechanism]: _credential(each).to_text() for each in upsertions}


def _credential(upsertion: Upsertion) -> Credential:
    if not ITERATIONS_MIN <= upsertion.iterations <= STORED_ITERATIONS_MAX:
        raise ApiError(
            Error.UNACCEPTABLE_CREDENTIAL, f"iterations are from {ITERATIONS_MIN} to {STORED_ITERATIONS_MAX}"
        )
    if not upsertion.salt or not upsertion.salted_password:
        raise ApiError(Error.UNACCEPTABLE_CREDENTIAL, "a credential has a salt and a password")
    return credential_of(
        MECHANISM_NAMES[upsertion.mechanism], upsertion.salted_password, upsertion.salt, upsertion.iterations
    )
