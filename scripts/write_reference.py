"""Write the pages settings, errors, metrics and rights of docs/reference, or compare them with `--check`.

The tables in the program are the only source: nobody edits the pages by hand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.base.broker_settings import BROKER_SETTINGS
from penstock.base.errors import Error
from penstock.base.ignored_settings import IGNORED_SETTINGS, REFUSED_SETTINGS
from penstock.base.pending_settings import PENDING_SETTINGS
from penstock.base.setting_values import DOUBLE_MAX, INT_MAX, LONG_MAX, format_value
from penstock.base.settings import Dynamic, Section, Setting
from penstock.base.topic_settings import IGNORED_TOPIC_SETTINGS, TOPIC_SETTINGS
from penstock.broker.metrics import SECTIONS
from penstock.broker.metrics_format import Family
from penstock.security.api_rights import API_RIGHTS, ROUTE_RIGHTS, ApiRights

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
GENERATED = "<!-- Written by scripts/write_reference.py from the tables in penstock.base. Do not edit. -->\n"
GENERATED_METRICS = "<!-- Written by scripts/write_reference.py from penstock.broker.metrics. Do not edit. -->\n"

SETTINGS_INTRO = """# Settings

Settings have the names, types and defaults of Apache Kafka; only where Kafka has no limit and one client could harm
all others, or where a default needs Java, is the default another one.

They are given in a `.properties` file (`--config`), on the command line (`--set key=value`), or in the environment:
`PENSTOCK_LOG_RETENTION_MS=3600000` sets `log.retention.ms` (two underscores in a row stand for an underscore, three for
a dash). Sizes and times are plain numbers in the unit of the setting. A name that does not exist, or a value that is
not allowed, stops the start, and all problems are reported together.

A value is decided in this order: the topic's own; the value set for this broker while it runs; the value set for all
brokers while they run; the file, environment and command line; the default. Where a setting is not given it may
fall back to another, which its description names.

**Change** says whether a broker's setting can be altered while it runs: not at all (*restart*), for one broker (*one
broker*), or for one or all of them (*any time*). The settings of a topic can always be altered.
"""

LISTENER_NOTE = """
Settings marked with † can also be given for one listener: `listener.name.<listener>.<setting>`, with the name of the
listener in lower case.
"""

ERRORS_INTRO = """# Errors

Every error code of the protocol. **Retry**: the same request may succeed later. **Open**: the request may have taken
effect, or did; elsewhere this attempt surely did not. An idempotent producer can repeat a request that is left open.

| code | name | retry | open | meaning |
|---:|---|---|---|---|
"""

GENERATED_RIGHTS = "<!-- Written by scripts/write_reference.py from penstock.security.api_rights. Do not edit. -->\n"
RIGHTS_INTRO = """# Rights

What each API asks for once an authorizer is on. See the guide on [access control](../guides/access-control.md).

| key | API | needs | note |
|---:|---|---|---|
"""

ROUTES_INTRO = """
Over HTTP, on `metrics.listener`, of those who log in as a user (`metrics.security.protocol`):

| route | needs | note |
|---|---|---|
"""

METRICS_INTRO = """# Metrics

What a broker serves at `/metrics`, on `metrics.listener`, in the format of Prometheus. How to use it, and rules for
alerts: [the guide](../guides/metrics.md).

