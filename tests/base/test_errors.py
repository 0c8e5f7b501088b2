"""The table of errors: complete, worded, and used by ApiError."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error


def test_codes_are_without_gaps() -> None:
    assert sorted(error.value for error in Error) == list(range(-1, len(Error) - 1))


def test_every_error_has_a_sentence_of_its_own() -> None:
    shared = {Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED}
    texts = [error.text for error in Error if error not in shared]
    assert len(set(texts)) == len(texts)
    for error in Error:
        assert error.text[0].isupper() and error.text.endswith(".") and len(error.text) < 160, error.name


def test_what_may_have_happened_is_not_definite() -> None:
    open_ended = {error for error in Error if not error.definite}
    assert open_ended == {
        Error.UNKNOWN_SERVER_ERROR,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.NOT_CONTROLLER,
        Error.DUPLICATE_SEQUENCE_NUMBER,
        Error.KAFKA_STORAGE_ERROR,
        Error.FEATURE_UPDATE_FAILED,
        Error.NEW_LEADER_ELECTED,
    }


def test_an_api_error_has_the_text_of_its_error_unless_told_otherwise() -> None:
    assert ApiError(Error.INVALID_CONFIG).message == Error.INVALID_CONFIG.text
    special = ApiError(Error.INVALID_CONFIG, "retention.ms must be a number")
    assert special.message == str(special) == "retention.ms must be a number"
    assert special.error is Error.INVALID_CONFIG and Error(40) is Error.INVALID_CONFIG
