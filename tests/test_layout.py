"""How the package is laid out: imports go one way, files are short, nothing is called utils."""

import ast
import tomllib
from pathlib import Path

import pytest

import adamatch

PACKAGE = Path(adamatch.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# Each may import what stands to the left of it, and its own part.
ORDER: list[set[str]] = [
    {"errors", "files", "given", "locks", "terminal", "ranks", "starting", "system"},
    {"data"},
    {"augment", "nets"},
    {"methods"},
    {"train"},
    {"evaluate"},
    {"judge"},
    {"sets"},  # published data sets: it needs data alone, and only what stands to its right needs it
    {"model", "report", "export", "experiment", "settings", "twin", "ending"},
    {"fit", "demo", "grid"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}
LONGEST = 300


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(file: Path) -> set[str]:
    """Parts of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}, line {node.lineno}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    inside = {name.split(".")[1] for name in found if name.startswith("adamatch.")}
    return inside & RANK.keys()


def test_every_part_has_its_place() -> None:
    assert len(FILES) > 60
    assert {part_of(file) for file in FILES} <= RANK.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_only_leftwards(file: Path) -> None:
    own = part_of(file)
    wrong = {part for part in imported(file) if RANK[part] > RANK[own]}
    assert not wrong, f"{own} must not import {', '.join(sorted(wrong))}"


def test_published_sets_need_nothing_but_data() -> None:
    needed = {part for file in FILES if part_of(file) == "sets" for part in imported(file)}
    assert needed <= {"sets", "data", "errors", "files", "terminal", "system"}


def test_a_verdict_cannot_see_labels_of_the_target() -> None:
    """What judges gets neither a problem, which has test sets, nor anything that opens them."""
    for file in (each for each in FILES if part_of(each) == "judge"):
        tree = ast.parse(file.read_text())
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not named & {"Problem", "Evaluation", "score", "RunFolder", "result"}, file.name
        assert not asked & {"tests", "result"}, file.name
        assert not imported(file) & {"sets", "experiment", "model", "report"}, file.name
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                given = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
                assert not given & {"problem", "tests", "test", "true", "truth", "target_labels"}, (
                    file.name,
                    node.name,
                )
                if "labels" in given:  # of labelled images, to count them
                    assert (file.name, node.name) in {("class_shares.py", "of_labels"), ("eval_outputs.py", "accuracy")}, (
                        file.name
                    )


def test_the_parser_sees_what_is_imported() -> None:
    assert {"augment", "methods", "nets"} <= imported(PACKAGE / "train" / "step.py")
    assert "train" in imported(PACKAGE / "evaluate.py")
    assert "cli" in imported(PACKAGE / "__main__.py")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_files_are_short_and_say_what_they_are(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) <= LONGEST
    assert file.stem not in ("utils", "util", "helpers", "common", "misc")
    assert not text or ast.get_docstring(ast.parse(text))


MOST_ARGUMENTS = 6
# A kernel and its operators take every tensor and number on its own: the schema of a custom operator knows no tuples of them.
KERNELS = {"kernels.py", "kernels_conv.py", "kernels_depthwise.py", "fused.py", "norm.py"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_what_travels_together_is_one_value(file: Path) -> None:
    """Few arguments, but for public calls that name each, and the options of the command line."""
    commands = part_of(file) == "cli" or file.name == "commands.py"
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and file.name not in KERNELS and not commands:
            given = [each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in ("self", "cls")]
            public = not node.name.startswith("_") or node.name == "__init__"
            count = len(given) if public else len(given) + len(node.args.kwonlyargs)
            assert count <= MOST_ARGUMENTS, f"{node.name}, line {node.lineno}, takes {count}"


def test_nothing_is_unpickled_or_executed() -> None:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("exec", "eval", "pickle.load", "pickle.loads"), f"{file.name}, line {node.lineno}"
                if called == "torch.load":
                    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert given.get("weights_only") == "True", f"{file.name}, line {node.lineno}"


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    assert adamatch.__version__ == project["version"]
    assert (PACKAGE / "py.typed").exists()
