"""`liebig passages`: a collection's documents cut into passages of whole sentences (`builder/cutting.py`)."""

from __future__ import annotations

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.workspace import Folder
from liebig.builder.cutting import LENGTH, cut_collection
from liebig.collection.collection import Collection
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer


class PassagesConfig(Config):
    """Cut documents into passages that fit a model; passages that the source has are kept."""

    collection: InputPath = Field(description="What liebig init wrote.")
    tokenizer: InputPath = Field(description="A folder with the model's tokenizer.")
    length: int = Field(LENGTH, ge=8, description="Maximum number of tokens in a passage.")
    language: str | None = Field(None, description="Language of the text, for its abbreviations.")


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
