"""What is given on the command line as text -> values; and what arguments are called there, and in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from adamatch.base.errors import InputError, shortened

_command: ContextVar[bool] = ContextVar("command", default=False)


@contextmanager
def as_command() -> Iterator[None]:
    """Inside of it arguments are called as on the command line."""
    before = _command.set(True)
    try:
        yield
    finally:
        _command.reset(before)


def argument(name: str) -> str:
    """`--labels-per-class` on the command line, `labels_per_class` in Python."""
    return f"--{name.removesuffix('s') if name == 'options' else name}".replace("_", "-") if _command.get() else name


def setting(name: str, value: object) -> str:
    """`--skip-bad`, `--no-twin`, `--frozen 0` on the command line; `skip_bad=True`, `twin=False`, `frozen=0` in Python."""
    if not _command.get():
        return f"{name}={value!r}"
    if isinstance(value, bool):
        return argument(name if value else f"no_{name}")
    return f"{argument(name)} {value}"


def flag(name: str) -> str:
    return setting(name, True)


def overwriting() -> str:
    return flag("overwrite")


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
