"""Do the vectors of an index come from its model? A sample is encoded again and held against what is stored.

Where it does not fit, the usual mistakes are tried one after the other on the same texts: another pooling, a prompt
that was there or was not, titles left out, vectors scaled to length 1 or not. The one that fits is named. Cost: one
encoding of the sample, and about twenty more where it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from liebig.base.errors import LiebigError
from liebig.base.records import Passage, Title
from liebig.base.rng import permute
from liebig.doctor.machine_check import Finding
from liebig.model.encoder import Encoder
from liebig.search.embed import Embedder
from liebig.search.systems import layouts_of
from liebig.vectors.vector_folder import Shard, starts

Floats = NDArray[np.float32]
SAMPLE = 20
ALIKE = {"fp32": 0.9999, "fp16": 0.9995, "int8": 0.995, "binary": 0.95}  # cosine, of signs for binary
SCALE = {"fp32": 0.001, "fp16": 0.005, "int8": 0.03, "binary": np.inf}  # relative difference of norms
POOLINGS = ("mean", "cls", "max")


@dataclass(frozen=True)
class EncodingSettings:
    """How a text becomes a vector."""

    pooling: str
    prompt: str
    title: Title
    unit: bool

    def differences(self, other: EncodingSettings) -> list[str]:
        """In words, what the other does otherwise."""
        words = {
            "pooling": (f"{other.pooling} pooling", f"{self.pooling}"),
            "prompt": (f"the prompt {other.prompt!r}", f"{self.prompt!r}"),
            "title": (f"titles {_titled(other.title)}", _titled(self.title)),
            "unit": (f"vectors {_scaled(other.unit)}", _scaled(self.unit)),
        }  # fmt: skip
        return [
            f"{there} (not {here})"
            for name, (there, here) in words.items()
            if getattr(self, name) != getattr(other, name)
        ]


def _scaled(unit: bool) -> str:
    return "of length 1" if unit else "as they come"


def _titled(title: Title) -> str:
    return {"space": "before the text", "separator": "before the text and a separator", "no": "left out"}[
        title
    ]


@dataclass(frozen=True)
class StoredSample:
    """Some vectors of an index, with the passages they stand for."""

    passages: Sequence[Passage]
    vectors: Floats
    type: str

    def fits(self, vectors: Floats) -> bool:
        """Whether these are the stored ones, up to how they are stored."""
        return self.likeness(vectors) >= ALIKE[self.type] and self.scale(vectors) <= SCALE[self.type]

    def likeness(self, vectors: Floats) -> float:
        """The mean cosine, of signs for binary vectors."""
        a, b = (np.sign(x) if self.type == "binary" else x for x in (self.vectors, vectors))
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        return float(np.mean(np.einsum("nd,nd->n", a, b) / np.maximum(norms, 1e-12)))

    def scale(self, vectors: Floats) -> float:
        """How far norms differ, relative."""
        a, b = (np.linalg.norm(x, axis=1) for x in (self.vectors, vectors))
        return float(np.median(np.abs(a - b) / np.maximum(b, 1e-12)))


def sample(shards: Sequence[Shard], passage: Callable[[str], Passage], pieces: bool) -> StoredSample:
    """Vectors drawn from all over an index; of a passage with several, the first."""
    firsts, found, rows = starts(shards), [], []
    for draw in range(min(SAMPLE * 8, firsts[-1])):
        number = int(permute(draw, firsts[-1], 0))
        place = int(np.searchsorted(firsts, number, side="right")) - 1
        shard, row = shards[place], number - firsts[place]
        id = shard.ids[row]
        if row in shard.deleted or (pieces and not id.endswith("#0")):
            continue
        found.append(passage(id.removesuffix("#0") if pieces else id))
        rows.append(shard.vectors[row : row + 1].decode()[0])
        if len(found) == SAMPLE:
            break
    return StoredSample(found, np.array(rows, np.float32), shards[0].vectors.type if shards else "fp32")


def compare(encoder: Encoder, stored: StoredSample, about: Mapping[str, Any]) -> Finding:
    """Encode the sample as the index says, and say what is wrong where it does not fit."""
    name = "vectors"
    if not stored.passages:
        return Finding(name, "nothing to compare")
    if encoder.width != stored.vectors.shape[1]:
        what = f"the model makes {encoder.width} numbers a text, the index holds {stored.vectors.shape[1]}"
        return Finding(name, what, False, "name the model the index was made with, or encode again")
    if about.get("long") == "mean":
        return Finding(name, "vectors are means over pieces of long texts; not compared")
    passage, _ = layouts_of(encoder, about)
    encoder.use(max_length=passage.length)
    said = EncodingSettings(
        encoder.pooling, str(about.get("prompt", "passage")), passage.title, bool(about.get("unit"))
    )
    vectors = encoded(encoder, stored.passages, said)
    if stored.fits(vectors):
        what = f"{len(stored.passages)} passages encoded again fit the index, cosine {stored.likeness(vectors):.4f}"
        return Finding(name, what)
    return _diagnosed(encoder, stored, said, stored.likeness(vectors))


def _diagnosed(encoder: Encoder, stored: StoredSample, said: EncodingSettings, likeness: float) -> Finding:
    for other in _others(encoder, said):
        if stored.fits(encoded(encoder, stored.passages, other)):
            found = " and ".join(said.differences(other))
            return Finding(
                "vectors",
                f"the index was made with {found}",
                False,
                "encode again, or use the model as it was then",
            )
    what = (
        f"{len(stored.passages)} passages encoded again have cosine {likeness:.3f} with the index, "
        "and no usual mistake explains it"
    )
    return Finding(
        "vectors", what, False, "encode again with this model, or find the one the index was made with"
    )


def _others(encoder: Encoder, said: EncodingSettings) -> Iterator[EncodingSettings]:
    """Ways to make a vector, those with fewest differences first."""
    names = [name for name in (said.prompt, "", "passage", "query", *encoder.prompts)
             if name in ("", "passage", "query", *encoder.prompts)]  # fmt: skip
    unlike: dict[str, str] = {}
    for name in names:
        unlike.setdefault(encoder.prompt_text(name), name)
    every = [
        EncodingSettings(*parts)
        for parts in product(POOLINGS, unlike.values(), get_args(Title), (False, True))
    ]
    yield from sorted((m for m in every if m != said), key=lambda m: len(said.differences(m)))


def encoded(encoder: Encoder, passages: Sequence[Passage], making: EncodingSettings) -> Floats:
    """Vectors of passages, made so; the encoder is left as it was."""
    before, encoder.pooling = encoder.pooling, making.pooling
    try:
        layout = replace(encoder.layout_for("passage", making.prompt), title=making.title)
        return Embedder(encoder, layout, unit=making.unit).vectors(passages, "passage")
    except LiebigError:
        return np.zeros((len(passages), encoder.width), np.float32)
    finally:
        encoder.pooling = before
