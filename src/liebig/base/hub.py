"""What a model is called: a folder, `liebig:NAME` for an encoder of the package, or `org/name` on the Hugging Face hub.

`model_folder` is the only place that decides it, for every command and the library. A folder that exists always wins.
From the hub come weights as safetensors, tokenizer and settings, never code or pickled weights; they stay in the hub's
own cache, which is used when the hub cannot be reached. Cost: one request for a model that is in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liebig import encoders
from liebig.base.errors import ModelError

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
OTHERS = ["onnx/*", "openvino/*", "coreml/*"]  # the same weights once more, for other engines
PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
NAME = re.compile(f"^{PART}/{PART}$")


def is_name(source: str | Path) -> bool:
    """Whether this is the name of a model on the hub: `org/name`, and no folder or file that is there."""
    return NAME.fullmatch(str(source)) is not None and not Path(source).exists()


def model_folder(source: str | Path) -> Path:
    """The folder of a model, downloaded if it has to be."""
    if str(source).startswith(encoders.PREFIX):
        try:
            return encoders.folder(str(source))
        except ValueError as error:
            raise ModelError(str(error)) from None
    if is_name(source):
        return from_hub(str(source))
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise ModelError(
            "there is no such model folder",
            file=source,
            fix="name a folder, liebig:NAME, or org/name of the Hugging Face hub",
        )
    return folder


def from_hub(name: str) -> Path:
    """The folder that the files of a model on the hub were downloaded to."""
    from huggingface_hub import errors

    ready = cached(name)
    try:
        with _bars(shown=ready is None):
            folder = _snapshot(name)
    except errors.GatedRepoError:
        raise ModelError(
            "the hub gives this model only to users who accepted its terms",
            file=name,
            fix="accept them on the model's page, then log in with `hf auth login`",
        ) from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise ModelError(
            "there is no such folder, and the Hugging Face hub has no public model of this name",
            file=name,
            fix="check the name; for a private model log in with `hf auth login`",
        ) from None
    except errors.LocalEntryNotFoundError:
        raise ModelError(
            "there is no such folder, and the Hugging Face hub cannot be reached, nor is the model in its cache",
            file=name,
            fix=f"connect to the network, or run `hf download {name} --local-dir FOLDER` elsewhere and name FOLDER",
        ) from None
    except Exception as error:  # the hub's errors have no common base beside this one
        if ready is not None:
            return ready
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"the model cannot be fetched from the Hugging Face hub: {said}", file=name
        ) from error
    if not any(folder.rglob("*.safetensors")):
        raise ModelError(
            "the model on the Hugging Face hub has no weights as safetensors, and pickled ones are not fetched",
            file=name,
            fix="choose another model, or convert it with transformers: save_pretrained writes safetensors",
        )
    return folder


def cached(name: str) -> Path | None:
    """The folder of a model that the cache of the hub holds already; nothing is asked of the network."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _snapshot(name, local_files_only=True)
    except LocalEntryNotFoundError:
        return None


def name_of(folder: Path) -> str:
    """What to call a model in tables: `org/name` for a folder in the cache of the hub, else the folder's name."""
    parts = folder.parts
    if len(parts) > 2 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return parts[-3].removeprefix("models--").replace("--", "/", 1)
    return folder.name


def _snapshot(name: str, *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    found = snapshot_download(
        name, allow_patterns=FILES, ignore_patterns=OTHERS, local_files_only=local_files_only
    )
    return Path(found)


@contextmanager
def _bars(*, shown: bool) -> Iterator[None]:
    """Progress bars of the hub, unless nothing has to be downloaded."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    quiet = are_progress_bars_disabled()
    if not shown:
        disable_progress_bars()
    try:
        yield
    finally:
        if not quiet:
            enable_progress_bars()
