"""One line for each thing that is told."""

from __future__ import annotations

import logging
import sys

from penstock.cli.log_lines import LogLines


def line_of(text: object, *arguments: object, with_traceback: bool = False) -> str:
    caught = None
    if with_traceback:
        try:
            raise ValueError("what")
        except ValueError:
            caught = sys.exc_info()
    return LogLines("%(levelname)s %(message)s").format(
        logging.LogRecord("penstock", logging.INFO, "", 1, text, arguments, caught)
    )


def test_a_text_stays_on_its_line() -> None:
    assert line_of("topic %s", "a\r\nERROR b\x1b[1m\x00\x7f\u2028\u202e") == (
        "INFO topic a\\r\\nERROR b\\x1b[1m\\x00\\x7f\\u2028\\u202e"
    )


def test_other_letters_stay_as_they_are() -> None:
    assert line_of("%s", "Zürich \\n 東京") == "INFO Zürich \\n 東京"


def test_a_traceback_has_its_lines() -> None:
    first, *others = line_of("failed\nhere", with_traceback=True).splitlines()
    assert first == "INFO failed\\nhere"
    assert others[0].startswith("Traceback") and others[-1] == "ValueError: what"
