"""Views: what is weak, what is strong, that both follow from the draws alone."""

import pytest
import torch

from adamatch.augment.ctaugment import CTAugment, Policy
from adamatch.augment.ops import OPS
from adamatch.augment.views import CUTOUT, STRONG, WEAK, Views, normalise
from adamatch.augment.weak import cutout, shift_mirror
from adamatch.base.errors import InputError


def batch(n: int = 6, size: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def draws(views: Views, n: int = 6) -> torch.Tensor:
    return torch.rand(n, views.draws, generator=torch.Generator().manual_seed(1))


def test_pixels_are_normalised_as_published() -> None:
    x = torch.tensor([0, 127, 128, 255], dtype=torch.uint8)
    assert normalise(x).tolist() == [-127.5 / 128, -0.5 / 128, 0.5 / 128, 127.5 / 128]


def test_cutout_views_are_shift_and_mirror_then_a_hole() -> None:
    views, x = Views(16, strong="cutout"), batch()
    u = draws(views)
    weak, strong = views(x, u)
    assert torch.equal(weak, normalise(shift_mirror(x, u[:, :WEAK])))
    moved = shift_mirror(x, u[:, WEAK : 2 * WEAK])
    assert torch.equal(strong, normalise(cutout(moved, u[:, -CUTOUT:])))


def test_the_learned_policy_stands_between_shift_and_hole() -> None:
    views, x = Views(16, strong="cta"), batch()
    u = draws(views)
    assert views.policy is not None
    expected = views.policy(shift_mirror(x, u[:, WEAK : 2 * WEAK]), u[:, 2 * WEAK : -CUTOUT])
    assert torch.equal(views(x, u)[1], normalise(cutout(expected, u[:, -CUTOUT:])))


@pytest.mark.parametrize("strong", STRONG)
def test_views_follow_from_the_draws_and_not_from_the_batch(strong: str) -> None:
    views, x = Views(16, strong=strong), batch()
    u = draws(views)
    together = views(x, u)
    for i in range(len(x)):
        alone = views(x[i : i + 1], u[i : i + 1])
        assert torch.equal(alone[0][0], together[0][i])
        assert torch.equal(alone[1][0], together[1][i])


def test_without_mirror_no_image_is_flipped() -> None:
    """Neither in the weak view, nor in the strong one, nor in a probe."""
    x = torch.arange(16, dtype=torch.uint8).expand(50, 3, 16, 16).contiguous()
    views = Views(16, strong="cutout", mirror=False)
    weak, _ = views(x, draws(views, 50))
    assert bool((weak[:, 0, 0, 12] > weak[:, 0, 0, 3]).all())
    views, x = Views(16, mirror=False), batch()
    u = draws(views)
    other = u.clone()
    other[:, [2, 5]] = 1 - u[:, [2, 5]]  # what would decide on the mirror
    for ours, theirs in zip(views(x, u), views(x, other), strict=True):
        assert torch.equal(ours, theirs)
    other[:, WEAK:] = u[:, WEAK:]
    assert torch.equal(views.probe(x, u)[0], views.probe(x, other)[0])


def test_probes_teach_the_rates_and_only_of_a_learned_policy() -> None:
    views, x = Views(16), batch()
    assert views.learns
    assert not Views(16, strong="cutout").learns
    assert not Views(16, strong="randaugment").learns
    probes, policy = views.probe(x, draws(views))
    assert probes.shape == x.shape
    right = torch.eye(10)[:6]
    before = views.state_dict()["policy.rates"].clone()
    views.learn(policy, right, right)
    assert torch.equal(views.state_dict()["policy.rates"], before)  # recognised perfectly: 1 stays 1
    views.learn(policy, right.flip(1), right)
    assert views.state_dict()["policy.rates"].sum() < before.sum()


def test_translations_as_published_move_nothing() -> None:
    x = batch(400)
    published, meant = (Views(16, strong=strong, mirror=False) for strong in ("cta-published", "cta"))
    u = draws(published, 400)
    one, other = published(x, u)[1], meant(x, u)[1]
    translated = {OPS.index("translate_x"), OPS.index("translate_y")}
    assert isinstance(meant.policy, CTAugment)
    chosen = meant.policy.learned_policy(u[:, 2 * WEAK : -CUTOUT]).op
    moved = torch.tensor([bool(translated & set(row)) for row in chosen.tolist()])
    assert torch.equal(one[~moved], other[~moved])
    assert (one[moved] != other[moved]).flatten(1).any(1).float().mean() > 0.8
    assert published.learns


def test_an_unknown_strong_view_is_named() -> None:
    with pytest.raises(InputError, match="cutout"):
        Views(16, strong="cut-out")


def test_a_rate_moves_by_half_the_distance_of_the_probabilities() -> None:
    views = Views(16)
    assert isinstance(views.policy, CTAugment)
    used = Policy(*(torch.zeros(1, 2, dtype=kind) for kind in (torch.long, torch.float, torch.float)))  # one bin, twice
    views.learn(used, torch.tensor([[0.7, 0.3]]), torch.tensor([[1.0, 0.0]]))
    decay, proximity = views.policy.decay, 1 - (0.3 + 0.3) / 2
    expected = decay * (decay + (1 - decay) * proximity) + (1 - decay) * proximity
    assert views.policy.rates.flatten()[0].item() == pytest.approx(expected, rel=1e-6)
    assert bool((views.policy.rates.flatten()[1:] == 1).all())


def test_a_probe_is_a_weak_view_under_a_random_policy() -> None:
    views, x = Views(16), batch()
    assert isinstance(views.policy, CTAugment)
    u = draws(views)
    expected, policy = views.policy.probe(shift_mirror(x, u[:, :WEAK]), u[:, WEAK : WEAK + views.policy_draws])
    probes, used = views.probe(x, u)
    assert torch.equal(probes, normalise(expected))
    assert all(torch.equal(a, b) for a, b in zip(policy, used, strict=True))


def test_views_draw_where_no_draws_are_given() -> None:
    views, x = Views(16, strong="randaugment"), batch()
    torch.manual_seed(0)
    u = torch.rand(len(x), views.draws)
    torch.manual_seed(0)
    assert all(map(torch.equal, views(x), views(x, u)))
    assert not torch.equal(views(x)[0], views(x)[0])


def test_images_of_a_loop_of_ones_own_are_checked() -> None:
    views = Views(16)
    for wrong, says in (
        (batch() / 255, r"not of torch.float32 \[6, 3, 16, 16\]"),
        (batch(size=8), r"uint8 images \[n, 3, 16, 16\], not of torch.uint8 \[6, 3, 8, 8\]"),
        (batch().permute(0, 2, 3, 1), r"\[6, 16, 16, 3\]"),
        (batch().numpy(), "not of ndarray"),
    ):
        with pytest.raises(InputError, match=says):
            views(wrong)
