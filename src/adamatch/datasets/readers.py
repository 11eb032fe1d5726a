"""Which reader reads which set, and what of a set can be made from the files in a folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.datasets import catalog, cifar, digits, domainnet, office31, pacs, stl10
from adamatch.datasets.prepared import store_path
from adamatch.datasets.source import Found, Split, Splits

READERS: Mapping[str, Callable[[Found, str], Splits]] = {
    "digitfive": digits.read,
    "domainnet": domainnet.read,
    "office31": office31.read,
    "pacs": pacs.read,
    "cifar10": cifar.read,
    "cifar100": cifar.read,
    "stl10": stl10.read,
    "svhn": digits.read,
}


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
    """The stores that can be made from what lies below `folder`, and a line for each thing that is missing."""
    data_set = catalog.get(name)
    for domain in domains or ():
        if domain not in data_set.domains:
            raise unknown(f"domain of {name}", domain, data_set.domains)
    size = size or data_set.sizes[0]
    if not 8 <= size <= 1024:
        raise InputError(
            f"images of {size} x {size} were asked for: {name} is used at {data_set.sizes}, 8 to 1024 is possible"
        )
    found = Found(folder)
    jobs: list[Job] = []
    missing: list[str] = []
    for domain in domains or data_set.domains:
        entry = data_set.domains[domain]
        splits = READERS[name](found, domain)
        wanted = [split for key in entry.counts for split in key.split("+")]
        for split in wanted:
            if split in splits:
                info = {"set": name, "domain": domain, "split": split}
                jobs.append(Job(store_path(name, domain, split, size, root), splits[split], size, info))
        if absent := [split for split in wanted if split not in splits]:
            files = ", ".join(file.name for file in entry.files)
            missing.append(f"{name}/{domain}: no files for {', '.join(absent)} ({files}); they come from {entry.page}")
    if not jobs:
        raise InputError(f"{folder} holds nothing of {name}. {missing[0]}")
    return jobs, missing
