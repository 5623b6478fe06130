"""Where examples come from: blocks, spans, crops, cloze, labelled pairs, generated queries, and mixtures of them.

Each source is a class with its `Config` (the table `[source]` of a recipe), which opens it. Several stores and the
members of a mixture end in one flat list of sources with shares; a batch, or each of its examples, comes from one of
them. Without weights they count by size to the power of a coefficient: 1 gives every example the same chance, 0 every
source. A teacher's texts, the one source with vectors, are in `teacher.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from liebig.base import rng
from liebig.base.config import Config as Recipe, InputPath
from liebig.base.errors import RecipeError
from liebig.collection import GENERATED, Collection
from liebig.methods.base import DOCUMENT, SingleSource, SourceConfig, unset
from liebig.methods.held_out import documents_of, hold_out
from liebig.methods.teacher import TextSource
from liebig.store import TokenStore
from liebig.store.batches import Batches, MixedBatches, StepBatches
from liebig.store.pair_sources import (
    BlockSource,
    ClozeSource,
    CropSource,
    Ints,
    PairSource,
    Row,
    Source,
    SpanSource,
)
from liebig.text.masking import delete_words, hide_words, replace_words
from liebig.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from liebig.methods.pretraining import PretrainConfig

SHORTEST_SPAN = 0.10  # of inverse cloze by spans, as a share of the block


class StoreSource(SingleSource):
    """What sources over token stores share."""

    reads_store: ClassVar[bool] = True

    @abstractmethod
    def open_store(self, store: TokenStore, limit: int) -> Source:
        """The source over one store; `limit` is the longest sequence without its special tokens."""

    def open(
        self, recipe: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, Source]]:
        limit = recipe.room(tokenizer)
        return [(store.path.name, self.open_store(store, limit)) for store in stores]


class Views(SingleSource):
    """Changes made to every view after it was drawn, word by word (Contriever 3.1.2)."""

    delete: float | None = Field(
        default=None, ge=0, lt=1, description="Probability that a token is deleted [default: the preset]."
    )
    replace: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by a random one."
    )
    mask: float = Field(
        default=0.0, ge=0, lt=1, description="Probability that a token is replaced by the mask token."
    )

    def resolve(self, recipe: PretrainConfig) -> Self:
        return self.model_copy(update=unset(self, {"delete": 0.0}))

    def wrap(self, source: Source, tokenizer: Tokenizer) -> Source:
        if not (self.delete or self.replace or self.mask):
            return source
        return Noisy(source, tokenizer, self.delete or 0.0, self.replace, self.mask)


@dataclass(frozen=True)
class Noisy:
    """A source whose sequences lose, swap or hide tokens at random."""

    source: Source
    tokenizer: Tokenizer
    delete: float = 0.0
    replace: float = 0.0
    mask: float = 0.0

    def __len__(self) -> int:
        return len(self.source)

    def draw(self, examples: NDArray[np.int64], epoch: int, seed: int) -> Row:
        """The inner source's row, changed token by token under each sequence's key."""
        row = self.source.draw(examples, epoch, seed)
        tokens, special = row.tokens, self.tokenizer.special
        if self.delete:
            tokens = delete_words(tokens, row.keys, special, self.delete)
        if self.replace:
            tokens = replace_words(tokens, _other(row, 1), special, self.replace)
        if self.mask:
            tokens = hide_words(tokens, _other(row, 2), special, self.mask, self.tokenizer.mask)
        return Row(tokens, row.owner, row.keys)

    def documents(self, examples: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """The documents of the inner source's examples."""
        return documents_of(self.source, examples, epoch, seed)


def _other(row: Row, stream: int) -> NDArray[np.uint64]:
    """Keys of their own, so that deletion and replacement hit independently."""
    return np.asarray(rng.mix(row.keys, stream), np.uint64)


class Blocks(BlockSource):
    """Blocks of whole sentences that know their documents."""

    class Config(StoreSource):
        """Blocks of whole sentences, one sequence per example (Condenser's data)."""

        kind: Literal["blocks"] = "blocks"
        short: float = Field(
            default=0.1, ge=0, lt=1, description="Share of blocks with a shorter target length."
        )
        symmetric: ClassVar[bool] = False

        def check(self, recipe: PretrainConfig) -> None:
            if recipe.objective.pairs:
                raise ValueError(
                    f"{recipe.objective.kind} needs pairs, and a block is one text: "
                    "use spans, crops, cloze, pairs or queries"
                )

        def open_store(self, store: TokenStore, limit: int) -> Source:
            return Blocks(store, limit, short=self.short)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return document_at(self.store, self.blocks(examples)[:, 0])


