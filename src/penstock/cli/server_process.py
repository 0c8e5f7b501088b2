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


def become(program: str, order: Mapping[str, Any]) -> NoReturn:
    """Replace this process by one that runs a module with an order."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (it must outlive this program)
    file.write(json.dumps(order).encode())
    file.seek(0)
    os.set_inheritable(file.fileno(), True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", program, str(file.fileno())])
