"""What is fuzzed: how a sound file is made, and how it is read."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz.damage import Damage


@dataclass(frozen=True)
class Target:
    """`make` writes a sound file (and what belongs to it) into a folder; `read` reads it as the package does.

    `checked`: the file has checksums, so that damaged bytes are either noticed or change nothing. `inside` are ways of
    damage after which such checksums are right again.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    checked: bool = False
    inside: tuple[Damage, ...] = ()
    share: float = 1.0  # of the cases that others have: less where a case takes seconds


def digest(value: Any) -> str:
    """The same for equal values, of whatever they are made."""
    found = hashlib.sha256()
    _add(value, found)
    return found.hexdigest()


def _add(value: Any, found: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy()
    if isinstance(value, np.ndarray):
        found.update(f"{value.dtype}{value.shape}".encode())
        found.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _add((key, value[key]), found)
    elif isinstance(value, list | tuple):
        found.update(f"({len(value)}".encode())
        for each in value:
            _add(each, found)
    else:
        found.update(repr(value).encode("utf-8", "backslashreplace"))
