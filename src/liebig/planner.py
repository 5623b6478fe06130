"""What a recipe, a build or three well-known corpora take on a machine, as `liebig plan` prints it.

Counts come from data that exists, else from what the user says of it; either way the line says which. Stages that take
seconds are left out. For a build, the first records are read by the build's own readers and cut by its cutter, and the
rest is counted in bytes. `methods/machines.py` has the machines, their rates, and what encoding and BM25 take on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from liebig.base import config as recipes, pipeline
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import counted, duration
from liebig.base.records import Document, Passage
from liebig.builder.build import BY_SENTENCES, passage_fields
from liebig.builder.build_config import BuildConfig
from liebig.builder.questions import QuestionsConfig
from liebig.builder.training import LONGEST, batch_size
from liebig.collection import Collection, is_collection
from liebig.formats import detect
from liebig.formats.inputs import DiskSource
from liebig.formats.items import Options
from liebig.methods.cost import assumed, plan
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.machines import (
    BERT_BASE,
    BYTES,
    STORE_BYTES,
    TOKENISER_MEMORY,
    Corpus,
    Estimate,
    Machine,
    Shape,
    calibrate,
    encoding,
    lexical,
    training_memory,
)
from liebig.methods.pretraining import PretrainConfig, resolve
from liebig.model.loading import FolderBackbone, NewBackbone
from liebig.stages.bm25 import BM25Config
from liebig.stages.encode import EncodeConfig
from liebig.stages.passages import cut
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Plan:
    """Estimates twice: lines for people, and the same numbers for programs, in seconds, bytes and dollars."""

    lines: list[str]
    document: dict[str, Any]


def _pretrain(name: str, config: PretrainConfig, machine: Machine, corpus: Corpus) -> Estimate:
    found = plan(config)
    steps, basis = found.steps, f"{found.steps:,} steps" if found.steps is not None else ""
    if steps is None:
        load = assumed(resolve(config))
        epochs = config.loop.epochs or 1.0
        steps = max(1, round(epochs * corpus.passages * corpus.tokens / (load.encoded + load.decoded)))
        basis = f"{steps:,} steps: {epochs:g} passes over {corpus.basis}"
    seconds = steps * found.flop_a_step / machine.train
    if config.loop.minutes is not None:
        seconds, basis = 60 * config.loop.minutes, "minutes of the recipe"
    weights = 16.0 * _shape(config.model).parameters
    return Estimate(name, seconds, found.memory, weights * (1 + config.loop.keep) / 2, basis)


def _finetune(name: str, config: FinetuneConfig, machine: Machine, corpus: Corpus) -> Estimate:
    shape = _shape(config.model)
    tokens = config.tokens_per_step(corpus.tokens)
    steps, basis = _steps(config)
    flop = 4 * shape.forward(tokens, corpus.tokens)  # forward, backward, and the pass that fills the cache
    seconds = None if steps is None else steps * flop / machine.train
    memory = training_memory(shape, tokens)
    return Estimate(name, seconds, memory, 8 * shape.parameters * (1 + config.loop.keep), basis)


def _steps(config: FinetuneConfig) -> tuple[int | None, str]:
    if config.loop.steps is not None:
        return config.loop.steps, f"{config.loop.steps:,} steps"
    if not is_collection(config.collection):
        return None, "number of labels not known yet"
    queries = config.limit or sum(1 for _ in Collection(config.collection).query_ids(config.split))
    steps = max(1, round((config.loop.epochs or 1.0) * queries / config.loop.batch))
    return steps, f"{steps:,} steps over {queries:,} queries"


def _encode(name: str, config: EncodeConfig, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.source, corpus)
    return encoding(name, Shape.of(config.model), found, config.type, machine, basis)


def _bm25(name: str, config: BM25Config, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.collection, corpus)
    return lexical(name, found, machine, basis)


def _prepare(name: str, config: Any, machine: Machine, corpus: Corpus) -> Estimate:
    found, basis = _corpus(config.collection, corpus)
    tokens = found.passages * found.tokens
    seconds = tokens / (machine.tokenise * machine.cores)
    return Estimate(name, seconds, machine.cores * TOKENISER_MEMORY, tokens * STORE_BYTES, basis)


def _corpus(path: Path | None, corpus: Corpus) -> tuple[Corpus, str]:
    """The passages of a collection that exists, else what is assumed."""
    if path is None or not is_collection(path):
        return corpus, corpus.basis
    collection = Collection(path)
    count = collection.count("passages") or collection.count("documents")
    size = sum((path / f"{kind}.jsonl").stat().st_size for kind in ("passages",) if collection.has(kind))
    tokens = size / count / 4.5 if size else corpus.tokens
    return Corpus(count, tokens), f"{counted(count, 'passages')} of about {tokens:.0f} tokens in {path.name}"


def _shape(model: Any) -> Shape:
    if isinstance(model, NewBackbone):
        return Shape(model.layers, model.width, model.intermediate or 4 * model.width, BERT_BASE[3])
    return Shape.of(model.path if isinstance(model, FolderBackbone) else None)


Estimator = Callable[[str, Any, Machine, Corpus], Estimate]
ESTIMATORS: Mapping[str, Estimator] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "encode": _encode,
    "bm25": _bm25,
    "prepare": _prepare,
}


CORPORA = {
    "MS MARCO passages": Corpus(8_841_823, 80),
    "Wikipedia, 100 words": Corpus(21_015_324, 140),
    "web pages": Corpus(1_000_000_000, 140),
}


def plan_recipe(
    table: Mapping[str, Stage], recipe: Path, overrides: Sequence[str], machine: Machine, corpus: Corpus
) -> Plan:
    """What each stage of a recipe takes, and all of them."""
    return whole(list(_estimates(_stages(table, recipe, overrides), machine, corpus)), machine)


def _stages(table: Mapping[str, Stage], recipe: Path, overrides: Sequence[str]) -> list[Planned]:
    """The stages of a pipeline, or the one stage that a plain recipe fits."""
    if "stages" in recipes.read_toml(recipe):
        return pipeline.plan(table, recipe, overrides, Path("runs") / recipe.stem)
    for kind in ESTIMATORS:
        try:
            config = recipes.load(table[kind].config, recipe, overrides)
        except RecipeError:
            continue
        return [Planned(kind, table[kind], config, Path("runs") / kind)]
    fix = f"a pipeline, or a recipe of {', '.join(ESTIMATORS)}"
    raise RecipeError("this recipe cannot be planned", file=recipe, fix=fix)


def _estimates(stages: Sequence[Planned], machine: Machine, corpus: Corpus) -> Iterator[Estimate]:
    for item in stages:
        if item.stage.name in ESTIMATORS:
            yield ESTIMATORS[item.stage.name](item.name, item.config, machine, corpus)


SENTENCE = 20  # tokens of a sentence, about
SHORT = {
    "init",
    "passages",
    "index",
    "fuse",
    "convert",
    "import",
    "average",
    "evaluate",
    "compare",
    "curve",
    "report",
}


def known_seconds() -> Callable[[Planned], float | None]:
    """How long a stage takes on this machine, as far as the data it reads exists; None where nothing is known."""
    machine = None

    def seconds(item: Planned) -> float | None:
        nonlocal machine
        if item.stage.name in SHORT or item.stage.part_of:
            return 0.0
        if item.minutes is not None:
            return 60 * item.minutes
        source = getattr(item.config, "source", getattr(item.config, "collection", None))
        if (
            item.stage.name not in ("encode", "bm25", "prepare")
            or source is None
            or not is_collection(source)
        ):
            return None
        model = getattr(item.config, "model", None)
        if model is not None and not (Path(model) / "config.json").is_file():
            return None  # it is made by a stage before this one, or comes from a hub
        machine = machine or calibrate()
        return ESTIMATORS[item.stage.name](item.name, item.config, machine, Corpus(1, 1)).seconds

    return seconds


def whole(estimates: Sequence[Estimate], machine: Machine) -> Plan:
    """The stages, all of them together, and whether they fit."""
    known = sum(e.seconds for e in estimates if e.seconds is not None)
    largest, disk = max((e.memory for e in estimates), default=0.0), sum(e.disk for e in estimates)
    total = Estimate("all", known, largest, disk, "")
    document = {
        "machine": _about(machine),
        "stages": [_row(e, machine) for e in estimates],
        "total": _row(total, machine),
        "fits": largest <= machine.memory,
    }
    if not estimates:
        return Plan(["No stage of this recipe takes more than seconds."], document)
    width = max(len(e.stage) for e in estimates)
    rows = [f"On {machine.name}; {_priced(machine)}", ""]
    rows.append(f"{'stage':<{width}}  {'time':>13}  {'memory':>9}  {'disk':>9}  {'cost':>9}  basis")
    for e in (*estimates, total):
        rows.append(
            f"{e.stage:<{width}}  {_time(e.seconds):>13}  {size(e.memory):>9}  {size(e.disk):>9}  "
            f"{_dollars(_cost(e.seconds, machine)):>9}  {e.basis}".rstrip()
        )
    if largest > machine.memory:
        rows.append(
            f"WARNING: {size(largest)} of memory are needed, but there are only {size(machine.memory)}."
        )
    return Plan(rows, document)


def _about(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "kind": machine.kind,
        "cores": machine.cores,
        "memory_bytes": round(machine.memory),
        "price_per_hour": machine.price or None,
    }


def _row(estimate: Estimate, machine: Machine) -> dict[str, Any]:
    return {
        "stage": estimate.stage,
        "seconds": estimate.seconds,
        "memory_bytes": round(estimate.memory),
        "disk_bytes": round(estimate.disk),
        "cost": _cost(estimate.seconds, machine),
        "basis": estimate.basis,
    }


def plan_table(model: Path | None, machine: Machine) -> Plan:
    """Encoding, vectors and BM25 of three corpora."""
    shape = Shape.of(model)
    name = model.name if model is not None else "BERT-base"
    lines = [f"On {machine.name}, {name} ({shape.layers} x {shape.width}); {_priced(machine)}", ""]
    lines.append(f"{'corpus':<22} {'passages':>14}  {'encode':>13}  {'cost':>9}  {'fp16 vectors':>14}  "
                 f"{'int8':>9}  {'BM25, 1 core':>13}  {'on disk':>9}")  # fmt: skip
    rows = []
    for title, corpus in CORPORA.items():
        dense = encoding(title, shape, corpus, "fp16", machine, "")
        words = lexical(title, corpus, machine, "")
        small = corpus.passages * (shape.width * BYTES["int8"] + 28)
        cost = _cost(dense.seconds, machine)
        lines.append(
            f"{title:<22} {corpus.passages:>14,}  {_time(dense.seconds):>13}  {_dollars(cost):>9}  "
            f"{size(dense.disk):>14}  {size(small):>9}  {_time(words.seconds):>13}  {size(words.disk):>9}"
        )
        rows.append(
            {
                "corpus": title,
                "passages": corpus.passages,
                "encode_seconds": dense.seconds,
                "encode_cost": cost,
                "fp16_bytes": round(dense.disk),
                "int8_bytes": round(small),
                "bm25_seconds": words.seconds,
                "bm25_bytes": round(words.disk),
            }
        )
    return Plan(lines, {"machine": _about(machine), "model": name, "corpora": rows})


def _priced(machine: Machine) -> str:
    return f"${machine.price:g} per hour, assumed (--price)" if machine.price else "no price given (--price)"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds / 86_400:,.1f} days" if seconds > 3 * 86_400 else duration(seconds)


def _cost(seconds: float | None, machine: Machine) -> float | None:
    return None if seconds is None or not machine.price else seconds / 3600 * machine.price


def _dollars(cost: float | None) -> str:
    return "" if cost is None else f"${cost:,.2f}"


def size(bytes: float) -> str:
    """`1.5 TB`, `13.6 GB`, `20 MB`, in powers of ten."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if bytes >= unit:
            return f"{bytes / unit:.3g} {name}"
    return f"{bytes / 1e3:.3g} kB"


