"""Docstrings that list arguments in two columns, as in this package -> the sections that mkdocstrings knows."""

import re
from typing import Any

import griffe

ROW = re.compile(r"^(\w+)  +(\S.*)$")


class Columns(griffe.Extension):
    """A block of lines `name    what it is`, with what goes on indented, becomes `Args:`."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = sections(obj.docstring.value)


def sections(text: str) -> str:
    blocks = text.split("\n\n")
    return "\n\n".join(_arguments(block) or block for block in blocks)


def _arguments(block: str) -> str:
    """Empty where the block is no list of arguments."""
    lines = block.splitlines()
    if not lines or not ROW.match(lines[0]) or not all(ROW.match(line) or line.startswith("    ") for line in lines):
        return ""
    made: list[str] = []
    for line in lines:
        row = ROW.match(line)
        made.append(f"    {row[1]}: {row[2]}" if row else f"        {line.strip()}")
    return "\n".join(["Args:", *made])
