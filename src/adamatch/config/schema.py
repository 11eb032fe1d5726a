"""How a setting is declared: once, with its default, its range and what it is for. All else is derived from that."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Any

from adamatch.base.errors import InputError, shortened, unknown

LARGEST = sys.float_info.max  # no setting is infinite
COMMANDS = ("fit", "train")


def setting(
    default: Any = MISSING,
    about: str = "",
    *,
    least: float | None = None,
    most: float = LARGEST,
    choices: Sequence[str] = (),
    commands: Sequence[str] = (),
) -> Any:
    """A field of a frozen dataclass. `commands` are those of the command line that have an option for it."""
    facts = {"about": about, "least": least, "most": most, "choices": tuple(choices), "commands": tuple(commands)}
    return field(default=default, metadata=facts)


def settings_of(kind: Any, command: str) -> Iterator[Field[Any]]:
    """Those for which a command has an option."""
    return (each for each in fields(kind) if command in each.metadata.get("commands", ()))


def check(values: Any) -> None:
    """Every setting has its type and lies in its range. 1 becomes 1.0 for a float: equal recipes have equal text."""
    for each in fields(values):
        if "least" in each.metadata:
            object.__setattr__(values, each.name, checked(each, getattr(values, each.name)))


def checked(field: Field[Any], value: Any) -> Any:
    """The value of one setting, as its type."""
    facts = field.metadata
    if field.type in (int, float):
        value = _number(field.name, value, field.type)
    elif field.type in (str, bool) and not isinstance(value, field.type):
        kind = "a name" if field.type is str else "true or false"
        raise InputError(f"{field.name} is {kind}, not {shortened(value)}")
    if facts["choices"] and value not in facts["choices"]:
        raise unknown(f"value of {field.name}", value, facts["choices"])
    least, most = facts["least"], facts["most"]
    if least is not None and not least <= value <= most:  # nor is nan
        upwards = "up" if most == LARGEST else f"to {most:,.0f}"
        raise InputError(f"{field.name} is a number from {least:g} {upwards}, not {shortened(value)}")
    return value


def _number(name: str, given: Any, kind: Any) -> Any:
    try:
        number = kind(given)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is a number, not {shortened(given)}") from None
    if isinstance(given, float) and number != given == given:  # nan is not in any range
        raise InputError(f"{name} is a whole number, not {shortened(given)}")
    return number


def changed(values: Any) -> dict[str, Any]:
    """What differs from the defaults, by name. A setting that is added later, at its default, changes no run's id."""
    found = {}
    for each in fields(values):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if (value := getattr(values, each.name)) != default:
            found[each.name] = value
    return found
