"""The settings of transactions, read once from all settings."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """What one broker's owner has decided about transactions; the defaults are those of the settings' tables."""

    timeout_ms_max: int = 900_000
    timeout_check_interval_ms: int = 10_000
    id_expiration_ms: int = 604_800_000
    id_expiration_check_interval_ms: int = 3_600_000
    prepared_timeout_ms: int = 3_600_000

    @classmethod
    def of(cls, settings: Settings) -> TransactionSettings:
        return cls(
            timeout_ms_max=settings.integer("transaction.max.timeout.ms"),
            timeout_check_interval_ms=settings.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            id_expiration_ms=settings.integer("transactional.id.expiration.ms"),
            id_expiration_check_interval_ms=settings.integer(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
            prepared_timeout_ms=settings.integer("transaction.prepared.timeout.ms"),
        )
