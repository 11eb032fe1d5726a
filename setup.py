"""The README as an index of packages shows it, where links within the repository lead nowhere. Else: pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def readme(text: str, source: str = "") -> str:
    """Links and pictures by their address in the repository `source`; without one, words alone."""
    if source:
        text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{source}/raw/HEAD/", text)
        return re.sub(r"\]\((?!https?:|#)", f"]({source}/blob/HEAD/", text)
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)", "", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    shown = readme((ROOT / "README.md").read_text(encoding="utf-8"), urls.get("Source", ""))
    setup(long_description=shown, long_description_content_type="text/markdown")
