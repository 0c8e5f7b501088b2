"""Listeners: addresses, protocols, what is advertised, and which one the brokers use."""

from __future__ import annotations

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.listeners import Listener, SecurityProtocol, parse_listeners
from penstock.base.settings import SettingsError
from penstock.base.world import Address

MAP = "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL"


def test_the_default_listens_everywhere_and_advertises_the_host() -> None:
    listeners = parse_listeners(load_broker_settings({}), "me.example")
    assert listeners.all == (
        Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, Address("", 9092), Address("me.example", 9092)),
    )
    assert listeners.inter_broker_name == "PLAINTEXT"


def test_several_listeners() -> None:
    listeners = parse_listeners(
        load_broker_settings(
            {
                "listeners": "internal://0.0.0.0:9092, EXTERNAL://[::1]:0",
                "advertised.listeners": "EXTERNAL://[2001:db8::1]:443",
                "listener.security.protocol.map": MAP,
                "inter.broker.listener.name": "INTERNAL",
            }
        ),
        "me",
    )
    internal, external = listeners.all
    assert internal == Listener("INTERNAL", SecurityProtocol.PLAINTEXT, Address("0.0.0.0", 9092), Address("me", 9092))
    assert external == Listener("EXTERNAL", SecurityProtocol.SASL_SSL, Address("::1", 0), Address("2001:db8::1", 443))
    assert listeners.inter_broker is internal and listeners["EXTERNAL"] is external
    assert external.protocol.has_tls and external.protocol.has_login
    assert external.bound_to(5).bind == Address("::1", 5) and external.bound_to(5).advertised.port == 443


def test_a_free_port_is_advertised_once_it_is_bound() -> None:
    (listener,) = parse_listeners(load_broker_settings({"listeners": "PLAINTEXT://127.0.0.1:0"}), "me").all
    assert listener.bound_to(4711).advertised == Address("127.0.0.1", 4711)


def test_brokers_use_the_listener_of_their_protocol_or_the_first() -> None:
    static = {"listeners": "SSL://a:1,PLAINTEXT://a:2"}
    assert parse_listeners(load_broker_settings(static), "me").inter_broker_name == "PLAINTEXT"
    static["security.inter.broker.protocol"] = "SSL"
    assert parse_listeners(load_broker_settings(static), "me").inter_broker_name == "SSL"
    assert parse_listeners(load_broker_settings({"listeners": "SSL://a:1"}), "me").inter_broker_name == "SSL"


@pytest.mark.parametrize(
    ("static", "part"),
    [
        ({"listeners": "localhost:9092"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "an IPv6 address in brackets"),
        ({"listeners": "PLAINTEXT://a:65536"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "has the listener PLAINTEXT more than once"),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "PLAINTEXT and SSL have the same address a:1"),
        ({"listeners": "MINE://a:1"}, "MINE has no protocol in listener.security.protocol.map"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "is not NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL,PLAINTEXT:SSL"}, "PLAINTEXT more than once"),
        ({"advertised.listeners": "SSL://a:1"}, "SSL is not in listeners (PLAINTEXT)"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nobody can connect to 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "nobody can connect to no host"),
        ({"advertised.listeners": "PLAINTEXT://[::]:1"}, "nobody can connect to ::"),
        ({"inter.broker.listener.name": "X"}, "X is not in listeners"),
        ({"security.inter.broker.protocol": "SSL"}, "no listener speaks SSL"),
        ({"listeners": ""}, "must not be empty"),
    ],
)
def test_what_is_wrong_with_listeners(static: dict[str, str], part: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(static)
    assert part in str(caught.value)
