"""What a model is called: a folder, `liebig:NAME` for an encoder of the package, or `org/name` on the Hugging Face hub.

`model_folder` is the only place that decides it, for every command and the library. A folder that exists always wins.
From the hub come weights as safetensors, tokenizer and settings, never code or pickled weights; they stay in the hub's
own cache, which is used when the hub cannot be reached. Cost: one request for a model that is in the cache. Data sets
are fetched as Parquet files (`formats/hub_dataset.py`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liebig import encoders
from liebig.base.errors import DataError, ModelError

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
OTHERS = ["onnx/*", "openvino/*", "coreml/*"]  # the same weights once more, for other engines
PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
NAME = re.compile(f"^{PART}/{PART}$")
# The hub's client changes the library that it sends requests with, so its errors are known by their names.
UNREACHABLE = {"LocalEntryNotFoundError", "ConnectionError", "TransportError"}
CONVERTED = "refs/convert/parquet"  # the branch with a data set's files as Parquet


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
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    ready = cached(name)
    try:
        with _bars(shown=ready is None):
            folder = _snapshot(name)
    except Exception as error:  # the hub's errors have no common base beside this one
        if ready is not None and not isinstance(error, RepositoryNotFoundError | HFValidationError):
            return ready
        unknown = f"the model cannot be fetched from the Hugging Face hub: {_said(error)}", None
        what, fix = _explained(error, "model") or unknown
        raise ModelError(what, file=name, fix=fix and fix.format(name=name)) from None
    if not any(folder.rglob("*.safetensors")):
        raise ModelError(
            "the model on the Hugging Face hub has no weights as safetensors, and pickled ones are not fetched",
            file=name,
            fix="choose another model, or convert it with transformers: save_pretrained writes safetensors",
        )
    return folder


def dataset_files(name: str) -> tuple[str | None, list[str]]:
    """The Parquet files of a data set on the hub, and the revision they are in (None: the main one).

    Data sets in other forms have them in a branch that the hub converts them into. No code of a data set is run.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    with _fetching(name):
        api = HfApi()
        files = api.list_repo_files(name, repo_type="dataset")
        if tables := sorted(file for file in files if file.endswith(".parquet")):
            return None, tables
        with contextlib.suppress(RevisionNotFoundError):
            files = api.list_repo_files(name, repo_type="dataset", revision=CONVERTED)
            if tables := sorted(file for file in files if file.endswith(".parquet")):
                return CONVERTED, tables
    raise DataError(
        "the data set on the Hugging Face hub has no Parquet files",
        file=name,
        fix=f"run `hf download {name} --repo-type dataset --local-dir FOLDER` and name FOLDER",
    )


def dataset_file(name: str, path: str, revision: str | None) -> Path:
    """A file of a data set on the hub, downloaded into the hub's cache if it is not there."""
    from huggingface_hub import hf_hub_download

    with _fetching(name):
        return Path(hf_hub_download(name, path, repo_type="dataset", revision=revision))


@contextmanager
def _fetching(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the hub's errors have no common base beside this one
        unknown = f"the data set cannot be fetched from the Hugging Face hub: {_said(error)}", None
        what, fix = _explained(error, "data set") or unknown
        raise DataError(what, file=name, fix=fix and fix.format(name=f"{name} --repo-type dataset")) from None


def _explained(error: Exception, kind: str) -> tuple[str, str] | None:
    """What is wrong and how to fix it, where an error of the hub is one that users meet."""
    from huggingface_hub import errors

    absent = (
        "there is no such folder, and " if kind == "model" else ""
    )  # a name of a model may be meant as one
    if isinstance(error, errors.GatedRepoError):
        return (
            f"the hub gives this {kind} only to users who accepted its terms",
            f"accept them on the {kind}'s page, then log in with `hf auth login`",
        )
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        return (
            f"{absent}the Hugging Face hub has no public {kind} of this name",
            f"check the name; for a private {kind} log in with `hf auth login`",
        )
    if UNREACHABLE & {base.__name__ for base in type(error).__mro__}:
        return (
            f"{absent}the Hugging Face hub cannot be reached, nor is the {kind} in its cache",
            "connect to the network, or run `hf download {name} --local-dir FOLDER` elsewhere and name FOLDER",
        )
    return None


def _said(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


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

    folder = snapshot_download(
        name, allow_patterns=FILES, ignore_patterns=OTHERS, local_files_only=local_files_only
    )
    return Path(folder)


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
