"""`liebig queries generate`: reads passages, writes a collection of them and their generated queries.

passages.jsonl  queries.jsonl  judgements/generated.tsv   what `source.kind = "queries"` and fine-tuning read
generated.jsonl {"passage", "queries"}                    what `source.kind = "file"` reads
generation.json                                           counts, and which labels the generator has seen
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from liebig.base.config import Config, InputPath, ModelPath, Unrecorded
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import Progress, counted
from liebig.base.records import Passage, Title
from liebig.base.workspace import WHOLE, Folder
from liebig.collection import GENERATED as GENERATED_SPLIT, Collection
from liebig.collection.lookup import hash_all
from liebig.formats.output import json_line, tab_line
from liebig.queries.decoding import Decoding, Engine, passage_keys
from liebig.queries.generated_file import GENERATED, GeneratedQueries
from liebig.queries.generator import Generator
from liebig.queries.labelled_pairs import GENERATION, draw, labels_of
from liebig.queries.query_shards import QueryShards, Writer
from liebig.train.distributed import World, joined
from liebig.train.precision import choose


class SampleMethod(Config):
    """Nucleus and top-k sampling, as query-as-context does; top_k = 1 takes the likeliest token at each place."""

    kind: Literal["sample"] = "sample"
    top_p: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description=("Nucleus sampling: sample from the smallest set of tokens with this total probability."),
    )
    top_k: int | None = Field(
        default=25, ge=1, description="Sample only from this many most likely tokens; none keeps all."
    )
    temperature: float = Field(default=1.0, gt=0, description="Temperature: scores are divided by it.")

    def method(self, count: int) -> Decoding:
        return Decoding(count, self.top_k, self.top_p, self.temperature)


class SourceConfig(Config):
    """Who writes the queries."""

    on_device: ClassVar[bool] = False
    """Whether a model runs here, on a GPU if there is one."""

    @abstractmethod
    def writer(self, config: QueriesGenerateConfig, world: World) -> tuple[Writer, dict[str, Any]]:
        """What writes the queries, and what `generation.json` says about it."""


class ModelSource(SourceConfig):
    """A generator's folder."""

    kind: Literal["model"] = "model"
    path: ModelPath = Field(
        description="Folder written by liebig queries train, or a seq2seq model of transformers."
    )
    method: SampleMethod = Field(default=SampleMethod(), description="How tokens are drawn.")
    prefix: str | None = Field(default=None, description="Text before every passage [default: the folder's].")
    title: Title | None = Field(
        default=None,
        description="Put the title before the passage: space, separator or no [default: the folder's].",
    )
    passage_length: int | None = Field(
        default=None, ge=8, description="Maximum length of a passage in tokens [default: the folder's]."
    )
    query_length: int | None = Field(
        default=None, ge=2, description="Maximum length of a query in tokens [default: the folder's]."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto", description="Precision; auto is bf16 on a GPU and fp32 on a CPU."
    )
    budget: int | None = Field(
        default=None, ge=1, description="Number of padded passage tokens per batch [default: by device]."
    )

    on_device: ClassVar[bool] = True

    def writer(self, config: QueriesGenerateConfig, world: World) -> tuple[Writer, dict[str, Any]]:
        generator = Generator.load(self.path).with_settings(
            prefix=self.prefix,
            title=self.title,
            passage_length=self.passage_length,
            query_length=self.query_length,
        )
        engine = Engine(generator, world.device, choose(self.precision, world.device), self.budget)
        method = self.method.method(config.count)

        def write(passages: Any, prepared: Any) -> Any:
            return engine.write(prepared, passage_keys(config.seed, hash_all(p.id for p in passages)), method)

        def finish(written: Any) -> list[list[str]]:
            texts = iter(generator.texts([row for rows in written for row in rows]))
            return [[next(texts) for _ in rows] for rows in written]

        return Writer(write, generator.sources, finish), {"labels": generator.settings.labels}


class FileSource(SourceConfig):
    """Queries from a file, unchanged."""

    kind: Literal["file"] = "file"
    path: InputPath = Field(description='JSON lines {"passage": id, "queries": [..]}, in any order.')

    def writer(self, config: QueriesGenerateConfig, world: World) -> tuple[Writer, dict[str, Any]]:
        generated = GeneratedQueries(self.path)
        writer = Writer(lambda passages, _: [generated.of(p.id)[: config.count] for p in passages])
        return writer, {"labels": labels_of(self.path if self.path.is_dir() else self.path.parent)}


Source = Annotated[ModelSource | FileSource, Field(discriminator="kind")]


