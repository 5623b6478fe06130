"""Recipes of searching and of mining."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath


class RankFusion(Config):
    """Reciprocal rank fusion."""

    kind: Literal["rrf"] = "rrf"
    damping: float = Field(default=60, gt=0, description="The constant added to every rank.")
    weight: float | None = Field(
        default=0.5, ge=0, le=1, description="Weight of BM25; none finds it on `dev`."
    )


class ScoreFusion(Config):
    """Weighted sum of normalised scores."""

    kind: Literal["weighted"] = "weighted"
    norm: Literal["minmax", "zscore"] = Field(default="minmax", description="How scores are made comparable.")
    weight: float | None = Field(
        default=None, ge=0, le=1, description="Weight of BM25; found on `dev` if not given."
    )


class SearchConfig(Config):
    """`liebig search`: the queries of a collection against BM25, a vector index, or both, to TREC runs."""

    collection: InputPath = Field(description="A collection with queries.")
    split: str | None = Field(
        None, description="The split whose queries are asked; all queries if not given."
    )
    bm25: InputPath | None = Field(None, description="A BM25 index.")
    dense: InputPath | None = Field(None, description="A vector index, or a folder of vectors.")
    model: InputPath | None = Field(None, description="Model of the queries; the index's own if not given.")
    vectors: InputPath | None = Field(None, description="Vectors of the queries, instead of a model.")
    query_length: int | None = Field(
        None, ge=4, description="Tokens of a query [default: as the model was trained, else its longest]."
    )
    k: int = Field(1000, ge=1, description="Passages of a query.")
    k1: float | None = Field(None, ge=0, description="BM25's k1, instead of the index's.")
    b: float | None = Field(None, ge=0, le=1, description="BM25's b, instead of the index's.")
    fusion: Annotated[RankFusion | ScoreFusion, Field(discriminator="kind")] = Field(
        RankFusion(), description="How BM25 and dense become one ranking: rrf or weighted."
    )
    dev: str = Field("dev", description="The split on which a fusion weight is found.")
    measure: str = Field("nDCG@10", description="The measure a fusion weight is chosen by.")
    fold: Literal["no", "max", "first", "mean"] = Field(
        "no", description="Fold passages to documents: best passage, first passage, mean."
    )
    exclude_self: bool = Field(
        False, description="Leave out the hit whose id is the query's own (ArguAna, Quora)."
    )
    threads: int | None = Field(None, ge=1, description="Threads; all cores if not given.")
    device: str | None = Field(None, description="Device of model and exact search; the GPU if there is one.")
    tag: str = Field("liebig", description="The last column of the runs.")

    @model_validator(mode="after")
    def _asks_something(self) -> SearchConfig:
        if self.bm25 is None and self.dense is None:
            raise ValueError("there is nothing to search: give bm25, dense, or both")
        return self


class Source(Config):
    """A run that negatives are taken from."""

    run: InputPath = Field(description="A TREC run.")
    first: int = Field(1, ge=1, description="The first rank that may be a negative.")
    depth: int = Field(200, ge=1, description="The last rank that may be a negative.")
    keep: int = Field(30, ge=1, description="Negatives of a query.")
    sample: Literal["random", "top"] = Field("random", description="Which of the candidates are kept.")
    margin: float | None = Field(None, description="Drop what scores above the positive's score minus this.")
    relative_margin: float | None = Field(
        None, ge=0, lt=1, description="Drop what scores above the positive's score times one minus this."
    )


class MineConfig(Config):
    """`liebig mine`: hard negatives from runs, to groups for fine-tuning."""

    collection: InputPath = Field(description="A collection with queries, passages and judgements.")
    split: str = Field("train", description="The split whose queries get negatives.")
    sources: list[Source] = Field(
        min_length=1, description="Runs, whose negatives are put one after the other."
    )
    relevant: int = Field(1, description="The least grade that makes a passage a positive.")
    duplicates: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description="Drop what shares this share of word triples with a positive; none keeps them.",
    )
    scores: InputPath | None = Field(
        None,
        description="A run with a cross-encoder's scores of the candidates: scores.trec of liebig rerank score.",
    )
    logits: bool = Field(
        True,
        description="With scores: they are logits s, and 1 / (1 + exp(-s)) is held against below and above.",
    )
    below: float = Field(
        0.1, description="With scores: a negative must score below this (0.1 is RocketQA's)."
    )
    above: float | None = Field(None, description="With scores: what scores above this becomes a positive.")
    pad: int = Field(0, ge=0, description="Fill up with random passages to so many negatives.")
    seed: int = Field(0, description="Draws the samples.")

    @model_validator(mode="after")
    def _thresholds_fit(self) -> MineConfig:
        given = (self.below, self.above if self.above is not None else self.below)
        if given[1] < given[0]:
            raise ValueError("above is less than below: a passage would be a negative and a positive")
        if self.logits and not 0 <= min(given) <= max(given) <= 1:
            raise ValueError("below and above lie between 0 and 1 where scores are logits: or logits = false")
        return self
