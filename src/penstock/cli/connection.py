"""How commands reach a broker: as an ordinary Kafka client, through confluent-kafka.

`Connection` holds the settings that the shared options gave and makes clients of them. Before it makes the first one it
opens a plain TCP connection to the bootstrap brokers: librdkafka retries in the background for as long as it is asked
to, and a newcomer who forgot `penstock up` should hear so at once. Errors of the client become `Failure`s here.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from penstock.base.properties import parse_properties
from penstock.base.settings import SettingsError
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.kafka_admin import AdminClient
from penstock.cli.options import key_values

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
ANSWER_STEP_S = 0.2
METADATA_STEP_S = 1.0

UNREACHABLE_ERRORS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
}
NOT_FOUND_ERRORS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
REFUSED_ERRORS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}

Result = TypeVar("Result")

_SILENT = logging.getLogger("librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Connection:
    """The brokers to talk to and the client settings to use."""

    def __init__(self, bootstrap: str | None, client_config: Path | None, settings: list[str] | None) -> None:
        self.settings = read_properties(client_config) if client_config else {}
        self.settings.update(key_values(settings, "-X"))
        self.bootstrap = bootstrap or self.settings.get("bootstrap.servers") or DEFAULT_BOOTSTRAP
        self.settings["bootstrap.servers"] = self.bootstrap
        if "debug" not in self.settings:
            self.settings.setdefault("log_level", "0")
        self.brokers_down = False
        self._refusal: KafkaError | None = None
        self._reached = False
        self._admin: AdminClient | None = None

    def admin(self) -> AdminClient:
        """The client for questions about topics, settings and offsets; kept here, for its answers die with it."""
        if self._admin is None:
            self.reach()
            self._admin = self._make(AdminClient, {})
        return self._admin

    def producer(self, defaults: Mapping[str, str | bool]) -> Producer:
        """A producer; the user's own settings win over the command's defaults."""
        self.reach()
        return self._make(Producer, defaults)

    def consumer(self, defaults: Mapping[str, str | bool]) -> Consumer:
        """A consumer; the user's own settings win over the command's defaults."""
        self.reach()
        return self._make(Consumer, defaults)

    def answer(self, future: Future[Result], subject: str) -> Result:
        """The answer of an admin request; `subject` begins the sentence of a failure ("topic 'orders'")."""
        try:
            return self.outcome(future, subject)
        except KafkaException as error:
            raise self.failure(error.args[0], subject) from error

    def outcome(self, future: Future[Result], subject: str) -> Result:
        """The same for who wants to look at the KafkaException first. What the client says in the background, such as
        that a login failed, ends the wait at once."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S + 5
        while True:
            try:
                return future.result(ANSWER_STEP_S)
            except TimeoutError:
                if self._admin is not None:
                    self._admin.poll(0)
                if self._refusal is not None:
                    raise self.failure(self._refusal, subject) from None
                if time.monotonic() > deadline:
                    raise

    def metadata(self, admin: AdminClient) -> Any:
        """Brokers and topics of the cluster. Waits in steps, for Python hears Ctrl-C only between them."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                return admin.list_topics(timeout=METADATA_STEP_S)
            except KafkaException as error:
                admin.poll(0)  # what the client has to say in the background, such as a login that failed
                is_final = error.args[0].code() not in UNREACHABLE_ERRORS or self._refusal is not None
                if is_final or time.monotonic() > deadline:
                    raise self.failure(error.args[0], "the list of topics") from error

    def failure(self, error: KafkaError, subject: str) -> Failure:
        """A client's error as one sentence and an exit code.

        Where the client only says that time ran out, the reason it gave in the background is the better one.
        """
        if error.code() in UNREACHABLE_ERRORS and self._refusal is not None:
            error = self._refusal
        code = error.code()
        text = error.str().removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
        if code in UNREACHABLE_ERRORS:
            advice = "" if "security.protocol" in self.settings else "; if it wants TLS or a login: --client-config"
            told = f"{subject}: no answer from the broker at {self.bootstrap} ({text}){advice}"
            return Failure(told, ExitCode.UNREACHABLE)
        if code in NOT_FOUND_ERRORS:
            return Failure(f"{subject} does not exist", ExitCode.NOT_FOUND)
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return Failure(f"{subject} already exists", ExitCode.EXISTS)
        if code in REFUSED_ERRORS:
            return Failure(f"{subject}: the broker refuses this ({text})", ExitCode.REFUSED)
        return Failure(f"{subject}: {text}")

    def _make(self, kind: type[Result], defaults: Mapping[str, str | bool]) -> Result:
        try:
            chosen = {**defaults, **self.settings, "error_cb": self._on_background_error}
            return kind(chosen | self._silenced)  # type: ignore[call-arg]
        except KafkaException as error:
            raise usage(f"client setting: {error.args[0].str()}") from error
        except (TypeError, ValueError) as error:
            raise usage(f"client setting: {error}") from error

    @property
    def _silenced(self) -> dict[str, logging.Logger]:
        """Even where it is told to log nothing, librdkafka prints what is fatal; we say that ourselves, and better."""
        return {"logger": _SILENT} if self.settings.get("log_level") == "0" else {}

    def _on_background_error(self, error: KafkaError) -> None:
        if error.code() in REFUSED_ERRORS:
            self._refusal = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.brokers_down = True

    def also_try(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Remember brokers that were met, for when those of the bootstrap list are gone."""
        known = parse_addresses(self.bootstrap)
        more = [address for address in addresses if address not in known]
        self.bootstrap = ",".join([self.bootstrap, *(format_address(*address) for address in more)])

    def reach(self) -> None:
        """Fails unless something accepts connections at one of the bootstrap addresses."""
        if self._reached:
            return
        for address in parse_addresses(self.bootstrap):
            try:
                socket.create_connection(address, CONNECT_TIMEOUT_S).close()
            except OSError:
                continue
            self._reached = True
            return
        advice = "start one with 'penstock up' or pass --bootstrap"
        raise Failure(f"no broker answers at {self.bootstrap}: {advice}", ExitCode.UNREACHABLE)


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,[::1]:9093,host` as pairs of host and port."""
    return [_parse_address(part.strip()) for part in bootstrap.split(",") if part.strip()]


def format_address(host: str, port: int) -> str:
    """A host and its port as one writes them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_address(address: str) -> tuple[str, int]:
    bare = address.partition("://")[2] or address
    host, colon, port = bare.rpartition(":")
    if not colon or bare.endswith("]"):
        host, port = bare, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise usage(f"--bootstrap wants HOST:PORT, not {address!r}")
    return host.strip("[]"), int(port)


def read_properties(path: Path) -> dict[str, str]:
    """The client settings in a .properties file."""
    try:
        return parse_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise usage(f"cannot read the client settings in {path}: {error}") from error