class QueriesGenerateConfig(Config):
    """`liebig queries generate`: C queries per passage, as a collection that pre-training and fine-tuning read."""

    collection: InputPath = Field(description="Collection with passages.")
    source: Source = Field(description="Source of the queries: model or file.")
    count: int = Field(default=5, ge=1, description="Number of queries per passage.")
    limit: int | None = Field(default=None, ge=1, description="Use only this many passages, drawn at random.")
    of_split: str | None = Field(
        default=None, description="Use only passages that are relevant in this split of the collection."
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers.")
    split: str = Field(default=GENERATED_SPLIT, description="Split name of the judgements to write.")
    shard: int = Field(
        default=20_000,
        ge=1,
        description=("Number of passages per shard; a finished shard is never computed again."),
    )
    device: Annotated[str | None, Unrecorded()] = Field(
        default=None, description="cpu or cuda [default: the GPU if there is one]."
    )


SHARDS, LIMIT = "shards", 23


def run(config: QueriesGenerateConfig, folder: Folder) -> None:
    """Write the shards, then the collection."""
    with joined(cpu=config.device == "cpu" or not config.source.on_device) as world:
        world.barrier()  # the first process has prepared the folder
        shards = QueryShards(folder.path / SHARDS, config.shard, world, folder.part)
        writer, about = config.source.writer(config, world)
        shards.make(chosen(config), writer, _total(config) // (world.size * folder.part.of))
        world.barrier()
        if world.first and folder.part == WHOLE:
            _finish(config, folder, shards, about)


def chosen(config: QueriesGenerateConfig) -> Iterator[Passage]:
    """The passages to be written for."""
    collection = Collection(config.collection)
    if not collection.has("passages"):
        raise DataError(
            "the collection has no passages",
            file=config.collection,
            fix=f"cut its documents first: liebig convert {config.collection} --to passages --out PASSAGES, "
            "then liebig init",
        )
    candidates, count = _candidates(collection, config.of_split)
    if config.limit is None:
        yield from candidates
        return
    numbers = draw(count, config.limit, config.seed, LIMIT)
    place = 0
    for number, passage in enumerate(candidates):
        if place < len(numbers) and numbers[place] == number:
            yield passage
            place += 1


def _candidates(collection: Collection, split: str | None) -> tuple[Iterator[Passage], int]:
    """All passages, or those that a split judges relevant; and how many they are."""
    if split is None:
        return collection.passages(), collection.count("passages")
    judged = {judgement.passage for judgement in collection.judgements(split) if judgement.relevance > 0}
    return (passage for passage in collection.passages() if passage.id in judged), len(judged)


def _total(config: QueriesGenerateConfig) -> int:
    count = _candidates(Collection(config.collection), config.of_split)[1]
    return min(count, config.limit or count)


def _finish(
    config: QueriesGenerateConfig, folder: Folder, shards: QueryShards, about: dict[str, Any]
) -> None:
    """The collection, from all shards."""
    counts: Counter[str] = Counter()
    path = folder.path
    (path / "judgements").mkdir(exist_ok=True)
    with (
        (path / "queries.jsonl").open("w", encoding="utf-8") as queries,
        (path / "judgements" / f"{config.split}.tsv").open("w", encoding="utf-8") as judgements,
        (path / GENERATED).open("w", encoding="utf-8") as generated,
    ):
        for row in shards.read(counts):
            counts["passages"] += 1
            generated.write(json_line(row) + "\n")
            for number, text in enumerate(row["queries"]):
                name = f"{row['passage']}#{number}"
                queries.write(json_line({"id": name, "text": text, "answers": []}) + "\n")
                judgements.write(tab_line(name, row["passage"], "1") + "\n")
    _copy_passages(config.collection, path)
    said = ", ".join(f"{counts[name]:,} {name}" for name in ("empty", "duplicates") if counts[name])
    if (
        not counts["queries"] and config.source.kind == "file"
    ):  # what was written with effort is kept whatever it is
        raise DataError(
            f"none of {counts['passages']:,} passages has a query left" + (f": {said}" if said else ""),
            fix="see whether the queries are of this collection's passages",
        )
    folder.write_json(GENERATION, {**dict(sorted(counts.items())), "source": config.source.kind, **about})
    Progress("generate").say(
        f"{counted(counts['queries'], 'queries')} for {counted(counts['passages'], 'passages')}"
        + (f"; left out: {said}" if said else "")
    )
    shutil.rmtree(path / SHARDS)


def _copy_passages(source: Path, out: Path) -> None:
    """All passages, so that the folder is a collection of its own."""
    shutil.copyfile(source / "passages.jsonl", out / "passages.jsonl")
    for path in (source / "index").glob("passages.*"):
        (out / "index").mkdir(exist_ok=True)
        shutil.copyfile(path, out / "index" / path.name)


STAGE = Stage(
    "queries generate",
    QueriesGenerateConfig,
    run,
    "liebig queries generate runs/collection source.kind=model source.path=runs/generator/model --out runs/queries",
    positional="collection",
    in_parts=True,
)
