"""`liebig prepare`, from recipe to folder."""

from __future__ import annotations

from functools import partial

from liebig import workspace
from liebig.corpus.config import PrepareConfig, TokenPassages
from liebig.corpus.prepare import Finish, prepare, unfinished
from liebig.corpus.prepare_passages import by_tokens, by_words
from liebig.data.collection import Collection
from liebig.machine import cores
from liebig.text.tokenizer import Tokenizer


def run(config: PrepareConfig, folder: workspace.Folder) -> None:
    """Write the token store of a collection."""
    collection = Collection(config.collection)
    if (collection.path / workspace.MANIFEST).is_file():
        workspace.verify(collection.path)
    tokenizer = Tokenizer.from_folder(config.tokenizer)
    prepare(
        collection.path,
        folder.path,
        tokenizer,
        language=config.language,
        finish=_finish(config, tokenizer),
        processes=config.processes or cores(),
    )


def _finish(config: PrepareConfig, tokenizer: Tokenizer) -> Finish:
    """What cuts the passages of a shard."""
    wanted = config.passages
    if wanted is None:
        return unfinished
    if isinstance(wanted, TokenPassages):
        return partial(by_tokens, length=wanted.length, overlap=wanted.overlap)
    return partial(by_words, length=wanted.length, overlap=wanted.overlap, continues=tokenizer.continues)
