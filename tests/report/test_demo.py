"""The demonstration ends with the page of its run; the twin on it is its source-only model."""

from pathlib import Path

import pytest
from report.runs import Page

from adamatch import demo
from adamatch.config.presets import recipe


def test_the_demonstration_ends_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "recipe", lambda name, images: recipe(name, images=64, batch=16))
    summary = demo.demo(tmp_path / "demo", quiet=True)
    assert str(tmp_path / "demo/report.html") in capsys.readouterr().out
    found = Page(tmp_path / "demo/report.html")
    assert (
        f"accuracy on labelled target images {summary['source_only']:.1f} % {summary['adamatch']:.1f} %" in found.text
    )
    assert {"twin", "images", "mistakes", "map", "looks"} <= set(found.ids)
    assert len(found.all("img")) > 10
    assert "missing on this page" not in found.text
