"""Mutations by machine: change constants, signs, comparisons, calls and arguments, and see that a test fails.

    python tests/mutants/machine.py                      640 mutants of the parts below, drawn by a fixed seed
    python tests/mutants/machine.py --only grid report   those of these parts
    python tests/mutants/machine.py --out FILE           results, a line each, as they come; a later call goes on
    python tests/mutants/machine.py --table              the score of each part from such a file, and who survived

Every mutant is one change of the syntax tree of one file, run against the few test files of its part. It is killed when
one of these fails or hangs. Those that survive have to be in survivors.json, with the reason why no test can or need
tell them: a mutant that is not there, or a score below 95 %, is an error. It is known by its text: lines may move.
"""

import argparse
import ast
import hashlib
import importlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants.run import HERE, SLOW_IMPORTS, Tests, copied

# Files below src/adamatch, and the tests below tests/ that they are run against; what is quick comes first.
PARTS: dict[str, tuple[str, str]] = {
    "evaluate": ("evaluate.py predictions.py", "test_evaluate.py test_predictions.py base/test_console.py"),
    "model": ("model.py", "test_model.py"),
    "methods": ("methods/*.py", "methods"),
    "grid": (
        "grid/tables.py grid/figures.py grid/published.py grid/draw.py",
        "grid/test_tables.py grid/test_published.py grid/test_draw.py",
    ),
    "datasets": (
        "datasets/cifar.py datasets/class_folders.py datasets/digits.py datasets/domainnet.py datasets/numeric.py "
        "datasets/rendered.py datasets/source.py datasets/stl10.py",
        "published/test_readers.py published/test_numeric.py published/test_rendered.py",
    ),
    "report": (
        "report/charts.py report/compare.py report/image_statistics.py report/pool.py report/printed.py "
        "report/record.py",
        "report/test_parts.py report/test_measured.py report/test_compare.py",
    ),
    "train": (
        "train/meter.py train/speed.py train/optim.py",
        "train/test_step.py train/test_loop.py train/test_plain.py",
    ),
    "initialise": (
        "initialise/p*.py initialise/simclr.py initialise/stages.py initialise/domain_similarity.py",
        "initialise/test_propagate.py initialise/test_simclr.py initialise/test_first_head.py "
        "initialise/test_stages.py initialise/test_domain_similarity.py",
    ),
    "verdict": ("verdict/*.py", "verdict"),
    "ranks": ("base/ranks.py", "base/test_ranks.py"),
    "export": ("export.py", "test_export.py"),
}
COUNT, SEED, LEAST = 640, 0, 95.0
SECONDS = 180  # for the tests of one mutant
OPPOSITE: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "/",
    ast.Mod: "*",
    ast.Pow: "*",
}
# Imported before the tests are forked, besides what the other runner imports; what is not there is left out.
MORE_IMPORTS = (
    "sklearn.linear_model sklearn.metrics matplotlib.figure pandas pyarrow polars onnxruntime typer rich.table"
)
SAME = {"float", "int", "str", "list", "tuple", "cast", "bool", "Path", "len"}  # a call of these is often of no effect
GUARDS = {"strict", "frozen", "missing_ok", "exist_ok", "parents"}  # keywords that assert or forgive
EITHER_WAY = {"os.path.samefile", "max", "min"}  # the order of their arguments is of none


class Mutant(NamedTuple):
    part: str
    file: str  # below src/adamatch
    kind: str
    line: str  # as it is in the file, without spaces around it
    nth: int  # of those changes of such a line
    old: str
    new: str
    start: int  # bytes
    end: int

    @property
    def key(self) -> str:
        """What it is known by, wherever its line is."""
        return f"{self.file}: {self.line}: {self.old} -> {self.new} ({self.nth})"


