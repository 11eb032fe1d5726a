"""The catalogue's facts hang together; where they can be counted, they are."""

import re
from pathlib import Path

import numpy as np
import pytest
from published import formats

from adamatch.base.errors import InputError
from adamatch.datasets import catalog
from adamatch.datasets.catalog import open_store

DOMAINS = [(name, domain) for name, data_set in catalog.SETS.items() for domain in data_set.domains]


@pytest.mark.parametrize(("name", "domain"), DOMAINS)
def test_entries_are_complete(name: str, domain: str) -> None:
    entry = catalog.SETS[name].domains[domain]
    assert entry.page.startswith("http")
    for file in entry.files:
        assert all(source.startswith("http") for source in file.sources)
        assert re.fullmatch("([0-9a-f]{32}|[0-9a-f]{64})?", file.checksum)
        assert not file.sources or file.checksum, "what a program fetches, it can check"


def test_counts_per_class_add_up() -> None:
    digits, pacs = catalog.SETS["digitfive"].domains, catalog.SETS["pacs"].domains
    for domain, total in (("art_painting", 2048), ("cartoon", 2344), ("photo", 1670), ("sketch", 3929)):
        assert np.sum(pacs[domain].counts["train+test"]) == total
    for domain, train, test in (("mnist", 60000, 10000), ("usps", 7291, 2007), ("svhn", 73257, 26032)):
        assert (np.sum(digits[domain].counts["train"]), np.sum(digits[domain].counts["test"])) == (train, test)
    assert np.sum(catalog.SETS["svhn"].domains["svhn"].counts["extra"]) == 531131
    assert np.sum([entry.counts["train"] for entry in catalog.SETS["domainnet"].domains.values()]) == 409832


def test_open_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pacs" / "photo" / "test-64"
    with pytest.raises(InputError, match=r"adamatch data prepare pacs --domain photo --size 64 --from DIR"):
        open_store("pacs", "photo", "test", 64, tmp_path)
    formats.store(path, formats.random_images(2, 64, 64, 3))
    monkeypatch.setenv("ADAMATCH_DATA", str(tmp_path))
    assert len(open_store("pacs", "photo", "test", 64)) == 2
    with pytest.raises(InputError, match="no domain of pacs"):
        open_store("pacs", "photos", "test", 64)
