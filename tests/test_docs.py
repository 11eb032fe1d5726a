"""What the documentation points to exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE, TESTS = ROOT / "src" / "adamatch", ROOT / "tests"


def cells(column: int) -> list[str]:
    rows = [line for line in (ROOT / "docs" / "faithfulness.md").read_text().splitlines() if line.startswith("|")]
    parts = [line.strip("|").split("|") for line in rows]
    return [part[column] for part in parts if part[0].strip() not in ("statement", "---")]


def pointers(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_row_of_faithfulness_names_code_that_exists() -> None:
    found = 0
    for cell in cells(1):
        for pointer in pointers(cell):
            path, _, name = pointer.partition(": ")
            for each in CODE.rglob(path) if path.endswith(".py") else ():
                found += 1
                assert name.split(".")[-1] in each.read_text(), pointer
            if path.endswith(".py"):
                assert list(CODE.rglob(path)), pointer
    assert found > 20


def test_every_test_that_is_named_exists() -> None:
    sources = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    named = [pointer for cell in cells(2) + cells(3) for pointer in pointers(cell)]
    assert len(named) > 40
    for pointer in named:
        for name in re.findall(r"\btest_\w+(?!\.py)\b", pointer.replace("/", " ")):
            if f"{name}.py" not in {path.name for path in sources}:
                assert any(f"def {name}(" in source for source in sources.values()), pointer
        if pointer.partition(":")[0].endswith(".py") and pointer.startswith(
            ("methods/test", "nets/test", "train/", "data/test")
        ):
            assert (TESTS / pointer.partition(":")[0]).is_file(), pointer


def test_links_of_the_readme_and_the_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"
