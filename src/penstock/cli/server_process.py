"""From a command line to a server: the process is replaced by a lean one that runs `penstock.cli.serve`.

Nothing that only a command line needs then stays in memory for as long as the broker runs. The settings go through a
file without a name, where nobody else can read them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import NoReturn


def become_server(values: Mapping[str, str], data: str, *, verbose: bool) -> NoReturn:
    """Replace this process by one that serves with these settings."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it must outlive this program)
    file.write(json.dumps({"values": dict(values), "data": data, "verbose": verbose}).encode())
    file.seek(0)
    os.set_inheritable(file.fileno(), True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "penstock.cli.serve", str(file.fileno())])