class Spans(SpanSource):
    """Pairs of spans that know their documents."""

    class Config(StoreSource):
        """Two spans of a document (coCondenser, CoT-MAE)."""

        kind: Literal["spans"] = "spans"
        choice: Literal["random", "nearby", "overlap", "window", "mixed"] = Field(
            default="random",
            description="Position of the second span; mixed chooses one of nearby, overlap and window.",
        )
        short: float = Field(
            default=0.1, ge=0, lt=1, description="Share of spans with a shorter target length."
        )
        single: Literal["skip", "once"] = Field(
            default="skip", description="Skip a document with only one span, or use its span once on its own."
        )
        symmetric: ClassVar[bool] = True

        def check(self, recipe: PretrainConfig) -> None:
            if self.single == "skip":
                return
            if not recipe.objective.singles:
                raise ValueError(f"{recipe.objective.kind} needs both spans: use single = 'skip'")
            if DOCUMENT in recipe.objective.extras:
                raise ValueError(
                    "spans of one document are never negatives of each other: distinct_documents has no effect, leave "
                    "it out"
                )

        def open_store(self, store: TokenStore, limit: int) -> Source:
            return Spans(store, limit, kind=self.choice, short=self.short, once=self.single == "once")

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return self._table.find(examples).documents


class Crops(CropSource):
    """Pairs of crops that know their documents."""

    class Config(Views, StoreSource):
        """Two random crops of a window (Contriever)."""

        kind: Literal["crops"] = "crops"
        window: int = Field(
            default=256, ge=4, description="Number of tokens of the window that both crops come from."
        )
        shortest: float | None = Field(
            default=None,
            gt=0,
            le=1,
            description="Smallest crop, as a share of the window [default: the preset].",
        )
        longest: float = Field(default=0.5, gt=0, le=1, description="Largest crop, as a share of the window.")
        across: bool = Field(
            default=False, description="Let windows cross document boundaries, as in the released code."
        )
        symmetric: ClassVar[bool] = True

        def resolve(self, recipe: PretrainConfig) -> Self:
            defaults = recipe.objective.crop_defaults(recipe.preset)
            # Where the recipe's largest crop is smaller than the default smallest one, all crops have one size.
            shortest = min(defaults["shortest"], self.longest)
            return self.model_copy(update=unset(self, defaults | {"shortest": shortest}))

        def check(self, recipe: PretrainConfig) -> None:
            check_order(self.kind, self.shortest, self.longest)

        def open_store(self, store: TokenStore, limit: int) -> Source:
            longest = int(self.window * self.longest)
            if longest > limit:
                special = store.tokenizer.template
                around = len(special.before) + len(special.after)
                raise RecipeError(
                    f"crops of up to {longest} tokens do not fit into max_length = {limit + around}",
                    fix=f"set max_length = {longest + around}, or a smaller source.window",
                )
            ratio = (self.shortest or 0.0, self.longest)
            return Crops(store, self.window, ratio=ratio, across=self.across)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        """Of windows that cross documents, the one in which the window begins when it is not shifted."""
        if self._table is None:
            return document_at(self.store, holder(self.store.sentences, examples * self.window))
        return self._table.find(examples).documents


