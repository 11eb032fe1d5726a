"""Where prepared sets lie, and how they are opened."""

import os
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.datasets import catalog
from adamatch.images.store import Store


def store_path(name: str, domain: str, split: str, size: int, root: Path | None = None) -> Path:
    return (root or default_root()) / name / domain / f"{split}-{size}"


def default_root() -> Path:
    """Where prepared sets lie: $ADAMATCH_DATA, else ./data."""
    return Path(os.environ.get("ADAMATCH_DATA", "data"))


def open_store(name: str, domain: str, split: str, size: int, root: Path | None = None) -> Store:
    """A prepared store, or an error that says how to make it."""
    path = store_path(name, domain, split, size, root)
    if not path.exists():
        if domain not in catalog.get(name).domains:
            raise unknown(f"domain of {name}", domain, catalog.get(name).domains)
        raise InputError(
            f"{path} does not exist: make it with `adamatch data prepare {name} --domain {domain} --size {size} --from DIR` "
            "(or name the folder of prepared sets with --data or $ADAMATCH_DATA)"
        )
    return Store.whole(path)