SAMPLE = 1_000  # records read before the rest is estimated


@dataclass(frozen=True)
class SourceSize:
    """Size of the sources: bytes of text, passages, and how they were counted."""

    text: float
    corpus: Corpus
    basis: str


def plan_build(config: BuildConfig, machine: Machine) -> Plan:
    """What each part of `liebig build` takes, and all of them."""
    sources, shape = measure(config), Shape.of(config.start)
    corpus, basis = sources.corpus, sources.basis
    most = QuestionsConfig.model_fields["pool"].default
    pool = Corpus(min(most, corpus.passages), corpus.tokens)
    tokens = corpus.passages * corpus.tokens
    seconds = sources.text / machine.read + tokens / machine.tokenise
    read = Estimate("read and cut", seconds, machine.cores * TOKENISER_MEMORY, 3 * sources.text, basis)
    estimates = [read, lexical("BM25", corpus, machine, basis)]
    if config.minutes:
        batch = batch_size(machine.kind == "cuda")
        memory = training_memory(shape, 2.0 * batch * min(corpus.tokens, LONGEST))
        estimates.append(
            Estimate("training", 60 * config.minutes, memory, 32 * shape.parameters, "--minutes")
        )
    models = 2 if config.minutes else 1
    by_sentences = corpus.passages <= BY_SENTENCES
    check = Corpus(
        models * pool.passages * (1 + by_sentences), pool.tokens
    )  # sentences are the same text again
    named = "passages and their sentences" if by_sentences else "passages"
    estimates.append(
        encoding("check", shape, check, "fp16", machine, f"{pool.passages:,} {named} by each encoder")
    )
    estimates.append(encoding("vectors", shape, corpus, "fp16", machine, basis))
    if by_sentences:
        sentences = Corpus(round(tokens / SENTENCE), SENTENCE)
        estimates.append(
            encoding("sentences", shape, sentences, "fp16", machine, "where the check takes them")
        )
    return whole(estimates, machine)


