"""Checkpoints: tensors in a safetensors file, all else in a JSON file beside it, with checksums of both."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as tensors_as_bytes
from torch import Tensor

from adamatch.base.errors import InputError
from adamatch.base.files import (
    SEAL,
    checksum,
    disk_is_full,
    disk_reason,
    read_checked,
    read_json,
    sealed,
    sync,
    unsealed,
    write_atomically,
    write_whole,
)
from adamatch.base.regular_files import WEIGHTS

KEPT = 2


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint and drop all but the last two. The JSON file comes last: without it there is no checkpoint."""
    path = folder / f"step-{step:09d}.safetensors"
    described = path.with_suffix(".json")
    try:
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
        write_tensors(path, tensors)
        write_atomically(described, json.dumps(sealed({**facts, "step": step, "sha256": checksum(path)})))
        kept = {each.stem for each in _newest_first(folder)[:KEPT]}
        for old in sorted(folder.glob("step-*")):  # of each the JSON file first
            if old.stem not in kept:
                old.unlink()
    except (OSError, SafetensorError) as error:
        if not folder.parent.exists():
            raise InputError(
                f"{folder.parent} was removed while the run was running: run the same command again"
            ) from None
        if not described.exists():
            path.unlink(missing_ok=True)
        remedy = "make room" if disk_is_full(error) else "see to that"
        before = "the one before it is whole" if newest(folder) else "there was none before it"
        raise InputError(
            f"{folder}: the checkpoint of step {step} could not be written ({disk_reason(error)}): {remedy} and run "
            f"the same command again; {before}"
        ) from None
    return path


def load(folder: Path, say: Callable[[str], None]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole, or None. A damaged one is named and passed over."""
    for described in _newest_first(folder):
        path = described.with_suffix(".safetensors")
        try:
            found = read_json(described)
            facts = unsealed(found)
            tensors = read_checked(path, WEIGHTS)
            known = SEAL in found and facts["sha256"] == hashlib.sha256(tensors).hexdigest()
            if known and path.stem == f"step-{facts['step']:09d}":
                return parse_tensors(tensors), facts
        except (FileNotFoundError, ValueError, KeyError, TypeError, SafetensorError):
            pass  # said below, as for a wrong checksum
        except OSError as error:  # it may be whole: its steps are not taken again
            raise InputError(
                f"{path} cannot be read ({disk_reason(error)}): see to that and run the same command again"
            ) from None
        say(f"{path} is damaged: using the checkpoint before it, or starting anew where there is none")
    return None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, whole or not at all."""
    how = {"copy": True, "memory_format": torch.contiguous_format}  # the format takes no shared memory (tied weights)
    copies = {name: tensor.detach().to("cpu", **how) for name, tensor in tensors.items()}  # type: ignore[call-overload]
    write_whole(path, lambda part: save_file(copies, part))


def save_file(tensors: dict[str, Tensor], path: Path) -> None:
    """As the library's, which leaves a file of another name there when it is killed."""
    path.write_bytes(tensors_as_bytes(tensors))


def randoms(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's own random numbers, which a network's dropout may draw from."""
    found = {"random.cpu": torch.get_rng_state()}
    return found | {"random.cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else found


def set_randoms(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint's tensors."""
    return next((path.with_suffix(".safetensors") for path in _newest_first(folder)), None)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)
