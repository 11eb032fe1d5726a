"""How the package is laid out: imports go one way, and neither training nor a verdict can see labels of the target."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import adamatch

PACKAGE = Path(adamatch.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# A part may import the parts before it, and itself.
ORDER = (
    *("base", "config", "images", "datasets", "kernels", "networks", "augment", "methods", "train", "initialise"),
    *(
        "evaluate",
        "verdict",
        "ask",
        "predictions",
        "export",
        "report",
        "card",
        "hub",
        "model",
        "prepare",
        "finalise",
        "experiment",
        "twin",
        "seeds",
        "plan",
    ),
    *("fit", "sklearn", "demo", "grid", "cli", "adamatch", "__main__"),
)
FOR_TRAINING = ("images", "networks", "augment", "methods", "train", "initialise")


def module(file: Path) -> str:
    return ".".join(("adamatch", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module(file): file for file in FILES}


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else name


def named(node: ast.AST) -> Iterator[str]:
    """Modules that a statement imports, and strings that are the name of one: `import_module("adamatch.fit")`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name != "adamatch")
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in MODULES else str(node.module) if alias.name != "__version__" else ""
    elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "adamatch":
        yield f"adamatch.{node.attr}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
        yield node.value


@cache
def imported(name: str) -> dict[str, int]:
    """Modules of the package that a module imports anywhere, in functions and for type checking too, and where."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        for each in named(node):
            if each in MODULES and each != name:
                found.setdefault(each, getattr(node, "lineno", 0))
    return found


def nodes(*parts: str) -> Iterator[tuple[str, ast.AST]]:
    """Everything that is written in these parts, each with its file and line."""
    for name, file in MODULES.items():
        if not parts or part(name) in parts:
            for node in ast.walk(ast.parse(file.read_text())):
                yield f"{file.relative_to(PACKAGE)}, line {getattr(node, 'lineno', 0)}", node


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that reach each other."""
    reach = {name: set(near) for name, near in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return [set(group) for group in groups if group]


def test_every_part_has_its_place() -> None:
    assert len(FILES) > 60
    assert {part(name) for name in MODULES} <= set(ORDER)


@pytest.mark.parametrize("own", ORDER)
def test_imports_go_one_way(own: str) -> None:
    wrong = [
        f"{name}, line {line}, imports {other}"
        for name in MODULES
        if part(name) == own
        for other, line in imported(name).items()
        if ORDER.index(part(other)) > ORDER.index(own)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("own", sorted({part(name) for name in MODULES}))
def test_no_part_imports_in_a_circle(own: str) -> None:
    inside = {name for name in MODULES if part(name) == own}
    found = circles({name: imported(name).keys() & inside for name in inside})
    assert not found, "\n".join(" <-> ".join(sorted(group)) for group in found)


def test_imports_and_circles_are_seen() -> None:
    assert {"adamatch.methods.parts", "adamatch.methods.contract"} <= imported("adamatch.methods.adamatch").keys()
    assert "adamatch.cli" in imported("adamatch.__main__")
    assert "adamatch.fit" in imported("adamatch")  # for type checking, and by its name
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "b"}}) == [{"b", "c"}]


def test_training_never_opens_labelled_test_sets() -> None:
    """They are `Problem.tests`: `evaluate` gets them from those who call it, to the right of all that trains."""
    for place, node in nodes(*FOR_TRAINING):
        if not place.startswith("initialise/feature_cache.py"):  # which computes features of all images
            assert not (isinstance(node, ast.Attribute) and node.attr == "tests"), place


def test_a_verdict_cannot_see_labels_of_the_target() -> None:
    """It gets neither a problem, which has test sets, nor anything that opens them."""
    opens = {"Problem", "Evaluation", "score", "RunFolder", "result"}
    truth = {"problem", "tests", "test", "true", "truth", "target_labels"}
    counted = {"of_labels", "accuracy"}  # their labels are the source's
    for place, node in nodes("verdict"):
        match node:
            case ast.Name():
                assert node.id not in opens, place
            case ast.ImportFrom():
                assert not opens & {alias.name for alias in node.names}, place
            case ast.Attribute():
                assert node.attr not in {"tests", "result"}, place
            case ast.FunctionDef():
                arguments = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
                assert not arguments & truth, place
                assert "labels" not in arguments or node.name in counted, place
    needed = {part(other) for name in MODULES if part(name) == "verdict" for other in imported(name)}
    assert not needed & {"datasets", "experiment", "model", "report"}


def test_nothing_is_unpickled_or_executed() -> None:
    for place, node in nodes():
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("exec", "eval", "pickle.load", "pickle.loads", "pickle.Unpickler"), place
            if called == "torch.load":
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given.get("weights_only") == "True", place


@pytest.mark.parametrize("name", MODULES)
def test_a_module_says_what_it_is(name: str) -> None:
    text = MODULES[name].read_text()
    assert name.split(".")[-1] not in ("utils", "util", "helpers", "common", "misc")
    assert not text or ast.get_docstring(ast.parse(text))
