"""Every API in every version, live: cut short and mutated, while a bystander's traffic goes on.

Whatever the bytes are, the broker answers or closes the connection within a few seconds, and lives. Requests that no
test may really make (they would delete the bystander's topic) cannot come about: the names in the samples are others.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.wire.codec import encode
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest

from .mutants import ALL_APIS, Attacker, mutations, sample

pytestmark = pytest.mark.fuzz

MUTATIONS = 40
LONG_MUTATIONS = 2000


@pytest.fixture(scope="module")
def served(shared_broker: Any) -> list[Any]:
    for name in ("fuzzed", "fuzzed-2"):
        shared_broker.create_topic(name)
    with shared_broker.connect() as client:
        return list(
            client.call(ApiVersionsRequest(client_software_name="penstock", client_software_version="1")).api_keys
        )


def test_every_api_and_version(target: Any, served: list[Any], request: pytest.FixtureRequest) -> None:
    count = LONG_MUTATIONS if request.config.getoption("--long") else MUTATIONS
    attacker = Attacker(target.connect)
    attacker.send_all(served, count, random.Random(1))
    assert attacker.answered > 100 and attacker.closed > 100


def test_many_mutants_at_once(target: Any, served: list[Any]) -> None:
    """All connections at the same time, each with requests that follow one another without waiting."""
    chance = random.Random(2)
    clients = [target.connect() for _ in range(20)]
    for _ in range(10):
        for client in clients:
            row = chance.choice(served)
            version = chance.randrange(row.min_version, row.max_version + 1)
            body = encode(sample(ALL_APIS[row.api_key].request, version, chance), version)
            client.send(b"".join(client.frame(row.api_key, version, mutant) for mutant in mutations(body, 3, chance)))
    for client in clients:
        client.close()
