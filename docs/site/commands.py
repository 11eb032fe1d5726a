"""The reference of the command line, from the commands themselves."""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import typer

from adamatch import cli


def reference() -> str:
    """Markdown: a section for each command, with its options and their defaults."""
    tree: Any = typer.main.get_command(cli.app)
    for name, home in cli.LATER.items():
        tree.commands[name] = typer.main.get_group(importlib.import_module(home).app)
    return "\n\n".join(_sections("adamatch", tree))


def _sections(name: str, command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if name != "adamatch":
        yield f"{'##' if name.count(' ') == 1 else '###'} `{name}`"
        if not below:
            yield f"```\n{_usage(name, command)}\n```"
        yield _text(command.help)
        if not below:
            yield _table(command)
        if command.epilog:
            yield _text(command.epilog)
    for inner, each in below.items():
        yield from _sections(f"{name} {inner}", each)


def _text(written: str | None) -> str:
    """Help for the terminal -> Markdown: indented lines, and lines that begin with code, are examples."""
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"**\1**", written or "")
    blocks = []
    for block in text.split("\n\n"):
        code, comment = re.fullmatch(r"  (\S.*)()|`(adamatch [^`]+)`\s*(.*)", block.strip("\n"), re.DOTALL), ""
        if code:
            command, comment = code[1] or code[3], code[4] or ""
            blocks.append(f"```\n{command}{'    # ' + comment if comment else ''}\n```")
        else:
            blocks.append(re.sub(r": (adamatch .*)$", r": `\1`", block.strip()))
    return "\n\n".join(blocks)


def _usage(name: str, command: Any) -> str:
    needed = [f"{each.opts[0]} {each.name.upper()}" for each in _options(command) if each.required]
    rest = ["[OPTIONS]"] if any(not each.required for each in _options(command)) else []
    return " ".join([name, *needed, *rest, *(_argument(each) for each in _arguments(command))])


def _table(command: Any) -> str:
    rows = ["| | | default |", "| --- | --- | --- |"]
    rows += [
        f"| `{_argument(each)}` | {_cell(each.help)} | {'needed' if each.required else ''} |"
        for each in _arguments(command)
    ]
    for each in _options(command):
        names = ", ".join(f"`{option}`" for option in (*each.opts, *each.secondary_opts))
        rows.append(f"| {names} | {_cell(each.help)} | {_default(each)} |")
    return "\n".join(rows)


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    if option.is_bool_flag and option.secondary_opts:
        return f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    return (
        ""
        if option.default is None or option.default is False or option.default in ("", [], ())
        else f"`{option.default}`"
    )


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("{}[]")
    return name if argument.nargs == 1 else f"{name}..."


def _arguments(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "argument"]


def _options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and each.name != "help"]


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