class Cloze(ClozeSource):
    """Sentences and the rest of their blocks, which know their documents."""

    class Config(Views, StoreSource):
        """A sentence of a block and the rest of it (inverse cloze)."""

        kind: Literal["cloze"] = "cloze"
        keep: float = Field(
            default=0.1, ge=0, le=1, description="Probability that the sentence also stays in the block."
        )
        shortest: float | None = Field(
            default=None,
            gt=0,
            le=1,
            description=(
                "Smallest span, as a share of the block; with `longest`, takes a span instead of a sentence."
            ),
        )
        longest: float | None = Field(
            default=None, gt=0, le=1, description="Largest span, as a share of the block."
        )
        short: float = Field(
            default=0.1, ge=0, lt=1, description="Share of blocks with a shorter target length."
        )
        symmetric: ClassVar[bool] = False

        def resolve(self, recipe: PretrainConfig) -> Self:
            shortest = None if self.longest is None else min(SHORTEST_SPAN, self.longest)
            return self.model_copy(update=unset(self, {"shortest": shortest, "delete": 0.0}))

        def check(self, recipe: PretrainConfig) -> None:
            if self.shortest is not None and self.longest is None:
                raise ValueError("shortest needs longest: give both, or neither for whole sentences")
            check_order(self.kind, self.shortest, self.longest)

        def open_store(self, store: TokenStore, limit: int) -> Source:
            ratio = None if self.longest is None else (self.shortest or 0.0, self.longest)
            return Cloze(store, limit, keep=self.keep, ratio=ratio, short=self.short)

    def documents(self, examples: Ints, epoch: int, seed: int) -> Ints:
        return document_at(self.store, self._blocks.blocks(examples)[:, 0])


def check_order(kind: str, shortest: float | None, longest: float | None) -> None:
    """The smallest share is not above the largest."""
    if shortest is not None and longest is not None and shortest > longest:
        raise ValueError(f"{kind}: shortest = {shortest:g} is more than longest = {longest:g}")


def document_at(store: TokenStore, sentences: Ints) -> Ints:
    """The document each sentence lies in: a bisection on every level."""
    return holder(store.documents, holder(store.sections, holder(store.paragraphs, sentences)))


def holder(offsets: Ints, inner: Ints) -> Ints:
    """Which of the pieces that begin at `offsets` holds each inner number; an empty piece holds none."""
    return np.asarray(np.searchsorted(offsets, inner, side="right") - 1, np.int64)


class CollectionSource(Views):
    """What sources over a collection share; a pair is a query and a passage."""

    collection: InputPath = Field(description="Collection with queries, passages and judgements.")
    reads_store: ClassVar[bool] = False
    symmetric: ClassVar[bool] = False

    @abstractmethod
    def read_pairs(self, recipe: PretrainConfig, tokenizer: Tokenizer) -> PairSource:
        """The pairs of the collection."""

    def open(
        self, recipe: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
    ) -> list[tuple[str, Source]]:
        return [(self.collection.name, self.read_pairs(recipe, tokenizer))]


class Pairs(PairSource):
    """Labelled pairs: an example is a query, and one of its relevant passages is drawn."""

    class Config(CollectionSource):
        """Labelled pairs of a collection: a query and one of its relevant passages."""

        kind: Literal["pairs"] = "pairs"
        split: str = Field(default="train", description="Split of the judgements.")

        def check(self, recipe: PretrainConfig) -> None:
            if recipe.neighbours > 1:
                raise ValueError(
                    "consecutive queries often share a passage, which neighbours would make its own negative: leave "
                    "neighbours out, or use the source queries, whose examples are passages"
                )

        def read_pairs(self, recipe: PretrainConfig, tokenizer: Tokenizer) -> PairSource:
            return Pairs.read(
                Collection(self.collection),
                self.split,
                tokenizer,
                recipe.room(tokenizer),
                anchor="query",
                title=recipe.title_rule(),
            )


class Queries(PairSource):
    """Generated queries: an example is a passage, and one of its queries is drawn."""

    class Config(CollectionSource):
        """A passage and one of the queries generated for it (query-as-context)."""

        kind: Literal["queries"] = "queries"
        collection: InputPath = Field(description="Collection with passages and generated queries.")
        split: str = Field(
            default=GENERATED, description="Split of the judgements that link queries to passages."
        )
        per_passage: int | None = Field(
            default=None, ge=1, description="Maximum number of queries per passage [default: all]."
        )

        def read_pairs(self, recipe: PretrainConfig, tokenizer: Tokenizer) -> PairSource:
            return Queries.read(
                Collection(self.collection),
                self.split,
                tokenizer,
                recipe.room(tokenizer),
                anchor="passage",
                most=self.per_passage,
                title=recipe.title_rule(),
            )


Single = Annotated[
    Blocks.Config
    | Spans.Config
    | Crops.Config
    | Cloze.Config
    | Pairs.Config
    | Queries.Config
    | TextSource.Config,
    Field(discriminator="kind"),
]


class MixturePart(Recipe):
    """One source of a mixture."""

    source: Single = Field(description="The source.")
    weight: float | None = Field(
        default=None, gt=0, description="Relative probability of the source [default: size^coefficient]."
    )


