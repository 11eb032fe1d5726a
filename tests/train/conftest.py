"""One thread: the same sums in the same order in every process, and quicker for tiny tensors."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)  # before any other fixture of a module
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
