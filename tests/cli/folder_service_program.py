"""Two programs for the tests of `pipeline up`: the service itself, and a stand-in for what it starts.

The stand-in for `penstock pipeline run` and `check` does what comments in a pipeline's file say: `# fails` ends with an
error, `# refused` does not pass the check, `# finishes` ends well; any other runs until it is asked to stop.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from penstock.cli.pipeline_service import FolderService
from penstock.pipelines.service import Rules

OPTIONS = ["--master", "spark://somewhere:7077", "--conf", "spark.sql.ansi.enabled=false", "--conf", "spark.x=y"]


def serve(folder: Path) -> None:
    def tell(name: str, text: str, _is_bad: bool) -> None:
        print(f"[{name}] {text}", flush=True)

    rules = Rules(pause_s=0.1, pause_s_max=0.4)
    stand_in = (sys.executable, __file__)
    FolderService(
        folder, folder / "state", OPTIONS, tell, rules=rules, program=stand_in, has_started=lambda _name, _since_s: True
    ).run()


def stand_in(command: str, file: Path) -> int:
    text = file.read_text()
    if command == "check":
        if sys.argv[3:] != OPTIONS[2:]:
            print(f"penstock: wrong options {sys.argv[3:]}", file=sys.stderr)
            return 1
        if "# refused" in text:
            print(f"{file}:3: sinks.out: no column 'amuont'", file=sys.stderr)
            print(f"penstock: {file}: 1 mistake", file=sys.stderr)
            return 1
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "# fails" in text:
        print("penstock: no broker answers", file=sys.stderr)
        return 1
    if "# finishes" in text:
        return 0
    version = next((line for line in text.splitlines() if line.startswith("# version")), "# version 1")
    print(f"runs {version[2:]} {Path('/proc/self').resolve().name}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        sys.exit(stand_in(sys.argv[1], Path(sys.argv[2])))
