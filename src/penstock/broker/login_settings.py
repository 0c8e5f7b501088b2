"""What the settings say of logins: which are offered on a listener, PLAIN's users, and how brokers log in themselves.

    listener.name.clients.plain.sasl.jaas.config=…PlainLoginModule required user_alice="…" user_bob="…";

The name and password of the broker itself are in the same entries (`username`, `password`). SettingsError names what
is wrong and never shows a value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.base.listeners import Listener
from penstock.base.settings import Settings, SettingsError
from penstock.broker.sasl_login import LoginRules
from penstock.sasl import oauthbearer, plain, scram
from penstock.sasl.jaas_entries import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_entry

_JAAS = "sasl.jaas.config"
_USER_OPTION = "user_"
_MODULES = {
    plain.MECHANISM: PLAIN_MODULE,
    **{mechanism: SCRAM_MODULE for mechanism in scram.HASH_NAMES},
    oauthbearer.MECHANISM: OAUTHBEARER_MODULE,
}


@dataclass(frozen=True, slots=True)
class OwnLogin:
    """How this broker logs in to others."""

    mechanism: str
    user: str = ""
    password: str = field(repr=False, default="")
    token: str = field(repr=False, default="")


def login_rules(settings: Settings, listener: Listener) -> LoginRules:
    """What one listener asks for."""
    of_listener = settings.for_listener(listener.name)
    mechanisms = tuple(of_listener.list("sasl.enabled.mechanisms"))
    problem = _plain_problem(settings, listener, mechanisms)
    if problem is not None:
        raise SettingsError([problem])
    again_ms = of_listener.integer("connections.max.reauth.ms")
    return LoginRules(
        mechanisms=mechanisms,
        request_bytes_max=settings.integer("socket.unauthenticated.request.max.bytes"),
        message_bytes_max=of_listener.integer("sasl.server.max.receive.size"),
        again_s=again_ms / 1000 if again_ms else None,
        failure_delay_s=settings.integer("connection.failed.authentication.delay.ms") / 1000,
        login_s_max=settings.integer("connection.login.timeout.ms") / 1000,
    )


def _plain_problem(settings: Settings, listener: Listener, mechanisms: tuple[str, ...]) -> str | None:
    if plain.MECHANISM not in mechanisms:
        return None
    if not listener.protocol.has_tls and not settings.for_listener(listener.name).flag("sasl.plain.without.tls.enable"):
        return (
            f"listener {listener.name}: PLAIN would send passwords over a connection without TLS; use SASL_SSL, or "
            f"SCRAM, or allow it with listener.name.{listener.name.lower()}.sasl.plain.without.tls.enable=true"
        )
    if not plain_users(settings, listener.name):
        return (
            f'listener {listener.name}: PLAIN has no users; give them as options user_alice="…" in '
            f"listener.name.{listener.name.lower()}.plain.sasl.jaas.config"
        )
    return None


def plain_users(settings: Settings, listener_name: str) -> dict[str, str]:
    """The passwords of those who may log in with PLAIN, by user."""
    options = _options(settings, listener_name, plain.MECHANISM)
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION) and len(name) > len(_USER_OPTION)
    }


def own_login(settings: Settings, listener_name: str) -> OwnLogin:
    """How this broker logs in on the listener between brokers."""
    mechanism = settings.text("sasl.mechanism.inter.broker.protocol")
    options = _options(settings, listener_name, mechanism)
    token = options.get("token", "")
    if mechanism == oauthbearer.MECHANISM and not token:
        raise _missing(listener_name, mechanism, 'token="…"')
    if mechanism != oauthbearer.MECHANISM and not (options.get("username") and options.get("password")):
        raise _missing(listener_name, mechanism, 'username="…" and password="…"')
    return OwnLogin(mechanism, options.get("username", ""), options.get("password", ""), token)


def _missing(listener_name: str, mechanism: str, what: str) -> SettingsError:
    name = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{_JAAS}"
    return SettingsError([f"brokers log in to each other with {mechanism}: {name} needs {what}"])


def _options(settings: Settings, listener_name: str, mechanism: str) -> dict[str, str]:
    text = settings.for_listener(listener_name, mechanism).optional_text(_JAAS)
    if text is None:
        return {}
    try:
        entry = parse_entry(text)
    except ValueError as error:
        raise SettingsError([f"{_JAAS} of listener {listener_name}: {error}"]) from None
    if entry.module != _MODULES[mechanism]:
        if settings.for_listener(listener_name).optional_text(_JAAS) == text:
            return {}  # one for all mechanisms, and this is another's
        raise SettingsError(
            [f"{_JAAS} of listener {listener_name}: the mechanism {mechanism} needs the module {_MODULES[mechanism]}"]
        )
    return entry.options
