"""The recipe of `liebig average`."""

from __future__ import annotations

from pydantic import Field

from liebig.config import Config, InputPath


class AverageConfig(Config):
    """`liebig average`: one model whose weights are the mean of several, trained from one start with other seeds."""

    models: tuple[InputPath, ...] = Field(
        min_length=2, description="Model folders of one shape and one tokenizer."
    )
