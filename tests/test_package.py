"""What the package says of itself: extras by one name everywhere, one version, files that it names."""

import re
import runpy
import tomllib
from pathlib import Path, PurePath

import yaml
from readme_renderer.markdown import render

import adamatch

ROOT = Path(__file__).parent.parent
PACKAGE = Path(adamatch.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_extras_have_one_name_everywhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files = [*(ROOT / "src").rglob("*.py"), *pages]
    named = {
        (file.name, name)
        for file in files
        for names in re.findall(r"adamatch\[([\w,]+)\]", file.read_text())
        for name in names.split(",")
    }
    assert len(named) > 4
    assert {name for _, name in named} <= PROJECT["optional-dependencies"].keys(), named


def test_the_version_is_the_changelogs() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"] == adamatch.__version__


def test_what_is_named_exists() -> None:
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
    assert not PROJECT.get("urls")  # none that leads nowhere
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_readme_of_an_index_leads_nowhere_wrong() -> None:
    """Where the repository is published is one line of pyproject.toml; without it there are words."""
    readme = runpy.run_path(str(ROOT / "setup.py"))["readme"]
    text = (ROOT / "README.md").read_text()
    for source in ("", "https://host/adamatch"):
        shown = render(readme(text, source))
        leads = re.findall(r'(?:href|src)="([^"]+)"', shown)
        assert leads
        assert all(each.startswith(("https://", "#")) for each in leads)
        assert "](" not in shown
        pictures = re.findall(r'<img[^>]*src="https://host/adamatch/raw/HEAD/([^"]+)"', shown)
        assert len(pictures) == (text.count("![") if source else 0)
        pages = re.findall(r'href="https://host/adamatch/blob/HEAD/([^"#]+)', shown)
        assert all((ROOT / each).is_file() for each in (*pictures, *pages))


def test_a_wheel_has_what_is_read_at_run_time() -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["adamatch"]
    there = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.is_file()}
    data = {name for name in there if not name.endswith((".py", ".pyc"))}
    assert data == {name for pattern in packaged for name in data if PurePath(name).match(pattern)}


def test_constraints_have_every_package_that_the_extras_of_development_name() -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    extras = PROJECT["optional-dependencies"]
    wanted = [
        *PROJECT["dependencies"],
        *extras["dev"],
        *extras["parquet"],
        *extras["heic"],
        *extras["export"],
        *extras["photos"],
    ]
    names = {re.split(r"[^\w-]", text)[0].lower().replace("_", "-") for text in wanted} - {"adamatch"}
    assert names <= pinned, names - pinned
