"""Names in certificates, and the rules that make users of them."""

from __future__ import annotations

import pytest

from penstock.security.certificate_names import NoRuleError, distinguished_name, parse_rules, user_of

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "Sales"),),
    (("commonName", "Alice"),),
)


def test_names_are_written_as_in_rfc_2253() -> None:
    assert distinguished_name(SUBJECT) == "CN=Alice,OU=Sales,O=Example\\, Inc.,C=DE"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", "CN=Alice,OU=Sales,O=Example\\, Inc.,C=DE"),
        ("", "CN=Alice,OU=Sales,O=Example\\, Inc.,C=DE"),
        ("RULE:^CN=([^,]+),.*$/$1/", "Alice"),
        ("RULE:^CN=([^,]+),.*$/$1/L", "alice"),
        ("RULE:^CN=([^,]+),OU=(.*?),.*$/$1@$2/U", "ALICE@SALES"),
        ("RULE:^UID=(.*)$/$1/, RULE:^CN=([^,]+),.*$/$1/L, DEFAULT", "alice"),
        ("RULE:^UID=(.*)$/$1/,DEFAULT", "CN=Alice,OU=Sales,O=Example\\, Inc.,C=DE"),
        ("RULE:.*/a\\/b/", "a/b"),
    ],
)
def test_rules(rules: str, user: str) -> None:
    assert user_of(SUBJECT, parse_rules(rules)) == user


def test_no_name_takes_long() -> None:
    """Python's own expressions would try every way to share the letters out: for longer than the sun will shine."""
    rules = parse_rules("RULE:^CN=((a+)+)$/$1/,DEFAULT")
    assert user_of(((("commonName", "a" * 5000 + "!"),),), rules).endswith("!")


def test_nobody_without_a_rule() -> None:
    with pytest.raises(NoRuleError, match="CN=Alice"):
        user_of(SUBJECT, parse_rules("RULE:^UID=(.*)$/$1/"))
    with pytest.raises(NoRuleError):
        user_of(SUBJECT, parse_rules("RULE:.*//"))


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:abc",
        "RULE:(/x/",
        "RULE:a/$1/",
        "default",
        "RULE:a/b/X",
        "RULE:a/b/L;DEFAULT",
        "RULE:(?=a)b/x/",
        "RULE:(a)\\1/x/",
    ],
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rules(rules)
