"""`liebig passages`: cut a collection's documents into passages of whole sentences (see builder/cutting.py)."""

from __future__ import annotations

from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.builder.cutting import LENGTH, cut_collection
from liebig.collection import Collection
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer


class PassagesConfig(Config):
    """Cut a collection's documents into passages of whole sentences; passages it already has are kept."""

    collection: InputPath = Field(description="Collection to cut.")
    tokenizer: ModelPath = Field(description="Folder with the model's tokenizer.")
    length: int = Field(LENGTH, ge=8, description="Maximum number of tokens in a passage.")
    language: str | None = Field(
        None,
        description="Language of the text, whose abbreviations do not end a sentence [default: English].",
    )


def run(config: PassagesConfig, folder: Folder) -> None:
    """Write the collection with passages."""
    cutter = by_tokens(Tokenizer.from_folder(config.tokenizer), config.length, language=config.language)
    cut_collection(Collection(config.collection), cutter, folder.path)


STAGE = Stage(
    "passages",
    PassagesConfig,
    run,
    "liebig passages runs/collection --tokenizer runs/tokenizer --length 144 --out runs/passages",
    positional="collection",
)
