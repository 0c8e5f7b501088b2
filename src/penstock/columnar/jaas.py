"""`sasl.jaas.config`, the Java clients' way to write down a user and a password, for the login modules that make sense.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="it's a secret";

One module, its flag, options with quoted values, and a semicolon; anything else is refused, and never shown: the text
has a password in it.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.columnar.errors import SettingError
from penstock.sasl.jaas_entries import OAUTHBEARER_MODULE, parse_entry
from penstock.sasl.jaas_entries import PLAIN_MODULE as PLAIN_MODULE
from penstock.sasl.jaas_entries import SCRAM_MODULE as SCRAM_MODULE

NAME = "sasl.jaas.config"
_REFUSED = {
    "com.sun.security.auth.module.Krb5LoginModule": "Kerberos is not supported; use PLAIN, SCRAM or OAUTHBEARER",
    OAUTHBEARER_MODULE: "tokens are not fetched here; give the token itself with sasl.oauthbearer.token",
}
_OPTIONS = {"username", "password", "serviceName"}
_TOKEN_OPTION = "tokenauth"


class JaasLogin(NamedTuple):
    """The module, and who logs in."""

    module: str
    user: str
    password: str
    is_token: bool = False
    """Whether the user is the id of a delegation token, and the password its HMAC."""


def parse_jaas(text: str) -> JaasLogin:
    """SettingError, which never has a part of a value in it."""
    try:
        entry = parse_entry(text)
    except ValueError as error:
        raise SettingError(NAME, str(error)) from None
    module, options = entry.module, entry.options
    if module in _REFUSED:
        raise SettingError(NAME, _REFUSED[module])
    if module not in (PLAIN_MODULE, SCRAM_MODULE):
        raise SettingError(
            NAME, f"the login module {module[:120]} is not supported; PlainLoginModule and ScramLoginModule are"
        )
    known = _OPTIONS | {_TOKEN_OPTION} if module == SCRAM_MODULE else _OPTIONS
    if unknown := sorted(set(options) - known):
        raise SettingError(NAME, f"the option {unknown[0]} of the login module is not supported")
    if not options.get("username") or "password" not in options:
        raise SettingError(NAME, 'username="…" and password="…" are both needed')
    is_token = options.get(_TOKEN_OPTION, "").lower() == "true"
    return JaasLogin(module, options["username"], options["password"], is_token)
