"""Break the code a line at a time, in copies of the tree, and see that the tests which are there for that line notice.

    python tests/mutants/run.py                           all of them, two at a time
    python tests/mutants/run.py --only lambda mirror      those with one of these words in what they are about, or in their
                                                          file's name
    python tests/mutants/run.py --tables methods nets     those of methods.toml and nets.toml
    python tests/mutants/run.py --processes 1             one at a time

The mutants are in the tables beside this file (*.toml): the file, a text that occurs once in it, what is put in its place,
what that breaks, and the tests that should see it. One is killed where an assertion of every test that is named fails. One
that cannot be imported, crashes or hangs is not: such a thing says nothing of what the test is about.
"""

import argparse
import importlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "benchmarks", "results", "pyproject.toml")  # what the tests that are named need
SECONDS = 300  # for the tests of one
ASSERTED = ("assert ", "AssertionError", "Failed:")  # how pytest's reasons begin where an assertion failed
# Imported once, before all tests are forked from this process: they would take longer than most of the tests.
SLOW_IMPORTS = ("pytest", "hypothesis", "torch", "torch._dynamo", "torch.utils.data", "scipy.optimize", "scipy.stats")


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


@dataclass
class Tests:
    """Tests under way in a copy of the tree, in a process of their own."""

    tree: Path
    names: Iterable[str]
    options: Iterable[str] = ()
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        arguments = ["-p", "no:cacheprovider", "-rfE", *self.options, *self.names]
        self.process: BaseProcess = multiprocessing.get_context("fork").Process(
            target=_pytest, args=(self.tree, arguments)
        )
        self.process.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def said(self) -> str:
        return (self.tree / "said").read_text()

    def status(self, limit: float = SECONDS) -> int | None:
        """pytest's; -1 where it took too long, None while it is under way."""
        if self.process.is_alive() and self.seconds < limit:
            return None
        late = self.process.is_alive()
        self.process.kill()
        self.process.join()
        return -1 if late else self.process.exitcode


def _pytest(tree: Path, arguments: list[str]) -> None:
    """adamatch, which is not imported yet, comes from this tree."""
    sys.dont_write_bytecode = True  # two versions of a file within a second would be taken for the same
    sys.path.insert(0, str(tree / "src"))
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"}
    os.chdir(tree)
    with (tree / "said").open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.exit(importlib.import_module("pytest").main(arguments))


class Trial:
    """One mutant and its tests, under way."""

    def __init__(self, mutant: Mutant, tree: Path) -> None:
        self.mutant, self.tree = mutant, tree
        self.whole = (tree / mutant.path).read_text()
        (tree / mutant.path).write_text(self.whole.replace(mutant.old, mutant.new))
        self.tests = Tests(tree, mutant.tests, ["-x"] if len(mutant.tests) == 1 else [])

    def verdict(self) -> str | None:
        """Empty where the mutant is killed, else what is wrong; None while its tests are under way."""
        status = self.tests.status()
        if status is None:
            return None
        (self.tree / self.mutant.path).write_text(self.whole)
        if self.whole.count(self.mutant.old) != 1:
            return f"its text is {self.whole.count(self.mutant.old)} times in {self.mutant.path}: bring it up to date"
        if status == -1:
            return f"its tests were not done after {SECONDS} s"
        said = self.tests.said
        if status not in (0, 1):
            return f"its tests cannot be run: {(said.strip().splitlines() or ['?'])[-1]}"
        failed: list[tuple[str, str]] = re.findall(r"^FAILED (\S.*?)(?: - (.*))?$", said, re.MULTILINE)
        for test in self.mutant.tests:
            reasons = [reason for each, reason in failed if each == test or each.startswith(f"{test}[")]
            if not reasons:
                return f"SURVIVED {test}"
            if not any(reason.startswith(ASSERTED) for reason in reasons):
                return f"DIED OF SOMETHING ELSE in {test}: {reasons[0]}"
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--tables", nargs="*", default=[])
    given = parser.parse_args()
    chosen = [
        each for each in listed(*given.tables) if any(word in each.about or word in each.file for word in given.only)
    ]
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    began, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        names = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
        unbroken = Tests(copied(Path(folder) / "whole"), names, ["-n", str(given.processes)])
        unbroken.process.join(10 * SECONDS)
        if unbroken.status(10 * SECONDS) != 0:
            print(unbroken.said, "the tests fail before anything is broken", sep="\n")
            return 1
        waiting, free = (
            list(reversed(chosen)),
            [copied(Path(folder) / f"{number}") for number in range(given.processes)],
        )
        running: list[Trial] = []
        while waiting or running:
            while waiting and free:
                running.append(Trial(waiting.pop(), free.pop()))
            wait([trial.tests.process.sentinel for trial in running], timeout=5)
            for trial in list(running):
                told = trial.verdict()
                if told is None:
                    continue
                running.remove(trial)
                free.append(trial.tree)
                wrong += told != ""
                of = f"{trial.mutant.file}: {trial.mutant.about} ({trial.tests.seconds:.0f} s)"
                print(f"  {told}: {of}" if told else f"killed: {of}", flush=True)
    worked = os.times().children_user + os.times().children_system
    print(
        f"{len(chosen) - wrong} of {len(chosen)} killed in {time.monotonic() - began:.0f} s ({worked:.0f} s of a core)"
    )
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