def changes(source: str) -> Iterator[tuple[str, ast.AST, str]]:
    """Of a module: the kind of change, the node that is replaced, and by what text."""

    def text(node: ast.AST) -> str:
        return ast.get_source_segment(source, node) or ""

    for node in _code(ast.parse(source)):
        match node:
            case ast.Constant(value=bool() as value):
                yield "constant", node, str(not value)
            case ast.Constant(value=int() as value):
                yield "constant", node, str(value + 1)
            case ast.Constant(value=float() as value):
                yield "constant", node, repr(2 * value if value else 1.0)
            case ast.UnaryOp(op=ast.USub() | ast.Not()):
                yield "sign", node, f"({text(node.operand)})"
            case ast.BinOp() if type(node.op) in OPPOSITE and not _is_text(node):
                yield "sign", node, f"({text(node.left)}) {OPPOSITE[type(node.op)]} ({text(node.right)})"
            case ast.BoolOp(values=[first, *others]):
                other = " or " if isinstance(node.op, ast.And) else " and "
                yield "comparison", node, f"({other.join(f'({text(each)})' for each in (first, *others))})"
            case ast.Compare(ops=[op], comparators=[right]):
                yield "comparison", node, f"{text(node.left)} {OPPOSITE[type(op)]} {text(right)}"
            case ast.Expr(value=ast.Call()):
                yield "call", node, "..."
            case ast.Call(func=ast.Name(id=name), args=[only], keywords=[]) if name not in SAME:
                yield "call", node, f"({text(only)})"
            case ast.Call(args=[first, second, *_]) if (
                text(first) != text(second) and text(node.func) not in EITHER_WAY
            ):
                if not any(isinstance(each, ast.Starred) for each in (first, second)):
                    begin, middle = text(node).split(text(first), 1)
                    between, rest = middle.split(text(second), 1)
                    yield "arguments", node, f"{begin}{text(second)}{between}{text(first)}{rest}"


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of annotations, imports, assertions, and of what is raised (the words of an error)."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr)):
            continue
        if isinstance(child, ast.keyword) and child.arg in GUARDS:
            continue
        yield child
        if isinstance(child, ast.AnnAssign):
            if child.value is not None:
                yield child.value
                yield from _code(child.value)
        elif isinstance(child, ast.FunctionDef):
            for part in (*child.args.defaults, *filter(None, child.args.kw_defaults), *child.body):
                yield part
                yield from _code(part)
        else:
            yield from _code(child)


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", 0), str) for side in sides)


def mutants(part: str, package: Path) -> list[Mutant]:
    """All of a part."""
    found: list[Mutant] = []
    for path in sorted(path for pattern in PARTS[part][0].split() for path in package.glob(pattern)):
        source, known = path.read_text(), Counter[tuple[str, str, str]]()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line.encode()))
        for kind, node, new in changes(source):
            first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
            start, end = starts[first - 1] + node.col_offset, starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]
            old = source.encode()[start:end].decode()
            line, key = source.splitlines()[first - 1].strip(), (source.splitlines()[first - 1].strip(), old, new)
            name = str(path.relative_to(package))
            mutant = Mutant(part, name, kind, line, known[key], old, new, start, end)
            if old != new:
                known[key] += 1
                found.append(mutant)
    return found


def mutated(source: str, mutant: Mutant) -> str:
    whole = source.encode()
    return (whole[: mutant.start] + mutant.new.encode() + whole[mutant.end :]).decode()


