"""From a command line to a server: the process is replaced by a lean one that runs one of the serving programs.

Nothing that only a command line needs then stays in memory for as long as the server runs. The program is told what to
do by an *order*, which goes through a file without a name, where nobody else can read the settings.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.cli.child import lean_command


def become(program: str, order: Mapping[str, Any]) -> NoReturn:
    """Replace this process by one that runs a module with an order."""
    order_fd = write_order(order)
    os.set_inheritable(order_fd, True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, lean_command(program, order_fd))


def write_order(order: Mapping[str, Any]) -> int:
    """The descriptor of a file without a name that holds the order; `child.read_order` reads it."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(json.dumps(order).encode())
        return os.dup(file.fileno())
