"""Published sets by name: what can be prepared from the files in a folder, and where the prepared stores are."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.datasets import cifar, class_folders, digits, domainnet, stl10
from adamatch.datasets.source import Domain, Found, Split
from adamatch.images.store import Store

SETS = {
    "digitfive": digits.DIGIT_FIVE,
    "domainnet": domainnet.DOMAIN_NET,
    "office31": class_folders.OFFICE_31,
    "pacs": class_folders.PACS,
    "cifar10": cifar.CIFAR_10,
    "cifar100": cifar.CIFAR_100,
    "stl10": stl10.STL_10,
    "svhn": digits.SVHN,
}


def domains_of(name: str, wanted: list[str] | None = None) -> dict[str, Domain]:
    """The wanted domains of a set, or all; an error where it has no such domain, or where there is no such set."""
    if name not in SETS:
        raise unknown("data set", name, SETS)
    domains = SETS[name].domains
    for domain in wanted or ():
        if domain not in domains:
            raise unknown(f"domain of {name}", domain, domains)
    return {domain: domains[domain] for domain in wanted or domains}


def default_root() -> Path:
    """The folder of prepared sets: $ADAMATCH_DATA, else ./data."""
    return Path(os.environ.get("ADAMATCH_DATA", "data"))


def store_path(name: str, domain: str, split: str, size: int, root: Path | None = None) -> Path:
    return (root or default_root()) / name / domain / f"{split}-{size}"


def stores(root: Path, name: str) -> dict[tuple[str, int], dict[str, Path]]:
    """Prepared stores of a set: {(domain, size): {split: path}}."""
    found: dict[tuple[str, int], dict[str, Path]] = {}
    for head in sorted((root / name).glob("*/*/store.json")):
        split, _, size = head.parent.name.rpartition("-")
        if split and size.isdigit():
            found.setdefault((head.parent.parent.name, int(size)), {})[split] = head.parent
    return found


def open_store(name: str, domain: str, split: str, size: int, root: Path | None = None) -> Store:
    """A prepared store, or an error that says how to make it."""
    path = store_path(name, domain, split, size, root)
    if not path.exists():
        domains_of(name, [domain])
        raise InputError(
            f"{path} does not exist: make it with `adamatch data prepare {name} --domain {domain} --size {size} "
            "--from DIR` (or name the folder of prepared sets with --data or $ADAMATCH_DATA)"
        )
    return Store.open(path, whole=True)


@dataclass(frozen=True)
class Job:
    """One store to be made."""

    path: Path
    find: Callable[[], Split]
    size: int
    info: dict[str, str]


def plan(
    name: str, folder: Path, root: Path, domains: list[str] | None = None, size: int | None = None
) -> tuple[list[Job], list[str]]:
    """The stores that can be made from the files below `folder`, and a line for whatever is missing."""
    wanted = domains_of(name, domains)
    size = size or SETS[name].sizes[0]
    if not 8 <= size <= 1024:
        raise InputError(f"images of {size} x {size}: {name} is used at {SETS[name].sizes}, 8 to 1024 is possible")
    found = Found(folder)
    jobs: list[Job] = []
    missing: list[str] = []
    for domain, entry in wanted.items():
        there = SETS[name].read(found, domain)
        absent = []
        for split in (split for key in entry.counts for split in key.split("+")):
            if split in there:
                info = {"set": name, "domain": domain, "split": split}
                jobs.append(Job(store_path(name, domain, split, size, root), there[split], size, info))
            else:
                absent.append(split)
        if absent:
            files = ", ".join(file.name for file in entry.files)
            missing.append(f"{name}/{domain}: no files for {', '.join(absent)} ({files}); they come from {entry.page}")
    if not jobs:
        raise InputError(f"{folder} holds no files of {name}. {missing[0]}")
    return jobs, missing
