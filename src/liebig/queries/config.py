"""The recipes of `liebig queries train`, `generate` and `inspect`. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from liebig.config import Config, InputPath, Unrecorded
from liebig.records import Title
from liebig.train.config import AdamWConfig, LoopConfig, OptimConfig, ScheduleConfig


class Seq2SeqStart(Config):
    """A seq2seq model folder: T5 and its relatives, BART, or a generator trained before."""

    kind: Literal["folder"] = "folder"
    path: InputPath = Field(description="A seq2seq model folder of transformers, or of liebig queries train.")


class EncoderStart(Config):
    """Both halves from an encoder, cross-attention new: a generator without any download."""

    kind: Literal["encoder"] = "encoder"
    path: InputPath = Field(description="An encoder's folder, or liebig:mini-v1.")
    decoder_layers: int | None = Field(
        default=None, ge=1, description="Layers of the decoder [default: as many as the encoder has]."
    )


Start = Annotated[Seq2SeqStart | EncoderStart, Field(discriminator="kind")]


class TrainEvaluation(Config):
    """Queries written for held-out passages while training: ROUGE-L, and whether they find their passage."""

    split: str | None = Field(default=None, description="The held-out split; none if not given.")
    passages: int = Field(default=200, ge=1, description="Passages written for, drawn by seed.")
    bm25: tuple[InputPath, ...] = Field(
        default=(),
        description="BM25 indexes of the passages; a query must find its own in the first that has it.",
    )
    k: int = Field(default=20, ge=1, description="How far down a passage counts as found.")


class QueriesTrainConfig(Config):
    """`liebig queries train`: a seq2seq model learns to write queries from passages and their queries."""

    collections: tuple[InputPath, ...] = Field(
        min_length=1, description="Collections with passages, queries and judgements."
    )
    model: Start = Field(description="What to start from: a seq2seq folder, or an encoder.")
    split: str = Field(default="train", description="The split whose pairs are learned.")
    relevant: int = Field(default=1, description="The least grade that makes a pair.")
    limit: int | None = Field(default=None, ge=1, description="Train on so many pairs only, drawn by seed.")
    prefix: str | None = Field(
        default=None, description="Text before every passage [default: the model's own, else none]."
    )
    title: Title | None = Field(
        default=None,
        description="Put the title before the passage: space, separator or no [default: the model's own, else space].",
    )
    passage_length: int | None = Field(
        default=None,
        ge=8,
        description="Tokens of a passage, special ones included [default: the model's own, else 256].",
    )
    query_length: int | None = Field(
        default=None,
        ge=2,
        description="Tokens of a query, its end included [default: the model's own, else 64].",
    )
    optim: OptimConfig = Field(default=AdamWConfig(lr=3e-4), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="The learning rate over time.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=3, batch=64),
        description="Length, batch, precision, checkpoints, logs.",
    )
    evaluation: TrainEvaluation = Field(default=TrainEvaluation(), description="Evaluation while training.")

    @property
    def seed(self) -> int:
        """Everything random follows from it."""
        return self.loop.seed

    @model_validator(mode="after")
    def _is_whole(self) -> QueriesTrainConfig:
        if self.loop.shard:
            raise ValueError("a generator is trained whole in every process: set loop.shard = false")
        return self


class SampleMethod(Config):
    """Nucleus and top-k sampling, as query-as-context does."""

    kind: Literal["sample"] = "sample"
    top_p: float = Field(
        default=0.95, gt=0, le=1, description="The nucleus: the fewest tokens that reach this share."
    )
    top_k: int | None = Field(
        default=25, ge=1, description="The likeliest tokens kept before; none keeps all."
    )
    temperature: float = Field(default=1.0, gt=0, description="Scores are divided by it.")


class GreedyMethod(Config):
    """The likeliest token at each place: one query a passage."""

    kind: Literal["greedy"] = "greedy"


class BeamMethod(Config):
    """Beam search: the likeliest queries."""

    kind: Literal["beam"] = "beam"
    beams: int = Field(
        default=8, ge=1, description="Beginnings carried on; at least as many as queries wanted."
    )
    penalty: float = Field(
        default=1.0, description="Power of the length that the log probability is divided by."
    )


Method = Annotated[SampleMethod | GreedyMethod | BeamMethod, Field(discriminator="kind")]


class ModelSource(Config):
    """A generator's folder."""

    kind: Literal["model"] = "model"
    path: InputPath = Field(
        description="A folder of liebig queries train, or a seq2seq model of transformers."
    )
    method: Method = Field(
        default=SampleMethod(), description="How tokens are chosen: sample, greedy or beam."
    )
    prefix: str | None = Field(default=None, description="Text before every passage [default: the folder's].")
    title: Title | None = Field(
        default=None,
        description="Put the title before the passage: space, separator or no [default: the folder's].",
    )
    passage_length: int | None = Field(
        default=None, ge=8, description="Tokens of a passage [default: the folder's]."
    )
    query_length: int | None = Field(
        default=None, ge=2, description="Most tokens of a query [default: the folder's]."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto", description="auto is bf16 on a GPU and fp32 without."
    )
    budget: int | None = Field(
        default=None, ge=1, description="Padded passage tokens of a batch [default: what suits the device]."
    )


