"""Every figure of the documentation is what its files say."""

import claims
import pytest


def test_every_figure_is_listed_and_is_what_its_files_say() -> None:
    assert not claims.problems()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 63.2 % to **92.0 %**", ["63.2", "92.0"]),
        ("94 % with torch 2.11, learning rate 0.03, `x=0.5`, 2026-11-17, 0.5M", ["94"]),
        ("1,234.5 images/s; [a](b0.5.md)", ["1,234.5"]),
    ],
)
def test_what_is_a_figure(text: str, expected: list[str]) -> None:
    assert [written for _, _, written in claims.figures(text)] == expected


def test_a_wrong_figure_and_left_out_seeds_are_told() -> None:
    claim = {
        "text": "mean 95.8",
        "files": ["digitfive"],
        "is": "mean(runs('uda mnist svhn adamatch', seeds=[0, 1, 2]))",
    }
    (told,) = claims.check("a mean 95.8 of them", claim)
    assert "seeds are left out" in told
    assert not list(claims.check("a mean 95.8 of seeds 0 to 2", claim | {"seeds": "seeds 0 to 2"}))
    (told,) = claims.check("a mean 95.8 of them", claim | {"is": "mean(runs('uda mnist svhn adamatch'))"})
    assert told == "95.8 is written, the files say 93.9222"
