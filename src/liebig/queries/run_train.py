"""`liebig queries train`: reads pairs and a starting model, writes a generator's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from liebig.data.lookup import hash_all
from liebig.progress import Progress
from liebig.queries.config import EncoderStart, QueriesTrainConfig
from liebig.queries.engine import Engine, Method, passage_keys
from liebig.queries.found import Finder, share
from liebig.queries.generator import Generator, Settings
from liebig.queries.pairs import Asked, drawn, read_asked
from liebig.queries.rouge import rouge_l
from liebig.queries.train import Maker, Writing
from liebig.queries.warm import from_encoder
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World, joined
from liebig.train.labelled.samplers import random_batches
from liebig.train.loop import Epochs, train
from liebig.train.objective import Objective
from liebig.train.state import load_checkpoint
from liebig.workspace import Folder

MODEL = "model"
LIMIT, HELD_OUT = 21, 22  # purposes of draws


def run(config: QueriesTrainConfig, folder: Folder) -> None:
    """Train a generator, and save it."""
    with joined() as world:
        train_generator(config, folder.path, world)


def train_generator(config: QueriesTrainConfig, folder: Path, world: World) -> None:
    """The same for a process that has joined the others; leaves `model/` and `log.jsonl` in the folder."""
    asked = read_asked(config.collections, config.split, config.relevant)
    generator = _labelled(start(config), config, asked)
    objective = Writing(generator)
    maker = _maker(config, generator, asked, world)
    evaluate = _evaluation(config, generator, world)
    train(
        objective,
        maker,
        folder,
        loop=config.loop,
        optim=config.optim,
        schedule=config.schedule,
        world=world,
        epochs=Epochs(maker.sampler.steps),
        evaluate=evaluate,
        label="queries",
    )
    if evaluate is not None:
        load_checkpoint(objective, folder)
    if world.first:
        generator.save(folder / MODEL)
        Progress("queries").say(f"trained on {generator.settings.labels[-1]}")


def start(config: QueriesTrainConfig) -> Generator:
    """The starting model: a seq2seq folder, or both halves from an encoder."""
    if isinstance(config.model, EncoderStart):
        tokenizer = Tokenizer.from_folder(config.model.path)
        model = from_encoder(config.model.path, tokenizer, config.model.decoder_layers, config.seed)
        generator = Generator(model, tokenizer, Settings())
    else:
        generator = Generator.load(config.model.path)
    return generator.with_settings(
        prefix=config.prefix,
        title=config.title,
        passage_length=config.passage_length,
        query_length=config.query_length,
    )


def _labelled(generator: Generator, config: QueriesTrainConfig, asked: Sequence[Asked]) -> Generator:
    """With a note of the labels that it is about to see."""
    pairs = sum(len(one.queries) for one in asked)
    names = " + ".join(path.name for path in config.collections)
    seen = f"{names}, {config.split}: {min(pairs, config.limit or pairs)} pairs"
    return generator.with_settings(labels=(*generator.settings.labels, seen))


def _maker(config: QueriesTrainConfig, generator: Generator, asked: Sequence[Asked], world: World) -> Maker:
    queries = [query for one in asked for query in one.queries]
    passage_of = np.repeat(np.arange(len(asked)), [len(one.queries) for one in asked])
    kept = drawn(len(queries), config.limit, config.seed, LIMIT)
    return Maker(
        sources=generator.sources([one.passage for one in asked]),
        targets=generator.targets([queries[i] for i in kept]),
        passage_of=passage_of[kept].tolist(),
        sampler=random_batches(len(kept), config.loop.batch, config.seed, world.size),
        world=world,
    )


def _evaluation(config: QueriesTrainConfig, generator: Generator, world: World) -> Evaluation | None:
    told = config.evaluation
    if told.split is None:
        return None
    held = read_asked(config.collections, told.split, config.relevant)
    chosen = [held[i] for i in drawn(len(held), told.passages, config.seed, HELD_OUT)]
    finder = Finder(told.bm25) if told.bm25 else None
    return Evaluation(generator, chosen, finder, told.k, config.seed, world)


class Evaluation:
    """Writes queries for held-out passages: the likeliest for ROUGE-L, a sampled one for BM25."""

    def __init__(
        self,
        generator: Generator,
        held: Sequence[Asked],
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
        likeliest, sampled = self._written(Method(1, top_k=1)), self._written(Method(1))
        scores = [rouge_l(text, one.queries) for text, one in zip(likeliest, self._held)]
        found = {"rouge-l": float(np.mean(scores))}
        if self._finder is not None:
            ranks = self._finder.ranks(sampled, [one.passage.id for one in self._held], self._k)
            found[f"found@{self._k}"] = share(ranks, self._k)
        return found

    def _written(self, method: Method) -> list[str]:
        rows = Engine(self._generator, self._device).write(self._sources, self._keys, method)
        return self._generator.texts([row[0] for row in rows])
