"""What the site needs beyond its pages: files outside of docs/, equations as MathML, the commands, and a last look."""

import html
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
from commands import reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = ("results", "examples", "benchmarks", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
LINK = re.compile(r"(\]\()(\.\./)*(" + "|".join(map(re.escape, OUTSIDE)) + r")(?=[/)#])")
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//"""
)


def on_files(files: Files, config: Any) -> Files:
    """What pages link to outside of docs/ is part of the site: results become pages and files, folders become lists."""
    for name in OUTSIDE:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            uri = path.relative_to(ROOT).as_posix()
            if "__pycache__" in uri:
                continue
            made = {"content": _list(path)} if path.is_dir() else {"abs_src_path": str(path)}
            uri += "/index.md" if path.is_dir() else ""
            files.append(File.generated(config, uri, inclusion=InclusionLevel.NOT_IN_NAV, **made))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the repository become links within the site."""
    here = page.file.src_uri
    if here == "commands.md":
        markdown = markdown.replace("<!-- commands -->", reference())
    if Path(here).parent == Path():
        markdown = LINK.sub(r"\1\3", markdown)
    return re.sub(r"\]\(([^):]+)/\)|\]\((results|[^):.]*/[^):./]+)\)", r"](\1\2/index.md)", markdown)


def on_page_content(html: str, **_: Any) -> str:  # the argument's name is MkDocs's
    return EQUATION.sub(_mathml, html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Readers fetch nothing from anywhere else."""
    if found := FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} would fetch something from elsewhere: {found[0]}")
    return output


def _list(folder: Path) -> str:
    """A page that lists a folder."""
    entries = sorted(path for path in folder.iterdir() if path.name != "__pycache__")
    names = [
        f"- [{path.name}/]({path.name}/index.md)" if path.is_dir() else f"- [{path.name}]({path.name})"
        for path in entries
    ]
    return "\n".join([f"# {folder.relative_to(ROOT)}", "", *names])


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    made = latex2mathml.converter.convert(html.unescape(found[2]), display=display)
    return f'<div class="equation">{made}</div>' if display == "block" else made
