"""Arguments as the user writes them, on the command line and in Python; and values of the command line from text."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from adamatch.base.errors import InputError, shortened

_command: ContextVar[bool] = ContextVar("command", default=False)
_NONE = object()


@contextmanager
def as_command() -> Iterator[None]:
    """Within it, messages name arguments as on the command line."""
    before = _command.set(True)
    try:
        yield
    finally:
        _command.reset(before)


def argument(name: str, value: object = _NONE) -> str:
    """`--frozen`, `--frozen 0`, `--skip-bad`, `--no-twin`; in Python frozen, frozen=0, skip_bad=True, twin=False."""
    if not _command.get():
        return name if value is _NONE else f"{name}={value!r}"
    if value is False:
        name = f"no_{name}"
    name = "--" + (name.removesuffix("s") if name == "options" else name).replace("_", "-")
    return name if value is _NONE or isinstance(value, bool) else f"{name} {value}"


def number(name: str, text: str, kind: type[int] | type[float]) -> float | None:
    """None for `auto`, else a number."""
    if text == "auto":
        return None
    try:
        return kind(text.replace("_", "").replace(",", ""))
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"{argument(name)} takes auto or {what}, not {shortened(text)}") from None


def options(texts: list[str]) -> dict[str, Any]:
    """name=value pairs; true, false, numbers and lists of numbers (0.2,0.8) are understood."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--option takes name=value, not {shortened(text)}")
        found[name] = [_value(each) for each in value.split(",")] if "," in value else _value(value)
    return found


def _value(text: str) -> bool | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
