"""Title + separator + prompt + text + length → token ids. The only place that does it.

`Layout` is what a model's folder says about the texts it reads: the title rule and the lengths of use, in `layout.json`
beside the sentence-transformers files (which hold prompts and the longest sequence, and ignore this one). `RoleLayout`
is that for one role, queries or passages, with the tokenizer: `ids` takes records or strings and gives token ids.
Pre-training from collections, fine-tuning, reranking, query generation, encoding, evaluation, search, serving and
`doctor` all call it, so training and indexing cannot differ. Cost: the tokenizer's, and 2 ns per token to copy. Imports
no torch: the processes that tokenise start with this alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ConfigDict, PositiveInt

from liebig.base.errors import ModelError, RecipeError
from liebig.base.json_file import read_json
from liebig.base.records import Document, Passage, Query, Title
from liebig.ragged import Ragged, gather
from liebig.text.tokenizer import Tokenizer

Role = Literal["query", "passage"]
Record = str | Query | Passage | Document
FILE = "layout.json"
LONGEST_USE = 512  # tokens of a text by default, however many positions a model has
AT_ONCE = 4096  # texts tokenised together
MARK = "\x1e"  # stands for the separator token until a text is tokenised; taken out of the texts themselves


@dataclass(frozen=True)
class Layout:
    """How a model's texts are laid out, as its folder says; None is "as long as the model takes"."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    title: Title = "space"
    query_length: PositiveInt | None = None
    passage_length: PositiveInt | None = None
    trained_length: PositiveInt | None = (
        None  # of a pre-training view: how long the texts were that the model saw
    )

    def length(self, role: Role | None, limit: int) -> int:
        """The tokens of a text in this role, special ones included."""
        own = {"query": self.query_length, "passage": self.passage_length}.get(role or "")
        return min(own or limit, limit)

    def save(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=2) + "\n"
        (folder / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Layout:
        """What `save` wrote; the defaults where a folder has no such file."""
        path = folder / FILE
        if not path.is_file():
            return cls()
        return read_json(path, cls, error=ModelError, fix="correct it, or remove the file")


@dataclass(frozen=True)
class RoleLayout:
    """How a query or a passage becomes one sequence of at most `length` tokens, special ones included."""

    tokenizer: Tokenizer
    length: int
    prompt: str = ""
    title: Title = "space"
    lowercase: bool = False
    bare: bool = False  # without special tokens: one half of a pair

    def ids(self, records: Sequence[Record]) -> Ragged:
        """Token ids of records, cut and wrapped: one row per record."""
        template = self.tokenizer.template
        before, after = ((), ()) if self.bare else (template.before, template.after)
        return self.tokens([self.text(record) for record in records]).wrap(before, after, self.length)

    def lists(self, records: Sequence[Record]) -> list[list[int]]:
        """The same as a list per record."""
        return self.ids(records).to_lists()

    def parts(self, records: Iterable[Record]) -> Iterator[Ragged]:
        """The same for any number of records, some thousand at a time."""
        stream = iter(records)
        while some := list(islice(stream, AT_ONCE)):
            yield self.ids(some)

    def all_ids(self, records: Iterable[Record]) -> Ragged:
        """The same for any number of records, in memory."""
        return Ragged.concatenate(self.parts(records), np.int32)

    def text(self, record: Record) -> str:
        """What `tokens` takes: prompt, title and text as one string, with `MARK` where a separator token will stand."""
        body, title = (record, "") if isinstance(record, str) else (record.text, _title(record))
        if self.title == "separator":
            body, title = body.replace(MARK, ""), title.replace(MARK, "")
        if title and self.title != "no":
            body = title + (MARK if self.title == "separator" else " ") + body
        full = self.prompt + body
        return full.lower() if self.lowercase else full

    def tokens(self, texts: Sequence[str]) -> Ragged:
        """Ids of what `text` gave: not cut, and no special tokens but the separator's. No text can spell one."""
        if self.title != "separator":
            return self.tokenizer.encode_packed(texts)
        parts = [text.split(MARK, 1) for text in texts]
        pieces = self.tokenizer.encode_packed([part for both in parts for part in both])
        if len(pieces) == len(texts):
            return pieces
        titled = np.fromiter(map(len, parts), np.int64, len(parts)) > 1
        last = np.cumsum(1 + titled) - 1
        end = len(pieces.values)  # where the separator is put, so that it can be gathered too
        spans = np.zeros((len(texts), 3, 2), np.int64)
        spans[titled, 0] = np.stack((pieces.offsets[last - 1], pieces.offsets[last]), axis=1)[titled]
        spans[titled, 1] = end, end + 1
        spans[:, 2] = np.stack((pieces.offsets[last], pieces.offsets[last + 1]), axis=1)
        return gather(np.append(pieces.values, np.int32(self.tokenizer.sep)), spans, dtype=np.int32)

    @cached_property
    def prompt_ids(self) -> list[int]:
        """The prompt alone: what stands before tokens that are there already, and before later pieces of a text."""
        prompt = self.prompt.lower() if self.lowercase else self.prompt
        return self.tokenizer.encode(prompt) if prompt else []


def _title(record: Query | Passage | Document) -> str:
    return "" if isinstance(record, Query) else record.title


def checked_length(length: int, positions: int, name: str = "max_length") -> int:
    """A length the model has positions for."""
    if length > positions:
        raise RecipeError(
            f"{name} = {length} is more than the model's {positions} positions",
            fix=f"set {name} = {positions} or less",
        )
    return length


# What a process that tokenises ahead of the model runs.
#
# Nothing heavy is imported here, because every process imports this file: torch would take seconds.

_tokenizer: Tokenizer | None = None


def set_up_worker(folder: str) -> None:
    """Load the tokenizer of a model's folder, once in every process."""
    global _tokenizer
    _tokenizer = Tokenizer.from_folder(folder)


def worker_tokens(texts: Sequence[str], title: Title) -> Ragged:
    """The tokens of texts whose titles were joined to them in this way."""
    assert _tokenizer is not None, "the process was started without a tokenizer"
    return RoleLayout(_tokenizer, 0, title=title).tokens(texts)