def measure(config: BuildConfig) -> SourceSize:
    """Read and cut the first records of the sources, and scale them to all of their bytes."""
    fields = passage_fields(config, config.start)
    tokenizer = Tokenizer.from_folder(config.start)
    cutter = by_tokens(tokenizer, fields["length"], language=fields["language"])
    found = [one for source in config.sources for one in detect(source)]
    sizes = {
        file.label: file.path.stat().st_size
        for one in found
        for file in one.source.files()
        if isinstance(file, DiskSource) and file.path.is_file()
    }
    passages: list[str] = []
    text, read, records, last = 0.0, 0.0, 0, ""
    of_last, whole = 0.0, True
    for item in (item for one in found for item in one.items(Options())):
        record = item.record
        if not isinstance(record, Document | Passage):
            continue
        if records >= SAMPLE and sizes:
            whole = False
            break
        if item.where.file != last:
            read, last, of_last = read + sizes.get(last, 0), item.where.file, 0.0
        size = len(record.text.encode())
        text, of_last, records = text + size, of_last + size, records + 1
        kept = [record] if isinstance(record, Passage) else [piece.passage for piece in cut(record, cutter)]
        passages += [f"{passage.title} {passage.text}" for passage in kept]
    if not passages:
        raise DataError("it contains no text", file=", ".join(config.sources))
    mean = sum(map(len, tokenizer.encode_batch(passages))) / len(passages)
    if whole:
        basis = f"{counted(len(passages), 'passages')} of about {mean:.0f} tokens"
        return SourceSize(text, Corpus(len(passages), mean), basis)
    read += min(sizes.get(last, 0), of_last)
    times = max(1.0, sum(sizes.values()) / max(1.0, read))
    count = round(len(passages) * times)
    basis = f"about {count:,} passages of {mean:.0f} tokens, from the first {records:,} records"
    return SourceSize(text * times, Corpus(count, mean), basis)
