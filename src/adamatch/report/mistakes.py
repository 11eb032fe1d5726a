"""The page of an evaluation: what the model got wrong, with pictures."""

from pathlib import Path
from typing import Any

from adamatch.evaluate import Score
from adamatch.report import page, sections
from adamatch.report.pool import Pool, thumbnails


def write(score: Score, to: Path, *, name: str, **decoding: Any) -> Path:
    """Make the page `to`, called by `name`; `decoding`: a pool's shape and white, as the model takes images."""
    pool, rows = Pool.of_files(score.paths, **decoding), score.mistakes()

    def context(each: int, large: int) -> dict[str, Any]:
        pairs = sections.mistaken(score, pool, 2 * each) if each else []
        wanted = [picture.row for pair in pairs for picture in sections.pictures_of(pair)]
        pictures = thumbnails(pool, wanted, large)
        return page.gallery(pairs, score.classes) | {
            "name": name,
            "score": score,
            "wrong": len(rows),
            "by_class": sections.by_class(score.confusion, score.classes),
            "top": sections.TOP,
            "pairs": len({*zip(score.truth[rows].tolist(), score.predicted[rows].tolist(), strict=True)}),
            "pictures": pictures,
            "gone": len(wanted) - len(pictures),
        }

    return page.save(to, page.fitting("mistakes.html", context))
