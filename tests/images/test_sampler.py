"""Index streams: every epoch is a permutation, the same everywhere; a stream can be resumed at any batch."""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adamatch.images.sampler import BLOCK, IndexStream

CPU = torch.device("cpu")


def take(stream: IndexStream, count: int) -> list[int]:
    return torch.cat([stream.next() for _ in range(count)]).tolist()


@settings(max_examples=60)
@given(n=st.integers(1, 200), batch=st.integers(1, 70), seed=st.integers(0, 2**40))
@example(n=1, batch=1, seed=0)
@example(n=63, batch=64, seed=0)
@example(n=64, batch=64, seed=0)
@example(n=65, batch=64, seed=0)
@example(n=64 * BLOCK + 1, batch=64, seed=0)
def test_every_epoch_is_a_permutation(n: int, batch: int, seed: int) -> None:
    count = min(3 * BLOCK, -(-5 * n // batch) + 2)
    drawn = take(IndexStream(n, batch, seed, CPU), count)
    assert len(drawn) == count * batch
    for start in range(0, len(drawn) - n + 1, n):
        assert sorted(drawn[start : start + n]) == list(range(n))
    rest = drawn[len(drawn) // n * n :]
    assert len(set(rest)) == len(rest)


@settings(max_examples=60)
@given(n=st.integers(1, 300), batch=st.integers(1, 70), seed=st.integers(0, 1000), taken=st.integers(0, 3 * BLOCK))
def test_the_same_after_a_seek(n: int, batch: int, seed: int, taken: int) -> None:
    straight = IndexStream(n, batch, seed, CPU)
    for _ in range(taken):
        straight.next()
    sought = IndexStream(n, batch, seed, CPU)
    sought.next()
    sought.taken = taken
    assert take(straight, 5) == take(sought, 5)
    assert straight.taken == sought.taken == taken + 5


def test_seeds_and_epochs_differ() -> None:
    first, again, other = (take(IndexStream(50, 10, seed, CPU), 400) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    epochs = [tuple(first[start : start + 50]) for start in range(0, 4000, 50)]
    assert len(set(epochs)) == len(epochs)  # also from block to block


def test_the_order_is_known() -> None:
    """The same on every machine; a change here would change every run."""
    stream = IndexStream(7, 5, 3, CPU)
    assert take(stream, 3) == [6, 2, 0, 3, 4, 1, 5, 1, 2, 5, 0, 3, 4, 6, 1]
    stream.taken = 500
    assert take(stream, 1) == [0, 2, 1, 5, 4]
