"""Break the code a line at a time, in copies of the tree, and see that the tests which are there for that line notice.

    python tests/mutants/run.py                           all of them, two at a time
    python tests/mutants/run.py --only lambda             those with this word in what they are about, or in their file's name
    python tests/mutants/run.py --tables methods nets     those of methods.toml and nets.toml
    python tests/mutants/run.py --processes 1             one at a time

The mutants are in the tables beside this file (*.toml): the file, a text that occurs once in it, what is put in its place,
what that breaks, and the tests that should see it. One is killed where an assertion of every test that is named fails. One
that cannot be imported, crashes or hangs is not: such a thing says nothing of what the test is about.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "benchmarks", "results", "pyproject.toml")  # what the tests that are named need
SECONDS = 300  # for the tests of one
ASSERTED = ("assert ", "AssertionError", "Failed:")  # how pytest's reasons begin where an assertion failed


@dataclass(frozen=True)
class Mutant:
    about: str
    file: str  # below src/adamatch
    old: str
    new: str
    tests: tuple[str, ...]  # pytest's ids, below tests/

    @property
    def path(self) -> str:
        return f"src/adamatch/{self.file}"


def listed(*tables: str) -> list[Mutant]:
    """The mutants of these tables, or of all."""
    found = []
    for table in sorted(Path(__file__).parent.glob("*.toml")):
        if tables and table.stem not in tables:
            continue
        for row in tomllib.loads(table.read_text())["mutant"]:
            found.append(Mutant(**{**row, "tests": tuple(f"tests/{test}" for test in row["tests"])}))
    return found


def copied(to: Path) -> Path:
    """A copy of the tree; the checkout itself is never touched."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, to / name)
    return to


def pytest(tree: Path, tests: Iterable[str], seconds: float = SECONDS) -> tuple[int, str]:
    """The exit status (-1: too slow) and what was printed, of these tests in this copy of the tree."""
    # No bytecode: two versions of a file within a second would be taken for the same.
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    told = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfE", *tests]
    try:
        ran = subprocess.run(
            command, cwd=tree, env=os.environ | told, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return ran.returncode, ran.stdout + ran.stderr


def verdict(mutant: Mutant, tree: Path) -> str:
    """Empty where the mutant is killed, else what is wrong."""
    file = tree / mutant.path
    whole = file.read_text()
    if whole.count(mutant.old) != 1:
        return f"its text is {whole.count(mutant.old)} times in {mutant.path}: bring it up to date"
    file.write_text(whole.replace(mutant.old, mutant.new))
    try:
        status, said = pytest(tree, mutant.tests)
    finally:
        file.write_text(whole)
    if status == -1:
        return f"its tests were not done after {SECONDS} s"
    if status not in (0, 1):
        return f"its tests cannot be run: {(said.strip().splitlines() or ['?'])[-1]}"
    failed: list[tuple[str, str]] = re.findall(r"^FAILED (\S.*?)(?: - (.*))?$", said, re.MULTILINE)
    for test in mutant.tests:
        reasons = [reason for each, reason in failed if each == test or each.startswith(f"{test}[")]
        if not reasons:
            return f"SURVIVED {test}"
        if not any(reason.startswith(ASSERTED) for reason in reasons):
            return f"DIED OF SOMETHING ELSE in {test}: {reasons[0]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--tables", nargs="*", default=[])
    given = parser.parse_args()
    chosen = [each for each in listed(*given.tables) if given.only in each.about or given.only in each.file]
    began, waiting, wrong = time.monotonic(), queue.SimpleQueue[Mutant](), list[str]()
    for mutant in chosen:
        waiting.put(mutant)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        whole = copied(Path(folder) / "whole")
        status, said = pytest(whole, dict.fromkeys(test for mutant in chosen for test in mutant.tests), 10 * SECONDS)
        if status:
            print(said, "the tests fail before anything is broken", sep="\n")
            return 1

        def work(number: int) -> None:
            tree = copied(Path(folder) / f"{number}")
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                start = time.monotonic()
                told = verdict(mutant, tree)
                wrong.extend([mutant.about] if told else [])
                took = time.monotonic() - start
                print(f"{'  ' + told if told else 'killed'}: {mutant.file}: {mutant.about} ({took:.0f} s)", flush=True)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(given.processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} killed in {time.monotonic() - began:.0f} s")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
