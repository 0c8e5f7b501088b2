"""One way to write each address."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.addresses import is_address, plain_address
from penstock.base.real_network import RealNetwork
from penstock.base.world import Stream


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0::A", "2001:db8::a"),
        ("a name", "a name"),
        ("", ""),
    ],
)
def test_an_address_is_written_in_one_way(written: str, plain: str) -> None:
    assert plain_address(written) == plain
    assert is_address(written) == (":" in plain or "." in plain)


def test_a_listener_for_both_families_knows_clients_by_their_own() -> None:
    async def drive() -> None:
        network = RealNetwork()
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = await network.listen("::", 0, accepted.set_result)
        client = await network.connect("127.0.0.1", listener.address.port)
        stream = await accepted
        assert (stream.peer.host, stream.local.host) == ("127.0.0.1", "127.0.0.1")
        for each in (client, stream, listener):
            each.close()

    asyncio.run(drive())
