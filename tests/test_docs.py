"""What the documentation points to exists."""

import ast
import re

from pages import ROOT, anchors, links, pages

from adamatch.grid import draw

CODE, TESTS = ROOT / "src" / "adamatch", ROOT / "tests"


def cells(column: int) -> list[str]:
    """Of the tables of statements."""
    text = (ROOT / "docs" / "faithfulness.md").read_text().replace("\\|", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    parts = [line.strip("|").split("|") for line in rows]
    return [part[column] for part in parts if len(part) == 4 and part[0].strip() not in ("statement", "---")]


def pointers(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def names(tree: ast.AST, before: str = "") -> set[str]:
    """Functions, classes and what is assigned, at the top of a module or a class: `Run`, `Run.to_json`, `FAST`."""
    found: set[str] = set()
    for node in getattr(tree, "body", []):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(before + node.name)
        if isinstance(node, ast.ClassDef):
            found |= names(node, f"{before}{node.name}.")
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {before + target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_row_of_faithfulness_names_code_that_exists() -> None:
    pages = [cell for column in (1, 3) for cell in cells(column)]
    found = [pointer for cell in pages for pointer in pointers(cell) if re.match(r"[\w/]+\.py\b", pointer)]
    code = [pointer for pointer in found if "test_" not in pointer]
    assert len(code) > 40
    for pointer in code:
        path, colon, name = pointer.partition(": ")
        assert (CODE / path).is_file(), pointer
        assert colon, f"{pointer}: of what in it?"
        assert name in names(ast.parse((CODE / path).read_text())), pointer
    assert all(pointers(cell) or cell.strip() == "same" for cell in cells(1)), "a row without code"


def of_the_paper() -> list[list[str]]:
    """The rows of the table of the paper's equations, tables and figures: of three columns."""
    text = (ROOT / "docs" / "faithfulness.md").read_text()
    part = text[text.index("| in the paper | command |") :].split("\n\n")[0]
    return [line.strip("|").split("|") for line in part.splitlines()[2:]]


def test_every_table_and_figure_of_the_paper_has_a_command() -> None:
    drawn = {name for row in of_the_paper() for name in re.findall(r"grid draw ([\w-]+)", row[1])}
    assert drawn <= set(draw.DRAWINGS)
    assert {"uda", "ssl", "pretraining", "ablation", "sensitivity", "curves", "pairs"} <= drawn
    for row in of_the_paper():
        assert re.search(r"`adamatch \w+|none: ", row[1]), row[0]
        assert "test" in row[2] or "same" in row[2], row[0]


def test_every_test_that_is_named_exists() -> None:
    sources = {path: path.read_text() for path in TESTS.rglob("test_*.py")}
    named = [pointer for cell in cells(2) + cells(3) for pointer in pointers(cell)]
    named += [pointer for row in of_the_paper() for pointer in pointers(row[2])]
    assert len(named) > 40
    for pointer in named:
        for name in re.findall(r"\btest_\w+(?!\.py)\b", pointer.replace("/", " ")):
            if f"{name}.py" not in {path.name for path in sources}:
                assert any(f"def {name}(" in source for source in sources.values()), pointer
        if found := re.match(r"\w+/test_\w+\.py", pointer):
            assert (TESTS / found[0]).is_file(), pointer


def test_links_of_the_readme_and_the_documents_lead_somewhere() -> None:
    found = 0
    for page in (*pages(), ROOT / "CONTRIBUTING.md", *(ROOT / "results").glob("*.md")):
        for link in links(page):
            file, _, anchor = link.partition("#")
            to = page.parent / file if file else page
            assert link.startswith("http") or to.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(to), f"{page.name}: {link}"
            found += 1
    assert found > 100


def test_every_page_is_in_the_navigation_and_its_pictures_are_small() -> None:
    listed = re.findall(r" ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
    for picture in (*(ROOT / "docs").glob("*.png"), *(ROOT / "docs").glob("*.jpg")):
        assert picture.stat().st_size < 250_000, picture.name
