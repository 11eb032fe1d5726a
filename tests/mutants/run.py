"""Break the code a line at a time, in copies of the tree, and see that the tests which are named for that line fail.

    python tests/mutants/run.py                             all mutants, two at a time
    python tests/mutants/run.py --only lambda train/loop    those with one of these words in their description or file
    python tests/mutants/run.py --tables methods verdict    those of methods.toml and verdict.toml

The mutants are in the tables beside this file (*.toml): a file, a text in it, what replaces it, what this breaks,
and the tests that should fail. A mutant is

    killed      when an assertion fails in every test that is named,
    survived    when one of them passes, hangs, or fails for another reason (an import, a crash),
    gone        when its text or one of its tests is no longer there, or a test fails without it.
"""

import argparse
import ast
import importlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

HERE = Path(__file__).parent
COPIED = ("src", "tests", "benchmarks", "results", "docs", "examples", "README.md", "Makefile", "pyproject.toml")
SECONDS = 300  # for the tests of one mutant
ASSERTED = ("assert ", "AssertionError", "Failed:")  # how pytest's reasons begin where an assertion failed
# Imported once, before all tests are forked from this process: they would take longer than most of the tests.
SLOW_IMPORTS = ("pytest", "hypothesis", "torch", "torch._dynamo", "torch.utils.data", "scipy.optimize", "scipy.stats")


@dataclass(frozen=True)
class Mutant:
    about: str
    file: str  # below src/adamatch
    old: str
    new: str
    tests: list[str]  # pytest's ids, below tests/


def listed(tables: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of these tables, or of all."""
    chosen = [table for table in sorted(HERE.glob("*.toml")) if not tables or table.stem in tables]
    return [Mutant(**row) for table in chosen for row in tomllib.loads(table.read_text())["mutant"]]


def broken(mutant: Mutant, package: Path) -> str | None:
    """The new text of the mutant's file, or None if the code is gone."""
    file = package / mutant.file
    text = file.read_text() if file.exists() else ""
    if text.count(mutant.old) != 1:
        return None
    text = text.replace(mutant.old, mutant.new)
    ast.parse(text)
    return text


def has(name: str, ids: Sequence[str]) -> bool:
    """Whether there is such a test, with these parameters or with some."""
    return any(each == f"tests/{name}" or each.startswith(f"tests/{name}[") for each in ids)


def copied(tree: Path, to: Path) -> Path:
    """A copy of the tree; the checkout itself is never touched."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
    for name in COPIED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, to / name, ignore=ignored)
        elif (tree / name).exists():
            shutil.copy(tree / name, to / name)
    return to


class Tests:
    """Tests that run in a copy of the tree, in a process of their own."""

    def __init__(self, tree: Path, *arguments: str) -> None:
        self.tree, self.began = tree, time.monotonic()
        context = multiprocessing.get_context("fork")
        options = ("-p", "no:cacheprovider", "-rfE", *arguments)
        self.process: BaseProcess = context.Process(target=_pytest, args=(tree, options))
        self.process.start()

    def status(self, limit: float = SECONDS) -> int | None:
        """pytest's exit status; -1 if it took too long, None while it runs."""
        alive = self.process.is_alive()
        if alive and time.monotonic() - self.began < limit:
            return None
        self.process.kill()
        self.process.join()
        return -1 if alive else self.process.exitcode

    def finished(self) -> str:
        """What it printed, once it has ended."""
        self.process.join()
        return self.output()

    def output(self) -> str:
        return (self.tree / "output").read_text()

    def failed(self) -> list[tuple[str, str]]:
        """Each failed test and pytest's reason."""
        return re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - (.*))?$", self.output(), re.MULTILINE)


def _pytest(tree: Path, arguments: Sequence[str]) -> None:
    """adamatch, which is not imported yet, comes from this tree."""
    sys.dont_write_bytecode = True  # two versions of a file within a second would be taken for the same
    sys.path.insert(0, str(tree / "src"))
    path = os.pathsep.join([str(tree / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"}
    os.chdir(tree)
    with (tree / "output").open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    sys.exit(importlib.import_module("pytest").main(list(arguments)))


class Trial:
    """A mutant whose tests are running in a copy of the tree."""

    def __init__(self, mutant: Mutant, tree: Path) -> None:
        self.mutant, self.tree = mutant, tree
        self.file = tree / "src/adamatch" / mutant.file
        self.whole = self.file.read_text()
        self.file.write_text(self.whole.replace(mutant.old, mutant.new))
        self.names = [f"tests/{name}" for name in mutant.tests]
        self.tests = Tests(tree, *self.names, *(["-x"] if len(self.names) == 1 else []))

    def result(self) -> str | None:
        """Empty if the mutant is killed, else why not; None while its tests run."""
        status = self.tests.status()
        if status is None:
            return None
        self.file.write_text(self.whole)
        if status == -1:
            return f"its tests took more than {SECONDS} s"
        if status not in (0, 1):
            return f"its tests cannot be run: {(self.tests.output().strip().splitlines() or ['?'])[-1]}"
        for test in self.names:
            reasons = [reason for each, reason in self.tests.failed() if each == test or each.startswith(f"{test}[")]
            if not any(reason.startswith(ASSERTED) for reason in reasons):
                return f"{test} {f'fails for another reason: {reasons[0]}' if reasons else 'passes'}"
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--tables", nargs="*", default=[])
    asked = parser.parse_args()
    mutants = [each for each in listed(asked.tables) if any(word in each.about + each.file for word in asked.only)]
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    began, counts = time.monotonic(), Counter[str]()

    def report(kind: str, mutant: Mutant, why: str = "") -> None:
        counts[kind] += 1
        print(f"{kind:8} {mutant.file}: {mutant.about}{f' ({why})' if why else ''}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        whole = copied(HERE.parents[1], Path(folder, "whole"))
        ids = re.findall(r"^(tests/\S+?::.+)$", Tests(whole, "--collect-only", "tests").finished(), re.MULTILINE)
        names = dict.fromkeys(f"tests/{name}" for each in mutants for name in each.tests if has(name, ids))
        unbroken = Tests(whole, "-n", str(asked.processes), *(names or ["--version"]))
        unbroken.finished()
        failing = [name.removeprefix("tests/") for name, _ in unbroken.failed()]
        waiting = []
        for mutant in mutants:
            if broken(mutant, whole / "src/adamatch") is None:
                report("gone", mutant, "the code")
            elif not all(has(name, ids) for name in mutant.tests):
                report("gone", mutant, "a test")
            elif any(each.startswith(name) for each in failing for name in mutant.tests):
                report("gone", mutant, "a test fails without it")
            else:
                waiting.append(mutant)
        free = [copied(HERE.parents[1], Path(folder, str(number))) for number in range(asked.processes)]
        running: list[Trial] = []
        while waiting or running:
            while waiting and free:
                running.append(Trial(waiting.pop(0), free.pop()))
            wait([trial.tests.process.sentinel for trial in running], timeout=5)
            for trial in list(running):
                result = trial.result()
                if result is not None:
                    running.remove(trial)
                    free.append(trial.tree)
                    report("survived" if result else "killed", trial.mutant, result)
    took = time.monotonic() - began
    print(f"{counts['killed']} killed, {counts['survived']} survived, {counts['gone']} gone in {took:.0f} s")
    return 1 if counts["survived"] or not counts["killed"] else 0


if __name__ == "__main__":
    sys.exit(main())
