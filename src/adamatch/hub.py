"""Models on the Hugging Face Hub, as hf://NAME/REPO or hf://NAME/REPO@REVISION. Only the files of a model come and go.

What comes from there is a stranger's folder, and is checked like any other.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError, reason
from adamatch.base.files import MANIFEST, make_folder, write_whole
from adamatch.base.regular_files import LARGEST, WEIGHTS
from adamatch.card import CARD

FILES = {  # a file that is not named here goes nowhere and comes from nowhere; bytes that each may have
    "model.safetensors": WEIGHTS,
    "model.json": LARGEST,
    "model.onnx": WEIGHTS,
    CARD: LARGEST,
    MANIFEST: LARGEST,
}
TOLD = ("accuracy", "estimate", "judge", "images")  # of a model's history
OF_RUN = ("task", "method", "options", "labels", "seed", "recipe")
HUB = re.compile(r"hf:/+([\w.-]+/[\w.-]+?)(?:@(.+))?")  # a Path has made one slash of two


def public(history: Mapping[str, Any]) -> dict[str, Any]:
    """What training said of itself, without names, places and digests of images, and places of weights."""
    told = {name: history[name] for name in TOLD if name in history}
    run = history.get("run", {})
    return told | {"run": {name: run[name] for name in OF_RUN if name in run}}


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a model's folder; returns the address of its page. What an earlier upload left there goes."""
    hub = _package()
    with _explained(repo, "be written"):
        api = hub.HfApi()
        page = api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise InputError(f"hf://{repo} is there already, and public: give private=False, or another name")
        api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            allow_patterns=list(FILES),
            delete_patterns=list(FILES),
            commit_message="Model of adamatch",
        )
    return str(page)


def local(given: str | Path) -> Path:
    """A folder on this machine. What is on the Hub is fetched, or taken from its cache."""
    if not re.match(r"hf:/", str(given)):
        return Path(given)
    found = HUB.fullmatch(str(given))
    if found is None:
        raise InputError(f"{given} names no model: a model on the Hub is hf://NAME/REPO or hf://NAME/REPO@REVISION")
    repo, hub = found[1], _package()
    what = {"repo_id": repo, "revision": found[2], "allow_patterns": list(FILES)}
    with _explained(repo, "be fetched"):
        with suppress(hub.errors.DryRunError):  # no network: then nothing is fetched
            _check_sizes(repo, hub.snapshot_download(**what, dry_run=True))
        fetched = Path(hub.snapshot_download(**what))
        # Its files are links, which are refused in the folder of a model: a link might lead out of it.
        folder = Path(hub.cached_assets_path("adamatch", repo, fetched.name))
        make_folder(folder)
        for name in FILES:
            if (fetched / name).is_file() and not (folder / name).is_file():
                write_whole(folder / name, partial(_link, (fetched / name).resolve()))
    return folder


def _check_sizes(repo: str, files: Any) -> None:
    for each in files:
        if each.file_size > FILES[each.filename]:
            size = f"{each.file_size / 2**20:,.0f} MiB"
            raise InputError(
                f"hf://{repo}: {each.filename} has {size}, more than the {FILES[each.filename] >> 20} MiB that it may "
                "have"
            )


def _link(file: Path, part: Path) -> None:
    """The same file under another name; a copy where the disk has no such thing."""
    try:
        os.link(file, part)
    except OSError:
        shutil.copyfile(file, part)


def _package() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError("models on the Hub need huggingface_hub: pip install 'adamatch[hub]'") from None
    return huggingface_hub


@contextmanager
def _explained(repo: str, what: str) -> Iterator[None]:
    """Errors of the Hub and of the network on one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # of the Hub, of the network, of the disk
        remedy = "check its name and the network; for a private one, and to write, log in: hf auth login"
        raise InputError(f"hf://{repo} cannot {what} ({reason(error)}): {remedy}") from None
