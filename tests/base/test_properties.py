"""Reading of .properties files and of the environment."""

from __future__ import annotations

import pytest

from penstock.base.properties import from_environment, parse_properties
from penstock.base.settings import SettingsError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1  \r\nb: 2\rc 3", {"a": "1  ", "b": "2", "c": "3"}),
        ("# no\n! no\n\n \t# no\na=#1", {"a": "#1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\ b\\=c=\\u00e9\\t\\q\\:", {"a b=c": "é\tq:"}),
        ("a=C:\\\\logs", {"a": "C:\\logs"}),
        ("a=1\\\n# part of a", {"a": "1# part of a"}),
        ("", {}),
    ],
)
def test_properties_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_all_malformed_lines_are_named() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_properties("a=\\u12\nb=2\nc=\\uzzzz")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["line 1", "line 3"]


def test_the_environment() -> None:
    environment = {
        "PENSTOCK_LOG_RETENTION_MS": "5",
        "PENSTOCK_LISTENER_NAME_MY__NET_SCRAM___SHA___256_SASL_JAAS_CONFIG": "x",
        "PENSTOCK_DATA": "/d",
        "HOME": "/",
    }
    assert from_environment(environment, reserved={"PENSTOCK_DATA"}) == {
        "log.retention.ms": "5",
        "listener.name.my_net.scram-sha-256.sasl.jaas.config": "x",
    }
