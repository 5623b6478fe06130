"""What a process that tokenises ahead of the model runs.

Nothing heavy is imported here, because every process imports this file: torch would take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from liebig.base.records import Title
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer

_tokenizer: Tokenizer | None = None


def set_up(folder: str) -> None:
    """Load the tokenizer of a model's folder, once in every process."""
    global _tokenizer
    _tokenizer = Tokenizer.from_folder(folder)


def tokens(texts: Sequence[str], title: Title) -> Ragged:
    """The tokens of texts whose titles were joined to them in this way."""
    assert _tokenizer is not None, "the process was started without a tokenizer"
    return RoleLayout(_tokenizer, 0, title=title).tokens(texts)
