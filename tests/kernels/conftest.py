from collections.abc import Iterator

import pytest
from kernels.interpreted import DEVICE, interpret


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            interpret(patch)
        yield
