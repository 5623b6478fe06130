"""`liebig queries train`: a seq2seq model learns to write the queries of passages.

Writes `model/`, which `liebig queries generate` loads. The model is in `queries/generator.py`, its objective in
`queries/generator_training.py`, the course of a training in `train/stage.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath
from liebig.base.pipeline import Stage
from liebig.base.records import Title
from liebig.base.workspace import Folder
from liebig.collection.lookup import hash_all
from liebig.methods.samplers import random_batches
from liebig.queries.consistency import Finder, rouge_l, share
from liebig.queries.decoding import Decoding, Engine, passage_keys
from liebig.queries.generator import Generator, from_encoder
from liebig.queries.generator_training import GeneratorBatches, GeneratorObjective
from liebig.queries.labelled_pairs import LabelledPassage, draw, read_labelled_passages
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World
from liebig.train.loop import Epochs, LoopConfig
from liebig.train.objective import Objective
from liebig.train.optim import AdamWConfig, OptimConfig, ScheduleConfig
from liebig.train.stage import MODEL, Data, TrainingStage


class Seq2SeqStart(Config):
    """A seq2seq model folder: T5 and its relatives, BART, or a generator trained before."""

    kind: Literal["folder"] = "folder"
    path: ModelPath = Field(
        description=("Folder of a seq2seq model: of transformers, or of liebig queries train.")
    )

    def generator(self, seed: int) -> Generator:
        return Generator.load(self.path)


class EncoderStart(Config):
    """Both halves from an encoder, cross-attention new: a generator without any download."""

    kind: Literal["encoder"] = "encoder"
    path: ModelPath = Field(description="An encoder's folder, liebig:mini-v3, or org/name of the hub.")
    decoder_layers: int | None = Field(
        default=None, ge=1, description="Number of decoder layers [default: as in the encoder]."
    )

    def generator(self, seed: int) -> Generator:
        tokenizer = Tokenizer.from_folder(self.path)
        return Generator(from_encoder(self.path, tokenizer, self.decoder_layers, seed), tokenizer)


StartConfig = Annotated[Seq2SeqStart | EncoderStart, Field(discriminator="kind")]


class TrainEvaluation(Config):
    """Queries written for held-out passages while training: ROUGE-L, and whether they find their passage."""

    split: str | None = Field(default=None, description="Held-out split [default: none].")
    passages: int = Field(
        default=200, ge=1, description=("Number of passages to generate for, drawn at random.")
    )
    bm25: tuple[InputPath, ...] = Field(
        default=(),
        description="BM25 indexes of the passages; a query must retrieve its passage in the first index that contains "
        "it.",
    )
    k: int = Field(default=20, ge=1, description="Number of hits in which the passage must appear.")


class QueriesTrainConfig(Config):
    """`liebig queries train`: a seq2seq model learns to write queries from passages and their queries."""

    collections: tuple[InputPath, ...] = Field(
        min_length=1, description="Collections with passages, queries and judgements."
    )
    model: StartConfig = Field(description="Model to start from: a seq2seq folder, or an encoder.")
    split: str = Field(default="train", description="Split to train on.")
    relevant: int = Field(default=1, description="Lowest grade of a positive passage.")
    limit: int | None = Field(
        default=None, ge=1, description=("Train on only this many pairs, drawn at random.")
    )
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
        description="Maximum length of a passage in tokens, special tokens included [default: the model's own, else "
        "256].",
    )
    query_length: int | None = Field(
        default=None,
        ge=2,
        description="Maximum length of a query in tokens, end token included [default: the model's own, else 64].",
    )
    optim: OptimConfig = Field(default=AdamWConfig(lr=3e-4), description="The optimiser.")
    schedule: ScheduleConfig = Field(default=ScheduleConfig(), description="Learning rate schedule.")
    loop: LoopConfig = Field(
        default=LoopConfig(epochs=3, batch=64),
        description="Training length, batch, precision, checkpoints and logs.",
    )
    evaluation: TrainEvaluation = Field(default=TrainEvaluation(), description="Evaluation during training.")

    @property
    def seed(self) -> int:
        return self.loop.seed


LIMIT, HELD_OUT = 21, 22  # numbers of random streams


class GeneratorTraining(TrainingStage[QueriesTrainConfig, GeneratorObjective]):
    """A generator learns the queries of labelled passages."""

    label = "queries"
    labels = ""  # what the model is trained on, for the table of every experiment it enters

    def start(self) -> GeneratorObjective:
        config = self.config
        generator = config.model.generator(config.seed).with_settings(
            prefix=config.prefix,
            title=config.title,
            passage_length=config.passage_length,
            query_length=config.query_length,
        )
        return GeneratorObjective(generator)

    def data(self, objective: GeneratorObjective) -> Data:
        config, generator = self.config, objective.generator
        labelled = read_labelled_passages(config.collections, config.split, config.relevant)
        queries = [query for one in labelled for query in one.queries]
        passage_of = np.repeat(np.arange(len(labelled)), [len(one.queries) for one in labelled])
        kept = draw(len(queries), config.limit, config.seed, LIMIT)
        names = " + ".join(path.name for path in config.collections)
        self.labels = f"{names}, {config.split}: {len(kept)} pairs"
        batches = GeneratorBatches(
            sources=generator.sources([one.passage for one in labelled]),
            targets=generator.targets([queries[i] for i in kept]),
            passage_of=passage_of[kept].tolist(),
            sampler=random_batches(len(kept), config.loop.batch, config.seed, self.world.size),
            world=self.world,
        )
        return Data(batches, Epochs(batches.sampler.steps), self._evaluation(generator))

    def _evaluation(self, generator: Generator) -> HeldOutEvaluation | None:
        config = self.config.evaluation
        if config.split is None:
            return None
        labelled = read_labelled_passages(self.config.collections, config.split, self.config.relevant)
        held_out = [labelled[i] for i in draw(len(labelled), config.passages, self.config.seed, HELD_OUT)]
        finder = Finder(config.bm25) if config.bm25 else None
        return HeldOutEvaluation(generator, held_out, finder, config.k, self.config.seed, self.world)

    def save(self, objective: GeneratorObjective) -> None:
        generator = objective.generator
        labels = (*generator.settings.labels, self.labels)
        generator.with_settings(labels=labels).save(self.folder / MODEL)
        self.say(f"trained on {self.labels}")


def run(config: QueriesTrainConfig, folder: Folder) -> None:
    GeneratorTraining.launch(config, folder)


class HeldOutEvaluation:
    """Writes queries for held-out passages: the likeliest for ROUGE-L, a sampled one for BM25."""

    def __init__(
        self,
        generator: Generator,
        held: Sequence[LabelledPassage],
        finder: Finder | None,
        k: int,
        seed: int,
        world: World,
    ) -> None:
        self._generator, self._held, self._finder, self._k = generator, held, finder, k
        self._sources = generator.sources([one.passage for one in held])
        self._keys = passage_keys(seed, hash_all(one.passage.id for one in held))
        self._device = world.device

    def __call__(self, objective: Objective) -> Mapping[str, float]:
        likeliest, sampled = self._generate(Decoding(1, top_k=1)), self._generate(Decoding(1))
        scores = [rouge_l(text, one.queries) for text, one in zip(likeliest, self._held)]
        measured = {"rouge-l": float(np.mean(scores))}
        if self._finder is not None:
            ranks = self._finder.ranks(sampled, [one.passage.id for one in self._held], self._k)
            measured[f"found@{self._k}"] = share(ranks, self._k)
        return measured

    def _generate(self, method: Decoding) -> list[str]:
        rows = Engine(self._generator, self._device).write(self._sources, self._keys, method)
        return self._generator.texts([row[0] for row in rows])


STAGE = Stage(
    "queries train",
    QueriesTrainConfig,
    run,
    "liebig queries train runs/collection model.kind=folder model.path=runs/flan-t5 --out runs/generator",
    positional="collections",
)
