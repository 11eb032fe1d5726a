import shutil

import numpy as np
import pytest
import torch
from reference import pillow_ops
from torch import Tensor

from adamatch.augment.ops import METHODS, OPS, Tables, apply
from adamatch.base.errors import InputError

TABLES = {(size, "meant"): Tables(size) for size in (16, 32, 64)} | {(32, "published"): Tables(32, "published")}
COUNT = 48


def pictures(size: int, seed: int) -> Tensor:
    """Noise, gradients, narrow ranges, grey, two-valued and constant images: uint8 [COUNT,3,size,size]."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, (COUNT // 6, 3, size, size))
    ramp = np.add.outer(np.arange(size), np.arange(size)) * rng.uniform(0.2, 2, (COUNT // 6, 3, 1, 1)) % 256
    narrow = rng.integers(0, 250, (COUNT // 6, 3, 1, 1)) + noise % 6
    grey = np.repeat(ramp[:, :1], 3, 1)
    two = np.where(noise < rng.integers(0, 256, (COUNT // 6, 1, 1, 1)), 7, 240)
    constant = np.broadcast_to(noise[:, :, :1, :1], noise.shape)
    return torch.from_numpy(np.concatenate([noise, ramp, narrow, grey, two, constant]).astype(np.uint8))


def uniforms(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    level, level2 = torch.rand(2, COUNT, generator=generator)
    level[::12], level[1::12], level[2::12] = 0.0, 1 - 2**-24, torch.arange(1, 5) / 8  # ends, and edges of steps
    return level, level2, torch.rand(COUNT, 2, generator=generator)


def pillow(
    x: Tensor, names: list[str], level: Tensor, level2: Tensor, place: Tensor, translate: str = "meant"
) -> Tensor:
    results = [
        pillow_ops.apply(image, name, first, second, (row, column), translate)
        for image, name, first, second, (row, column) in zip(
            x.permute(0, 2, 3, 1).contiguous().numpy(),
            names,
            level.tolist(),
            level2.tolist(),
            place.tolist(),
            strict=True,
        )
    ]
    return torch.from_numpy(np.stack(results)).permute(0, 3, 1, 2)


def assert_equal_to_pillow(ours: Tensor, theirs: Tensor, blended: bool) -> None:
    if not blended or pillow_ops.blend_is_fused():
        assert torch.equal(ours, theirs)
    else:  # Pillow rounds twice here where we round once
        difference = (ours.int() - theirs.int()).abs()
        assert difference.max() <= 1
        assert difference.count_nonzero() <= 1e-5 * difference.numel() + 2


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("name", OPS)
def test_every_operation_equals_pillow(name: str, size: int) -> None:
    for seed in range(3):
        x, (level, level2, place) = pictures(size, seed), uniforms(100 * size + seed)
        ours = apply(x, torch.full((COUNT,), OPS.index(name)), level, level2, place, TABLES[size, "meant"])
        assert ours.dtype == torch.uint8
        assert_equal_to_pillow(ours, pillow(x, [name] * COUNT, level, level2, place), name in pillow_ops.BLENDS)


@pytest.mark.parametrize("size", [32, 64])
def test_rescale_equals_pillow_at_every_margin_and_method(size: int) -> None:
    margin, method = torch.meshgrid(torch.arange(size // 4), torch.arange(METHODS), indexing="ij")
    level, level2 = margin.flatten() / (size // 4), (method.flatten() + 0.5) / METHODS
    x = pictures(size, 5).repeat(1 + len(level) // COUNT, 1, 1, 1)[: len(level)]
    place = torch.zeros(len(level), 2)
    ours = apply(
        x, torch.full_like(margin.flatten(), OPS.index("rescale")), level, level2, place, TABLES[size, "meant"]
    )
    assert torch.equal(ours, pillow(x, ["rescale"] * len(level), level, level2, place))


def test_a_mixed_batch_equals_pillow_whatever_its_memory_order() -> None:
    x, (level, level2, place) = pictures(32, 3), uniforms(3)
    op = torch.arange(COUNT) % len(OPS)
    ours = apply(x.contiguous(memory_format=torch.channels_last), op, level, level2, place, TABLES[32, "meant"])
    assert_equal_to_pillow(ours, pillow(x, [OPS[i] for i in op.tolist()], level, level2, place), blended=True)


def test_wrong_size_and_unknown_translation_are_named() -> None:
    x, (level, level2, place) = pictures(16, 0), uniforms(0)
    with pytest.raises(InputError, match=r"\(3, 16, 16\).*\(3, 32, 32\)"):
        apply(x, torch.zeros(COUNT, dtype=torch.int64), level, level2, place, TABLES[32, "meant"])
    with pytest.raises(InputError, match="ment"):
        Tables(32, "ment")


CPU = pytest.param("cpu", marks=[pytest.mark.slow, pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")])
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])


@pytest.mark.parametrize("device", [CPU, GPU])
def test_compiled_operations_equal_eager_ones(device: str) -> None:
    tables, compiled = Tables(32).to(device), torch.compile(apply, dynamic=False)
    x = pictures(32, 0).contiguous(memory_format=torch.channels_last).to(device)
    level, level2, place = (each.to(device) for each in uniforms(0))
    for number, name in enumerate(OPS):
        given = (x, torch.full((COUNT,), number, device=device), level, level2, place, tables)
        assert torch.equal(compiled(*given), apply(*given)), name