Everything is of this one broker and since its start, unless it says otherwise. A counter (its name ends in `_total`)
only grows, so ask for its `rate`. A histogram has the series `_bucket`, `_sum` and `_count`. Times are in seconds and
sizes in bytes.
"""

CHANGE = {Dynamic.READ_ONLY: "restart", Dynamic.PER_BROKER: "one broker", Dynamic.CLUSTER_WIDE: "any time"}
NO_LIMIT = {INT_MAX, LONG_MAX, DOUBLE_MAX}


def settings_page() -> str:
    """The page of all settings: of brokers, of topics, and those without effect."""
    parts = [
        GENERATED,
        SETTINGS_INTRO,
        "\n## Broker settings\n",
        LISTENER_NOTE,
        *(broker_section(section) for section in BROKER_SETTINGS.sections),
        "\n## Topic settings\n\nA topic that does not give a setting has the broker's beside it, where there is one.\n",
        *(topic_section(section) for section in TOPIC_SETTINGS.sections),
        "\n## Settings whose effect is still to come\n\nThese are checked and give one warning.\n\n",
        reasons(PENDING_SETTINGS),
        "\n## Settings of Kafka without effect\n\nThese are accepted and give one warning.\n\n",
        reasons({**IGNORED_SETTINGS, **IGNORED_TOPIC_SETTINGS}),
        "\n## Settings of Kafka that are refused\n\nThese stop the start.\n\n",
        reasons(REFUSED_SETTINGS),
    ]
    return "".join(parts)


def broker_section(section: Section) -> str:
    """One table of broker settings."""
    head = "| setting | type | default | allowed | change | meaning |\n|---|---|---|---|---|---|\n"
    rows = (
        f"| `{row.name}`{' †' if row.per_listener else ''} | {kind(row)} | {default(row)} | {allowed(row)} "
        f"| {CHANGE[row.dynamic]} | {cell(row.doc)} |\n"
        for row in section.rows
    )
    return f"\n### {section.title}\n\n{section.intro}\n\n{head}{''.join(rows)}"


def topic_section(section: Section) -> str:
    """One table of topic settings."""
    head = "| setting | type | default | allowed | broker's setting | meaning |\n|---|---|---|---|---|---|\n"
    rows = (
        f"| `{row.name}` | {kind(row)} | {default(row)} | {allowed(row)} "
        f"| {f'`{row.broker_name}`' if row.broker_name else ''} | {cell(row.doc)} |\n"
        for row in section.rows
    )
    return f"\n### {section.title}\n\n{section.intro}\n\n{head}{''.join(rows)}"


def kind(row: Setting) -> str:
    """The type with its unit."""
    return row.kind.name.lower() + (f", {row.unit}" if row.unit else "")


def default(row: Setting) -> str:
    """The default as somebody would write it."""
    if row.default is None:
        return "not given"
    if not isinstance(row.default, bool) and row.default in NO_LIMIT:
        return "no limit"
    text = format_value(row.default)
    return f"`{text}`" if text else "empty"


def allowed(row: Setting) -> str:
    """The check, if there is one."""
    return cell(row.check.text) if row.check else ""


def reasons(table: Mapping[str, str]) -> str:
    """Names and why."""
    rows = (f"| `{name}{'*' if name.endswith('.') else ''}` | {reason} |\n" for name, reason in sorted(table.items()))
    return "| setting | why |\n|---|---|\n" + "".join(rows)


def cell(text: str) -> str:
    """Text that is safe inside a table."""
    return text.replace("|", "\\|")


def errors_page() -> str:
    """The page of all errors."""
    rows = (
        f"| {error.value} | `{error.name}` | {'yes' if error.retriable else ''} | {'' if error.definite else 'open'} "
        f"| {cell(error.text)} |\n"
        for error in sorted(Error)
    )
    return GENERATED + ERRORS_INTRO + "".join(rows)


def metrics_page() -> str:
    """The page of all metrics."""
    parts = [GENERATED_METRICS, METRICS_INTRO]
    for section in SECTIONS:
        rows = "".join(metric_row(family) for family in section.families)
        head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
        parts.append(f"\n## {section.title}\n\n{section.intro}\n\n{head}{rows}")
    return "".join(parts)


def metric_row(family: Family) -> str:
    """One family."""
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind.value} | {labels} | {cell(family.help)} |\n"


def rights_page() -> str:
    apis = [f"| {key} | {rights_row(each)}" for key, each in API_RIGHTS.items()]
    routes = [f"| {rights_row(each)}" for each in ROUTE_RIGHTS.values()]
    return GENERATED_RIGHTS + RIGHTS_INTRO + "".join(apis) + ROUTES_INTRO + "".join(routes)


def rights_row(needed: ApiRights) -> str:
    rights = [
        f"{operation.name} on {kind.name}" + (f" ({needed_for})" if needed_for else "")
        for operation, kind, needed_for in needed.rights
    ]
    return f"{needed.name} | {'; '.join(rights) or '-'} | {needed.note} |\n"


def main() -> int:
    """Write the pages, or say which ones are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the pages that are there; write nothing")
    arguments = parser.parse_args()
    stale = []
    for name, text in (
        ("settings.md", settings_page()),
        ("errors.md", errors_page()),
        ("metrics.md", metrics_page()),
        ("rights.md", rights_page()),
    ):
        path = REFERENCE / name
        if arguments.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run scripts/write_reference.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
