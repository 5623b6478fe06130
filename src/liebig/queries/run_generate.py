"""`liebig queries generate`: reads passages, writes a collection of them and their generated queries.

passages.jsonl  queries.jsonl  judgements/generated.tsv   what `source.kind = "queries"` and fine-tuning read
generated.jsonl {"passage", "queries"[, "numbers"]}       what `liebig bm25 --queries` reads (doc2query)
generation.json                                           counts, and which labels the generator has seen
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liebig.data.collection import Collection
from liebig.data.lookup import hash_all
from liebig.data.output import json_line, tab_line
from liebig.errors import DataError, RecipeError
from liebig.lexical.expand import Generated
from liebig.progress import Progress
from liebig.queries import config as recipes, endpoint
from liebig.queries.config import QueriesGenerateConfig
from liebig.queries.engine import Engine, Method, passage_keys
from liebig.queries.filters import Keeps, by_bm25, by_run, query_id
from liebig.queries.generator import Generator
from liebig.queries.pairs import drawn
from liebig.queries.shards import Shards, Writer
from liebig.records import Passage
from liebig.train.distributed import World, joined
from liebig.train.precision import choose
from liebig.workspace import Folder

SHARDS, LIMIT = "shards", 23
GENERATED, ABOUT = "generated.jsonl", "generation.json"


def run(config: QueriesGenerateConfig, folder: Folder) -> None:
    """Write the shards, then the collection."""
    is_model = isinstance(config.source, recipes.ModelSource)
    with joined(cpu=config.device == "cpu" or not is_model) as world:
        world.barrier()  # the first process has prepared the folder
        shards = Shards(folder.path / SHARDS, config.shard, world, _keeps(config), config.duplicates)
        writer, about = _writer(config, world)
        shards.make(chosen(config), writer, _total(config) // world.size)
        world.barrier()
        if world.first:
            _finish(config, folder, shards, about)


def plan(config: QueriesGenerateConfig) -> str:
    """What it would take, for people."""
    if isinstance(config.source, recipes.EndpointSource):
        return str(_estimate(config, config.source))
    return f"{_total(config):,} passages, up to {_total(config) * config.count:,} queries"


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
    wanted = drawn(count, config.limit, config.seed, LIMIT)
    place = 0
    for number, passage in enumerate(candidates):
        if place < len(wanted) and wanted[place] == number:
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


def _keeps(config: QueriesGenerateConfig) -> Keeps | None:
    told = config.filter
    if told is None:
        return None
    return by_bm25(told.index, told.k) if isinstance(told, recipes.Bm25Filter) else by_run(told.run, told.k)


def _writer(config: QueriesGenerateConfig, world: World) -> tuple[Writer, dict[str, Any]]:
    """Who writes, and what there is to know about it."""
    source = config.source
    if isinstance(source, recipes.ModelSource):
        return _by_model(config, source, world)
    if isinstance(source, recipes.FileSource):
        return _by_file(source.path, config.count)
    return _by_endpoint(config, source, world)


def _by_file(path: Path, count: int) -> tuple[Writer, dict[str, Any]]:
    generated = Generated(path)
    writer = Writer(
        lambda passages, _, __: [generated.numbered(p.id)[:count] for p in passages],
        finish=lambda found: [[text for _, text in row] for row in found],
        numbers=lambda found: [[number for number, _ in row] for row in found],
    )
    return writer, {"labels": labels_of(path if path.is_dir() else path.parent)}


def labels_of(folder: Path) -> list[str]:
    """Which human labels are behind the queries of a folder, as far as it says so."""
    about = folder / ABOUT
    return list(json.loads(about.read_text(encoding="utf-8")).get("labels", ())) if about.is_file() else []


def _by_model(
    config: QueriesGenerateConfig, source: recipes.ModelSource, world: World
) -> tuple[Writer, dict[str, Any]]:
    generator = Generator.load(source.path).with_settings(
        prefix=source.prefix,
        title=source.title,
        passage_length=source.passage_length,
        query_length=source.query_length,
    )
    device = world.device
    engine = Engine(generator, device, choose(source.precision, device), source.budget)
    method = method_of(source.method, config.count)

    def write(passages: Any, prepared: Any, journal: Path) -> Any:
        return engine.write(prepared, passage_keys(config.seed, hash_all(p.id for p in passages)), method)

    def finish(found: Any) -> list[list[str]]:
        texts = iter(generator.texts([row for rows in found for row in rows]))
        return [[next(texts) for _ in rows] for rows in found]

    return Writer(write, generator.sources, finish), {"labels": generator.settings.labels}


def method_of(told: recipes.SampleMethod | recipes.GreedyMethod | recipes.BeamMethod, count: int) -> Method:
    """A recipe's method as the engine takes it."""
    if isinstance(told, recipes.GreedyMethod):
        return Method(count, top_k=1)
    if isinstance(told, recipes.BeamMethod):
        return Method(count, beams=told.beams, penalty=told.penalty)
    return Method(count, told.top_k, told.top_p, told.temperature)


