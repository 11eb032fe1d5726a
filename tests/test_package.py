"""What the package says of itself: extras by one name everywhere, one version, files that it names."""

import re
import tomllib
from pathlib import Path

import adamatch

ROOT = Path(__file__).parent.parent
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
    assert (ROOT / PROJECT["readme"]).is_file()
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
    assert not PROJECT.get("urls")  # none that leads nowhere


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