def _reads(mutant: Mutant, package: Path) -> bool:
    """Whether it is Python, and another program."""
    source = (package / mutant.file).read_text()
    try:
        return ast.dump(ast.parse(mutated(source, mutant))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def chance(mutant: Mutant) -> str:
    """A number by which mutants are drawn, each for itself: other lines may come and go."""
    return hashlib.sha256(f"{SEED} {mutant.key}".encode()).hexdigest()


def drawn(package: Path, only: list[str], count: int) -> list[Mutant]:
    """So many, evenly over the parts as far as these have so many; in the order in which they are run."""
    chosen: list[Mutant] = []
    every = {part: mutants(part, package) for part in PARTS}
    left = count
    for number, (part, mine) in enumerate(sorted(every.items(), key=lambda each: len(each[1]))):
        share = min(len(mine), left // (len(every) - number))
        left -= share
        chosen += itertools.islice((each for each in sorted(mine, key=chance) if _reads(each, package)), share)
        print(f"{part}: {share} of {len(mine)} mutants", file=sys.stderr)
    order = list(PARTS)
    return sorted((each for each in chosen if not only or each.part in only), key=lambda each: order.index(each.part))


class Trial:
    """A mutant whose tests are running in a copy of the tree."""

    def __init__(self, mutant: Mutant, tree: Path, failing: list[str]) -> None:
        self.mutant, self.tree, self.began = mutant, tree, time.monotonic()
        self.path = tree / "src/adamatch" / mutant.file
        self.source = self.path.read_text()
        self.path.write_text(mutated(self.source, mutant))
        self.tests = Tests(tree, "-x", "-q", *tests_of(mutant.part), *(f"--deselect={each}" for each in failing))

    def result(self) -> dict[str, Any] | None:
        """What is written down of it; None while its tests run."""
        status = self.tests.status(SECONDS)
        if status is None:
            return None
        self.path.write_text(self.source)
        result, seconds = "killed" if status else "survived", round(time.monotonic() - self.began, 1)
        mutant = self.mutant
        return {"part": mutant.part, "kind": mutant.kind, "mutant": mutant.key, "result": result, "seconds": seconds}


def tests_of(part: str) -> list[str]:
    return [f"tests/{name}" for name in PARTS[part][1].split()]


def run_all(chosen: list[Mutant], out: Path, processes: int) -> Iterator[dict[str, Any]]:
    """The results of mutants, as they come. Tests that fail without any (a library is missing, say) are left out."""
    waiting = list(chosen)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, out.open("a") as file:
        free = [copied(HERE.parents[1], Path(folder, str(number))) for number in range(processes)]
        failing: dict[str, list[str]] = {}
        for part in dict.fromkeys(each.part for each in chosen):
            unbroken = Tests(free[0], "-q", *tests_of(part))
            unbroken.finished()
            failing[part] = [name for name, _ in unbroken.failed()]
            print(f"{part}: {len(failing[part])} tests fail without a mutant: {failing[part]}", flush=True)
        running: list[Trial] = []
        while waiting or running:
            while waiting and free:
                mutant = waiting.pop(0)
                running.append(Trial(mutant, free.pop(), failing[mutant.part]))
            wait([trial.tests.process.sentinel for trial in running], timeout=5)
            for trial in list(running):
                if (result := trial.result()) is not None:
                    running.remove(trial)
                    free.append(trial.tree)
                    file.write(json.dumps(result) + "\n")
                    file.flush()
                    yield result


def known_survivors() -> dict[str, str]:
    """Those that are argued, by their key, and why."""
    found: dict[str, str] = json.loads((HERE / "survivors.json").read_text())
    return found


def score(rows: list[dict[str, Any]]) -> int:
    """Print each part's, and who survived without a reason; the exit code."""
    reasons, parts = known_survivors(), Counter[tuple[str, str]]()
    parts.update((row["part"], row["result"]) for row in rows)
    for part in PARTS:
        killed, survived = parts[part, "killed"], parts[part, "survived"]
        if killed + survived:
            print(f"{part:12} {killed:4} of {killed + survived:4} killed, {100 * killed / (killed + survived):.1f} %")
    unknown = [row["mutant"] for row in rows if row["result"] == "survived" and row["mutant"] not in reasons]
    killed = sum(row["result"] == "killed" for row in rows)
    share = 100 * killed / max(1, len(rows))
    print(f"{killed} of {len(rows)} killed, {share:.1f} %; {len(unknown)} survived without a reason in survivors.json")
    print(*(f"survived: {each}" for each in unknown), sep="\n")
    return int(bool(unknown) or share < LEAST)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=PARTS)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/mutants.jsonl"))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    if asked.table:
        return score(rows)
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in (*SLOW_IMPORTS, *MORE_IMPORTS.split()):
        with suppress(ImportError):
            importlib.import_module(name)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    chosen, done = drawn(HERE.parents[1] / "src/adamatch", asked.only, asked.count), {row["mutant"] for row in rows}
    for row in run_all([each for each in chosen if each.key not in done], asked.out, asked.processes):
        rows.append(row)
        if row["result"] == "survived":
            print(f"survived {row['mutant']}", flush=True)
    keys = {each.key for each in chosen}
    return score([row for row in rows if row["mutant"] in keys])


if __name__ == "__main__":
    sys.exit(main())
