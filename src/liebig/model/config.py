"""What a recipe says about models: where a backbone comes from, and what to import. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from liebig.config import Config, InputPath

Family = Literal["bert", "roberta", "xlm-roberta", "distilbert", "electra", "albert", "modernbert"]


class FolderBackbone(Config):
    """A model folder on disk."""

    kind: Literal["folder"] = "folder"
    path: InputPath = Field(description="model folder of Liebig, transformers or sentence-transformers")


class HubBackbone(Config):
    """A model by its name on the Hugging Face hub."""

    kind: Literal["hub"] = "hub"
    name: str = Field(description="name on the Hugging Face hub, such as google-bert/bert-base-uncased")


class NewBackbone(Config):
    """A model from scratch; its vocabulary is the tokenizer's."""

    kind: Literal["new"] = "new"
    family: Family = Field("bert", description="family of the encoder")
    layers: PositiveInt = Field(12, description="number of layers")
    width: PositiveInt = Field(768, description="width of the hidden states")
    heads: PositiveInt = Field(12, description="number of attention heads; the width is a multiple of it")
    intermediate: PositiveInt | None = Field(
        None, description="width inside the feed-forward part; four times the width if not given"
    )
    max_positions: PositiveInt = Field(512, description="longest sequence, special tokens included")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and layers")
    initializer_range: float = Field(0.02, gt=0, description="standard deviation of the first weights")


BackboneConfig = Annotated[FolderBackbone | HubBackbone | NewBackbone, Field(discriminator="kind")]


class ImportConfig(Config):
    """Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder."""

    source: InputPath = Field(
        description="model folder, or a training checkpoint of Contriever (checkpoint.pth)"
    )
    tokenizer: InputPath | None = Field(
        None, description="folder with the tokenizer (and config.json), where the source has none"
    )
    pooling: Literal["auto", "cls", "mean"] = Field(
        "auto", description="how vectors are made; auto knows it from the kind of checkpoint"
    )
    similarity: Literal["auto", "dot", "cosine"] = Field(
        "auto",
        description="how vectors are compared; auto is what a sentence-transformers folder says, otherwise dot",
    )
    max_length: PositiveInt | None = Field(
        None, description="longest text in tokens; what the model has room for if not given"
    )