def _by_endpoint(
    config: QueriesGenerateConfig, source: recipes.EndpointSource, world: World
) -> tuple[Writer, dict[str, Any]]:
    expected = _estimate(config, source)
    if world.first:
        Progress("generate").say(str(expected))
    if source.most is not None and expected.price > source.most:
        raise RecipeError(
            f"asking would cost about {expected.price:,.2f}, and source.most allows {source.most:,.2f}",
            fix="set a limit on the passages, or allow more",
        )
    client = endpoint.Client(
        url=source.url,
        model=source.model,
        key=_key(source.key_file),
        settings={
            "temperature": source.temperature,
            "top_p": source.top_p,
            "max_tokens": source.tokens * config.count,
        },
        timeout=source.timeout,
        retries=source.retries,
        wait=source.wait,
        pace=endpoint.Pace(source.per_minute),
    )
    return Writer(endpoint.asked(client, _prompts(config, source), source.workers)), {"model": source.model}


def _prompts(config: QueriesGenerateConfig, source: recipes.EndpointSource) -> endpoint.Prompts:
    return endpoint.Prompts(source.prompt, config.count, source.passage_words)


def _estimate(config: QueriesGenerateConfig, source: recipes.EndpointSource) -> endpoint.Estimate:
    prompts = _prompts(config, source)
    return endpoint.estimate(chosen(config), prompts, source.tokens, source.price_in, source.price_out)


def _key(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise RecipeError("source.key_file is no file", file=path)
    return path.read_text(encoding="utf-8").strip()


def _finish(config: QueriesGenerateConfig, folder: Folder, shards: Shards, about: dict[str, Any]) -> None:
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
            generated.write(json_line(_line(row)) + "\n")
            for number, text in zip(row["numbers"], row["queries"]):
                name = query_id(row["passage"], number)
                queries.write(json_line({"id": name, "text": text, "answers": []}) + "\n")
                judgements.write(tab_line(name, row["passage"], "1") + "\n")
    _copy_passages(config.collection, path)
    counts["kept"] = counts["queries"] - counts["inconsistent"]
    said = ", ".join(
        f"{counts[name]:,} {name}" for name in ("empty", "duplicates", "inconsistent") if counts[name]
    )
    if (
        not counts["kept"] and config.source.kind == "file"
    ):  # what was written with effort is kept whatever it is
        raise DataError(
            f"none of {counts['passages']:,} passages has a query left" + (f": {said}" if said else ""),
            fix="see whether queries, and the filter's run or index, are of this collection's passages",
        )
    folder.write_json(ABOUT, {**dict(sorted(counts.items())), "source": config.source.kind, **about})
    Progress("generate").say(
        f"{counts['kept']:,} queries for {counts['passages']:,} passages"
        + (f"; left out: {said}" if said else "")
    )
    shutil.rmtree(path / SHARDS)


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """A line of generated.jsonl; numbers where they are not the queries' places, as after a filter."""
    line = {"passage": row["passage"], "queries": row["queries"]}
    return line if row["numbers"] == list(range(len(row["numbers"]))) else line | {"numbers": row["numbers"]}


def _copy_passages(source: Path, out: Path) -> None:
    """All passages, so that the folder is a collection of its own."""
    shutil.copyfile(source / "passages.jsonl", out / "passages.jsonl")
    for path in (source / "index").glob("passages.*"):
        (out / "index").mkdir(exist_ok=True)
        shutil.copyfile(path, out / "index" / path.name)