PROMPT = (
    "Write {count} different search queries that the following passage answers, one on each line, "
    "without numbers and without any other text.\n\nTitle: {title}\n\nPassage: {passage}"
)


class EndpointSource(Config):
    """A server that speaks the OpenAI API: any local or remote language model."""

    kind: Literal["endpoint"] = "endpoint"
    url: str = Field(description="The API's address, such as http://localhost:8000/v1.")
    model: str = Field(description="The model's name there.")
    key_file: Path | None = Field(default=None, description="A file that holds the API key and nothing else.")
    prompt: str = Field(
        default=PROMPT, description="What is asked; {count}, {title} and {passage} are filled in."
    )
    temperature: float = Field(default=1.0, ge=0, description="As the API understands it.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="As the API understands it.")
    tokens: int = Field(default=64, ge=1, description="Most tokens of a query in the answer.")
    passage_words: int = Field(default=300, ge=1, description="Words of a passage that are sent.")
    workers: Annotated[int, Unrecorded()] = Field(default=4, ge=1, description="Requests under way at once.")
    per_minute: Annotated[float | None, Unrecorded()] = Field(
        default=None, gt=0, description="Most requests a minute."
    )
    retries: Annotated[int, Unrecorded()] = Field(
        default=5, ge=0, description="How often a request is made again before giving up."
    )
    wait: Annotated[float, Unrecorded()] = Field(
        default=1.0, ge=0, description="Seconds before the first repetition; doubled each time."
    )
    timeout: Annotated[float, Unrecorded()] = Field(
        default=60.0, gt=0, description="Seconds to wait for an answer."
    )
    price_in: Annotated[float, Unrecorded()] = Field(
        default=0.0, ge=0, description="Price of a million tokens sent."
    )
    price_out: Annotated[float, Unrecorded()] = Field(
        default=0.0, ge=0, description="Price of a million tokens received."
    )
    most: Annotated[float | None, Unrecorded()] = Field(
        default=None, ge=0, description="Do not begin if the estimate is above this."
    )


class FileSource(Config):
    """Queries that are there already, as they are."""

    kind: Literal["file"] = "file"
    path: InputPath = Field(description='JSON lines {"passage": id, "queries": [..]}, in any order.')


Source = Annotated[ModelSource | EndpointSource | FileSource, Field(discriminator="kind")]


class Bm25Filter(Config):
    """Keep a query if BM25 finds its passage."""

    kind: Literal["bm25"] = "bm25"
    index: InputPath = Field(description="A BM25 index of the passages.")
    k: int = Field(default=20, ge=1, description="Among so many.")


class RunFilter(Config):
    """Keep a query if a retriever found its passage: a run over the queries of an unfiltered folder."""

    kind: Literal["run"] = "run"
    run: InputPath = Field(description="A TREC run of these queries, by their ids.")
    k: int = Field(default=20, ge=1, description="Among so many.")


Filter = Annotated[Bm25Filter | RunFilter, Field(discriminator="kind")]


class QueriesGenerateConfig(Config):
    """`liebig queries generate`: C queries a passage, as a collection that pre-training and fine-tuning read."""

    collection: InputPath = Field(description="A collection with passages.")
    source: Source = Field(description="Who writes the queries: model, endpoint or file.")
    count: int = Field(default=5, ge=1, description="Queries of a passage.")
    limit: int | None = Field(default=None, ge=1, description="Only so many passages, drawn by seed.")
    of_split: str | None = Field(
        default=None, description="Only passages that this split of the collection judges relevant."
    )
    seed: int = Field(default=0, ge=0, description="Seed of every random number.")
    duplicates: bool = Field(default=False, description="Keep queries of a passage that are alike.")
    filter: Filter | None = Field(default=None, description="Consistency: keep what finds its passage.")
    split: str = Field(
        default="generated", description="Name of the judgements that tie queries to passages."
    )
    shard: int = Field(
        default=20_000, ge=1, description="Passages of a shard, the unit that is never done twice."
    )
    device: Annotated[str | None, Unrecorded()] = Field(
        default=None, description="cpu or cuda; the GPU if there is one."
    )

    @model_validator(mode="after")
    def _sensible(self) -> QueriesGenerateConfig:
        if isinstance(self.source, ModelSource):
            method = self.source.method
            if isinstance(method, GreedyMethod) and self.count > 1:
                raise ValueError("greedy search writes one query a passage: set count = 1, or sample")
            if isinstance(method, BeamMethod) and self.count > method.beams:
                raise ValueError(f"{method.beams} beams cannot give {self.count} queries: use more beams")
        return self


class QueriesInspectConfig(Config):
    """`liebig queries inspect`: generated queries side by side, and what can be counted about them."""

    folders: tuple[InputPath, ...] = Field(
        min_length=1, description="Folders of liebig queries generate, or collections with judgements."
    )
    split: str = Field(
        default="generated", description="The judgements; a collection without them shows all its splits."
    )
    bm25: InputPath | None = Field(default=None, description="A BM25 index to look the passages up in.")
    passages: int = Field(default=1000, ge=1, description="Passages measured, drawn by seed.")
    examples: int = Field(default=20, ge=1, description="Passages shown, unselected.")
    seed: int = Field(default=0, ge=0, description="Seed of the draw.")
