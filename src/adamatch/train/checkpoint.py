"""Checkpoints: tensors in a safetensors file, all else in a JSON file beside it that vouches for the first by checksum."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from adamatch.data.store import checksum

KEPT = 2


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint and drop all but the last two. The JSON file comes last: without it there is no checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.safetensors"
    part = path.with_suffix(".part")
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, part)
        os.replace(part, path)
        write_atomically(path.with_suffix(".json"), json.dumps({"sha256": checksum(path), "step": step, **facts}))
    except (OSError, SafetensorError):
        part.unlink(missing_ok=True)
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
            if checksum(path) == facts["sha256"]:
                return load_file(path), facts
        except (OSError, ValueError, KeyError, SafetensorError):
            pass  # said below, as for a wrong checksum
        say(f"{path} is damaged: using the checkpoint before it")
    return None


def write_atomically(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)
