"""Pages of the documentation, and what is in them: links, anchors, blocks of code, commands; and those there are."""

import functools
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import typer

from adamatch import cli

ROOT = Path(__file__).parent.parent
# In the order of reading, so that what a command needs was made by one before it.
FIRST = ("README", "start", "tasks", "photographs", "inputs", "few-labels", "report", "deploy", "own-code")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
SHELL = ("", "sh", "bash", "console")


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return sorted(found, key=lambda page: FIRST.index(page.stem) if page.stem in FIRST else len(FIRST))


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(page.name, language, dedent(text)) for _, language, text in found]


def commands(block: Block) -> Iterator[list[str]]:
    """Every command of a block for a terminal, as words; comments and where the output goes are left out."""
    if block.language in SHELL:
        for line in block.text.replace("\\\n", " ").splitlines():
            yield from _commands(shlex.split(line, comments=True))


def _commands(words: list[str]) -> Iterator[list[str]]:
    if "&&" in words:
        at = words.index("&&")
        yield from _commands(words[:at])
        yield from _commands(words[at + 1 :])
    elif words:
        yield words[: words.index(">")] if ">" in words else words


@functools.cache
def command_line() -> Any:
    """The program's click command with all others; those below `data` and `grid` are imported when they are called."""
    made: Any = typer.main.get_command(cli.app)
    for name, home in cli.LATER.items():
        made.commands[name] = typer.main.get_group(importlib.import_module(home).app)
    return made


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def inline(page: Path) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Of the headings: lower case, punctuation left out, hyphens for spaces, as on the site."""
    heads = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