class Mixture(MixedBatches):
    """Batches of several sources."""

    class Config(SourceConfig):
        """Several sources, each drawn with its probability."""

        kind: Literal["mixture"] = "mixture"
        parts: tuple[MixturePart, ...] = Field(description="The sources.", min_length=2)

        @property
        def members(self) -> tuple[SingleSource, ...]:
            return tuple(part.source for part in self.parts)

        @property
        def weights(self) -> tuple[float | None, ...]:
            return tuple(part.weight for part in self.parts)

        def resolve(self, recipe: PretrainConfig) -> Self:
            parts = [part.model_copy(update={"source": part.source.resolve(recipe)}) for part in self.parts]
            return self.model_copy(update={"parts": tuple(parts)})


AnySource = Annotated[
    Blocks.Config
    | Spans.Config
    | Crops.Config
    | Cloze.Config
    | Pairs.Config
    | Queries.Config
    | TextSource.Config
    | Mixture.Config,
    Field(discriminator="kind"),
]
SAMPLE = 512


@dataclass(frozen=True)
class Weighted:
    """A source and its share of the training."""

    source: Source
    share: float
    name: str
    skipped: int = 0


def build(config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer) -> list[Weighted]:
    """All sources of a resolved recipe; shares add up to 1."""
    opened = [_open(member, config, stores, tokenizer) for member in config.source.members]
    sizes = [sum(len(w.source) for w in member) for member in opened]
    outer = shares(config.source.weights, sizes, config.coefficient)
    return [
        Weighted(w.source, w.share * share, w.name, w.skipped)
        for member, share in zip(opened, outer)
        for w in member
    ]


def _open(
    member: SingleSource, config: PretrainConfig, stores: Sequence[TokenStore], tokenizer: Tokenizer
) -> list[Weighted]:
    """One source of the recipe over all it reads, with its noise, in the order the method reads."""
    opened = member.open(config, stores, tokenizer)
    given = [store.weight for store in config.stores] if member.reads_store else [None]
    inner = shares(given, [len(source) for _, source in opened], config.coefficient)
    return [
        Weighted(
            config.objective.arrange(member.wrap(source, tokenizer), member.symmetric),
            share,
            f"{member.kind} of {name}",
            getattr(source, "skipped", 0),
        )
        for (name, source), share in zip(opened, inner)
    ]


def shares(given: Sequence[float | None], sizes: Sequence[int], coefficient: float) -> list[float]:
    """Shares that add up to 1: the weights given, or size^coefficient."""
    known = [weight for weight in given if weight is not None]
    if known and len(known) != len(given):
        raise RecipeError(
            "some have a weight and others do not", fix="give a weight to all of them, or to none"
        )
    weights = np.array(known if known else np.array(sizes, np.float64) ** coefficient, np.float64)
    return [float(share) for share in weights / weights.sum()]


def divide(sources: Sequence[Weighted], share: float) -> tuple[list[Weighted], list[Weighted]]:
    """What is trained on, and what is held out."""
    kept, held = [], []
    for one in sources:
        train, rest = hold_out(one.source, share)
        kept.append(Weighted(train, one.share, one.name, one.skipped))
        if rest is not None:
            held.append(Weighted(rest, one.share, one.name))
    return kept, held


def tokens_per_example(sources: Sequence[Weighted]) -> float:
    """Mean tokens of an example, special ones included, measured on a sample from all over each source."""
    total = 0.0
    for one in sources:
        sample = np.linspace(0, len(one.source) - 1, min(SAMPLE, len(one.source))).astype(np.int64)
        total += one.share * len(one.source.draw(sample, 0, 0).tokens.values) / len(sample)
    return total


def batches(
    sources: Sequence[Weighted], size: int, seed: int, per: Literal["batch", "example"], together: int = 1
) -> StepBatches:
    """Batches of `size` examples from all sources, `together` of them neighbours."""
    if len(sources) == 1:
        return Batches(sources[0].source, size, seed, together)
    return Mixture([w.source for w in sources], [w.share for w in sources], size, seed, per, together)


def epoch_steps(sources: Sequence[Weighted], size: int) -> int:
    """Steps in which as many examples are seen as there are."""
    return max(1, sum(len(w.source) for w in sources) // size)
