"""Checkpoints: tensors in a safetensors file, all else in a JSON file beside it that vouches for both by checksum."""

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from adamatch.data.store import checksum

KEPT = 2


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint and drop all but the last two. The JSON file comes last: without it there is no checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.safetensors"
    part, described = path.with_suffix(".part"), path.with_suffix(".json")
    try:
        write_tensors(part, tensors)
        os.replace(part, path)
        told = {**facts, "step": step, "sha256": checksum(path)}
        write_atomically(described, json.dumps(told | {"own_sha256": _digest(told)}))
    except (OSError, SafetensorError):
        part.unlink(missing_ok=True)
        if not described.exists():
            path.unlink(missing_ok=True)
        raise
    for old in _newest_first(folder)[KEPT:]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)
    return path


def load(folder: Path, say: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole, or None. A damaged one is named and passed over."""
    for described in _newest_first(folder):
        path = described.with_suffix(".safetensors")
        try:
            facts = json.loads(described.read_text())
            if facts.pop("own_sha256") == _digest(facts) and facts["sha256"] == checksum(path):
                return load_file(path), facts
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            pass  # said below, as for a wrong checksum
        say(f"{path} is damaged: using the checkpoint before it, or starting anew where there is none")
    return None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, for others to read as any file of ours is (the library makes it the owner's alone)."""
    path.touch()
    mode = path.stat().st_mode
    save_file({name: _apart(tensor) for name, tensor in tensors.items()}, path)
    path.chmod(mode)


def write_atomically(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")  # of its own: others may write the same file
    try:
        with part.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def newest(folder: Path) -> Path | None:
    """The newest checkpoint's tensors."""
    return next((path.with_suffix(".safetensors") for path in _newest_first(folder)), None)


def disk_is_full(error: BaseException | None) -> bool:
    """Whether that is at the bottom of it."""
    while error is not None:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):  # not every library gives a number
            return True
        error = error.__cause__ or error.__context__
    return False


def _apart(tensor: Tensor) -> Tensor:
    """A copy in memory of its own: the format takes no two names for the same memory (tied weights)."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)
