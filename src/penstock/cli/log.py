"""`penstock log`: shows and checks the files of a data folder, without a broker and without changing anything.

A path is a file, the folder of a partition, a log directory with many of those, or the folder that `penstock up` was
given, which has its log directory in `logs`, and those of further brokers in `broker-1/logs` and so on. All of it may
as well come from Apache Kafka.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.real_disk import RealDisk
from penstock.cli.failure import ExitCode, Failure
from penstock.cli.log_text import (
    batch_document,
    batch_text,
    index_documents,
    index_text,
    problem_document,
    problem_text,
    record_texts,
    summary_document,
    summary_text,
)
from penstock.cli.options import Json, family
from penstock.cli.output import print_heading, print_line
from penstock.log import names
from penstock.log.inspect import (
    FolderSummary,
    InspectedBatch,
    Problem,
    partition_folders,
    read_segment,
    segment_files,
    verify_folder,
)

LOGS_FOLDER = "logs"
OTHER_BROKERS = "broker-[0-9]*"  # than the first, whose folder is that of all
INDEX_SUFFIXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)

app = family("Look into the files of a data folder.")

Target = Annotated[
    Path, typer.Argument(metavar="PATH", help="A file, a partition's folder, or a data folder.", show_default=False)
]


@app.command()
def dump(
    path: Target,
    records: Annotated[bool, typer.Option("--records", "-r", help="The messages inside the batches too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each batch as a line of JSON.")] = False,
) -> None:
    """Show the batches of segment files, or the entries of an index or snapshot file."""
    disk = RealDisk()
    found_problem = False
    for file in _files(disk, path):
        if not as_json:
            print_heading(file)
        if file.endswith(INDEX_SUFFIXES):
            _dump_index(disk, file, as_json)
            continue
        for item in read_segment(disk, file, with_records=records):
            found_problem |= isinstance(item, Problem) or item.problem is not None
            _print_item(item, as_json)
    if found_problem:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def verify(
    path: Target,
    records: Annotated[bool, typer.Option("--records", "-r", help="Read the messages in the batches too.")] = False,
    as_json: Json = False,
) -> None:
    """Check every batch, index and checkpoint; ends with 1 if something is wrong."""
    problems = 0
    summaries = 0
    for item in _verified(RealDisk(), path, records):
        problems += isinstance(item, Problem)
        summaries += isinstance(item, FolderSummary)
        if as_json:
            _print_json(problem_document(item) if isinstance(item, Problem) else summary_document(item))
        else:
            print_line(problem_text(item) if isinstance(item, Problem) else summary_text(item))
    if problems:
        sys.stdout.flush()
        raise Failure(f"{problems} problem{'s' * (problems != 1)} found")


def _verified(disk: RealDisk, path: Path, records: bool) -> Iterator[Problem | FolderSummary]:
    if not path.is_dir():
        for item in read_segment(disk, str(_existing(path)), with_records=records):
            if isinstance(item, Problem):
                yield item
            elif item.problem is not None:
                yield Problem(item.path, item.position, item.problem)
        return
    directories = [str(directory) for directory in _log_directories(disk, path)]
    folders = [folder for directory in directories for folder in partition_folders(disk, directory)]
    if folders == directories:
        _files(disk, path)
    for folder in folders:
        yield from verify_folder(disk, folder, with_records=records)


def _files(disk: RealDisk, path: Path) -> list[str]:
    """The files to look into; a failure if there are none."""
    directories = _log_directories(disk, _existing(path))
    files = [file for directory in directories for file in segment_files(disk, str(directory))]
    if not files:
        raise Failure(f"{path} holds no segment files, nor do folders in it", ExitCode.NOT_FOUND)
    return files


def _existing(path: Path) -> Path:
    if not path.exists():
        raise Failure(f"there is no file or folder {path}", ExitCode.NOT_FOUND)
    return path


def _log_directories(disk: RealDisk, path: Path) -> list[Path]:
    """Those of the brokers inside the folder of `penstock up`, or the path itself."""
    if path.is_dir() and not segment_files(disk, str(path)):
        others = sorted(path.glob(f"{OTHER_BROKERS}/{LOGS_FOLDER}"))
        inside = [directory for directory in (path / LOGS_FOLDER, *others) if directory.is_dir()]
        if inside:
            return inside
    return [path]


def _dump_index(disk: RealDisk, file: str, as_json: bool) -> None:
    for document in index_documents(disk, file):
        if as_json:
            _print_json({"file": file, **document})
        else:
            print_line(index_text(document))


def _print_item(item: InspectedBatch | Problem, as_json: bool) -> None:
    if isinstance(item, Problem):
        if as_json:
            _print_json(problem_document(item))
        else:
            print_line(problem_text(item))
    elif as_json:
        _print_json(batch_document(item))
    else:
        print_line(batch_text(item))
        for line in record_texts(item, sys.stdout.isatty()):
            print_line(line)


def _print_json(document: dict[str, Any]) -> None:
    print_line(json.dumps(document, ensure_ascii=False))
