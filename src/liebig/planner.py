"""What a recipe or a build takes on this machine, as `liebig plan` prints it.

Time is measured: a few steps of the training itself, the first texts through the encoder itself. Where the data or the
model does not exist yet there is nothing to time, and the line says so. Memory and disk follow from the size of
the data, or from what the user says about data that does not exist. Stages that take seconds are left out. For a build,
the first records are read by the build's own readers and cut by its cutter, and the rest is counted in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeVar

import torch

from liebig.base import config as recipes, hub, machine, pipeline
from liebig.base.errors import DataError, RecipeError
from liebig.base.pipeline import Planned, Stage
from liebig.base.progress import counted, duration
from liebig.base.records import Document, Passage, Section
from liebig.bm25.index import write_segments
from liebig.bm25.search import BM25Settings
from liebig.builder.build_config import BuildConfig
from liebig.builder.questions import QuestionsConfig
from liebig.builder.reading import passage_length, sentence_language
from liebig.builder.steps import BY_SENTENCES
from liebig.builder.training import LONGEST, batch_size
from liebig.collection import Collection, is_collection
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.on_disk import DiskSource
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.pretraining import PretrainConfig
from liebig.model.loading import FolderBackbone, NewBackbone
from liebig.model.settings import TransformerFile, read_model_file
from liebig.search import encode_texts
from liebig.search.embed import Embedder, pools_sentences
from liebig.stages import encode
from liebig.stages.bm25 import BM25Config
from liebig.stages.finetune import Finetuning
from liebig.stages.passages import cut
from liebig.stages.prepare import PrepareConfig
from liebig.stages.pretrain import Pretraining
from liebig.store.writing import build
from liebig.text.passages import by_tokens
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import ALONE
from liebig.train.loop import LoopConfig, StepTime
from liebig.train.memory import CPU_TOKENS

BERT_BASE = (12, 768, 3072, 30_522)
BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0}
BYTES_A_STATE = (
    34  # activations kept for the backward pass, per token, layer and unit of width, in half precision
)
CHUNK_TOKENS = {"cuda": 32_768, "cpu": CPU_TOKENS}  # what `chunk_tokens = "auto"` is taken for
LEXICAL_BYTES = 850  # of a passage of 100 words in a BM25 index, its text included
LEXICAL_MEMORY = 500e6
TOKENISER_MEMORY = 150e6
STORE_BYTES = 4.5  # of a token in a store
SENTENCE = 20  # tokens of a sentence, about
SAMPLE = 1_000  # records read before the rest is estimated
TEXTS = 8_192  # texts encoded at most before the rest is estimated
TIMED = 2.0  # seconds of work that are enough for an estimate
LABELS = 16  # batches of labelled queries that are read to time the steps on them
T = TypeVar("T")


@dataclass(frozen=True)
class ResourcePlan:
    """Estimates twice: lines for people, and the same numbers for programs, in seconds and bytes."""

    lines: list[str]
    document: dict[str, Any]


@dataclass(frozen=True)
class StageEstimate:
    """What one stage takes; no seconds where there is nothing to time yet."""

    stage: str
    seconds: float | None
    memory: float
    disk: float
    basis: str


@dataclass(frozen=True)
class CorpusSize:
    """Size of data; assumed where the data does not exist yet."""

    passages: int
    tokens: float  # of a passage

    @property
    def basis(self) -> str:
        return f"{counted(self.passages, 'passages')} of {self.tokens:g} tokens, as assumed"


@dataclass(frozen=True)
class ModelSize:
    """An encoder's size."""

    layers: int
    width: int
    intermediate: int
    vocab: int

    @classmethod
    def of(cls, folder: Path | None) -> ModelSize:
        """From a model's folder; BERT-base where it does not exist."""
        path = folder / "config.json" if folder is not None else None
        if path is None or not path.is_file():
            return cls(*BERT_BASE)
        values = read_model_file(path, TransformerFile).model_dump(exclude_none=True)
        layers = values.get("num_hidden_layers", values.get("n_layers", BERT_BASE[0]))
        width = values.get("hidden_size", values.get("dim", BERT_BASE[1]))
        inner = values.get("intermediate_size", values.get("hidden_dim", 4 * width))
        return cls(layers, width, inner, values.get("vocab_size", BERT_BASE[3]))

    @classmethod
    def of_start(cls, model: Any) -> ModelSize:
        """Of what a training starts from."""
        if isinstance(model, NewBackbone):
            return cls(model.layers, model.width, model.intermediate or 4 * model.width, BERT_BASE[3])
        return cls.of(model.path if isinstance(model, FolderBackbone) else None)

    @property
    def parameters(self) -> float:
        """Of layers and embeddings."""
        layer = 4.0 * self.width**2 + 2.0 * self.width * self.intermediate
        return self.layers * layer + (self.vocab + 512) * self.width

    def training_memory(self, parameters: float, tokens: float) -> float:
        """Weights, gradients and moments, and the activations of a chunk of that many tokens."""
        return 16 * parameters + tokens * BYTES_A_STATE * self.width * self.layers


def _pretrain(name: str, config: PretrainConfig, corpus: CorpusSize) -> StageEstimate:
    timed = _time_training(Pretraining, config)
    steps = config.loop.steps
    if steps is None and timed is not None:
        steps = max(1, round((config.loop.epochs or 1.0) * timed.epoch_steps))
    return _training(name, config, timed, steps, 2 * config.max_length)


def _finetune(name: str, config: FinetuneConfig, corpus: CorpusSize) -> StageEstimate:
    few = min(config.limit or config.loop.batch * LABELS, config.loop.batch * LABELS)
    short = {"limit": few, "evaluation": config.evaluation.model_copy(update={"split": None})}
    timed = _time_training(Finetuning, config.model_copy(update=short))
    steps = config.loop.steps
    if steps is None and is_collection(config.collection):
        queries = config.limit or sum(1 for _ in Collection(config.collection).query_ids(config.split))
        steps = max(1, round((config.loop.epochs or 1.0) * queries / config.loop.batch))
    passages = (config.positives + config.negatives) * config.passage_length
    return _training(name, config, timed, steps, config.query_length + passages)


def _time_training(stage: Any, config: PretrainConfig | FinetuneConfig) -> StepTime | None:
    """A few steps of a training in a folder that is removed; None where it has minutes, or lacks its data."""
    if config.loop.minutes is not None or _missing(config) is not None:
        return None
    with TemporaryDirectory() as folder:
        timed: StepTime = stage(recipes.resolved(config), Path(folder), ALONE).time_steps()
    return timed


def _missing(config: recipes.Config) -> Path | None:
    """The first thing that the recipe reads and that does not exist; a model of the hub can be downloaded."""
    paths = recipes.inputs(config).values()
    return next((path for path in paths if not path.exists() and not hub.is_name(path)), None)


def _training(
    name: str,
    config: PretrainConfig | FinetuneConfig,
    timed: StepTime | None,
    steps: int | None,
    example_tokens: int,
) -> StageEstimate:
    loop, size = config.loop, ModelSize.of_start(config.model)
    parameters = size.parameters if timed is None else timed.parameters
    memory = size.training_memory(parameters, min(_chunk(loop), loop.batch * example_tokens))
    length = "" if steps is None else f"{steps:,} steps"
    if loop.minutes is not None:
        seconds, basis = 60 * loop.minutes, "minutes of the recipe"
    elif timed is None or steps is None:
        seconds, basis = None, f"{length}{', ' if length else ''}timed when {_missing(config)} exists"
    else:
        seconds, basis = steps * timed.seconds, f"{length} of {duration(timed.seconds)}, measured"
    # A checkpoint has weights and two moments; the last ones and the best are kept, and the model.
    return StageEstimate(name, seconds, memory, parameters * (12 * (loop.keep + 1) + 4), basis)


def _chunk(loop: LoopConfig) -> float:
    if loop.chunk_tokens == "whole":
        return float("inf")
    return CHUNK_TOKENS[_device()] if loop.chunk_tokens == "auto" else loop.chunk_tokens


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _encode(name: str, config: encode.EncodeConfig, corpus: CorpusSize) -> StageEstimate:
    size, basis = _corpus(config.source, corpus)
    seconds, missing, count = None, _missing(config), size.passages
    if missing is not None:
        basis += f", timed when {missing} exists"
    elif not is_collection(config.source):
        basis += ", timed only for the texts of a collection"
    else:
        config = recipes.resolved(config)
        embedder = encode.load(config, config.device or _device(), encode.precision_of(config))
        records = [item.record for item in islice(encode_texts.read_items(config.source, config.what), TEXTS)]
        role = encode_texts.ROLES[config.what]
        sentences = round(size.passages * size.tokens / SENTENCE)
        count = encode_texts.count_items(config.source, config.what, config.split) or sentences
        seconds = count * seconds_each(lambda texts: embedder.vectors(texts, role), records)
    return _vectors(name, ModelSize.of(config.model), count, seconds, BYTES[config.type], basis)


def _vectors(
    name: str, model: ModelSize, texts: int, seconds: float | None, value_bytes: float, basis: str
) -> StageEstimate:
    memory = 4 * model.parameters + 8192 * model.width * 8 + machine.cores() * TOKENISER_MEMORY
    return StageEstimate(name, seconds, memory, texts * (model.width * value_bytes + 24), basis)


def _bm25(name: str, config: BM25Config, corpus: CorpusSize) -> StageEstimate:
    size, basis = _corpus(config.collection, corpus)
    path = config.collection
    if path is None or not is_collection(path):
        return _lexical(name, size, None, f"{basis}, timed when {path} exists")
    return _lexical(name, size, list(islice(Collection(path).passages(), SAMPLE)), basis)


def _lexical(name: str, corpus: CorpusSize, passages: Sequence[Passage] | None, basis: str) -> StageEstimate:
    def index(some: Sequence[Passage]) -> None:
        with TemporaryDirectory() as folder:
            write_segments(some, Path(folder), BM25Settings().analyzer, BM25Settings().weights)

    seconds = None if passages is None else corpus.passages * seconds_each(index, passages)
    return StageEstimate(name, seconds, LEXICAL_MEMORY, corpus.passages * LEXICAL_BYTES, basis)


def _prepare(name: str, config: PrepareConfig, corpus: CorpusSize) -> StageEstimate:
    size, basis = _corpus(config.collection, corpus)
    seconds = None
    if _missing(config) is None:
        collection = Collection(config.collection)
        tokenizer = Tokenizer.from_folder(recipes.resolved(config).tokenizer)
        if collection.has("documents"):
            documents = list(islice(collection.documents(), SAMPLE))
            size = replace(size, passages=collection.count("documents"))
        else:
            documents = [
                Document(p.id, p.title, (Section("", (p.text,)),))
                for p in islice(collection.passages(), SAMPLE)
            ]
        each = seconds_each(lambda some: build(some, tokenizer), documents)
        seconds = size.passages * each / machine.cores()
    else:
        basis += f", timed when {_missing(config)} exists"
    disk = size.passages * size.tokens * STORE_BYTES
    return StageEstimate(name, seconds, machine.cores() * TOKENISER_MEMORY, disk, basis)


def _corpus(path: Path | None, corpus: CorpusSize) -> tuple[CorpusSize, str]:
    """The passages of a collection that exists, else what is assumed."""
    if path is None or not is_collection(path):
        return corpus, corpus.basis
    collection = Collection(path)
    kind = "passages" if collection.has("passages") else "documents"
    count = collection.count(kind)
    tokens = (path / f"{kind}.jsonl").stat().st_size / count / 4.5
    return CorpusSize(count, tokens), f"{counted(count, kind)} of about {tokens:.0f} tokens in {path.name}"


def seconds_each(work: Callable[[Sequence[T]], Any], items: Sequence[T]) -> float:
    """Seconds of `work` per item: on more and more of them, until it takes long enough to be a measure."""
    size = 16
    work(items[:size])  # loads and compiles what the first call needs
    while True:
        began = perf_counter()
        work(items[:size])
        took = perf_counter() - began
        if took >= TIMED or size >= len(items):
            return took / max(1, min(size, len(items)))
        size *= 2


Estimator = Callable[[str, Any, CorpusSize], StageEstimate]
ESTIMATORS: Mapping[str, Estimator] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "encode": _encode,
    "bm25": _bm25,
    "prepare": _prepare,
}


def plan_recipe(
    table: Mapping[str, Stage], recipe: Path, overrides: Sequence[str], corpus: CorpusSize
) -> ResourcePlan:
    """What each stage of a recipe takes, and all of them."""
    planned = [item for item in _stages(table, recipe, overrides) if item.stage.name in ESTIMATORS]
    return whole([ESTIMATORS[item.stage.name](item.name, item.config, corpus) for item in planned])


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


SHORT = {"init", "passages", "index", "convert", "import", "average", "evaluate", "compare", "report"}


def known_seconds(item: Planned) -> float | None:
    """How long a stage takes whatever the machine: its minutes, or next to nothing; None where that is not known."""
    if item.stage.name in SHORT or item.stage.part_of:
        return 0.0
    return None if item.minutes is None else 60 * item.minutes


def whole(estimates: Sequence[StageEstimate]) -> ResourcePlan:
    """The stages, all of them together, and whether they fit."""
    known = [e.seconds for e in estimates if e.seconds is not None]
    largest, disk = max((e.memory for e in estimates), default=0.0), sum(e.disk for e in estimates)
    unknown = len(estimates) - len(known)
    basis = f"without the {counted(unknown, 'stages')} not timed" if unknown else ""
    total = StageEstimate("all", sum(known) if known else None, largest, disk, basis)
    available = torch.cuda.mem_get_info()[1] if _device() == "cuda" else machine.memory()
    name = torch.cuda.get_device_name() if _device() == "cuda" else f"this machine's {machine.cores()} cores"
    document = {
        "machine": {"name": name, "kind": _device(), "cores": machine.cores(), "memory_bytes": available},
        "stages": [_row(e) for e in estimates],
        "total": _row(total),
        "fits": largest <= available,
    }
    if not estimates:
        return ResourcePlan(["No stage of this recipe takes more than seconds."], document)
    width = max(len(e.stage) for e in estimates)
    rows = [f"On {name}", "", f"{'stage':<{width}}  {'time':>13}  {'memory':>9}  {'disk':>9}  basis"]
    for e in (*estimates, total):
        rows.append(
            f"{e.stage:<{width}}  {_time(e.seconds):>13}  {bytes_text(e.memory):>9}  {bytes_text(e.disk):>9}  "
            f"{e.basis}".rstrip()
        )
    if largest > available:
        rows.append(
            f"WARNING: {bytes_text(largest)} of memory are needed, but there are only {bytes_text(available)}."
        )
    return ResourcePlan(rows, document)


def _row(estimate: StageEstimate) -> dict[str, Any]:
    return {
        "stage": estimate.stage,
        "seconds": estimate.seconds,
        "memory_bytes": round(estimate.memory),
        "disk_bytes": round(estimate.disk),
        "basis": estimate.basis,
    }


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds / 86_400:,.1f} days" if seconds > 3 * 86_400 else duration(seconds)


def bytes_text(count: float) -> str:
    """`1.5 TB`, `13.6 GB`, `20 MB`, in powers of ten."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.3g} kB"


@dataclass(frozen=True)
class SourceSize:
    """Size of the sources: bytes of text, passages, the seconds to read them, how they were counted, and a sample."""

    text: float
    corpus: CorpusSize
    seconds: float
    basis: str
    sample: list[Passage]


def plan_build(config: BuildConfig) -> ResourcePlan:
    """What each part of `liebig build` takes, and all of them."""
    sources, model = measure(config), ModelSize.of(config.start)
    corpus, basis = sources.corpus, sources.basis
    embedder = Embedder.load(config.start, _device(), precision="auto")
    each = seconds_each(lambda texts: embedder.vectors(texts, "passage"), sources.sample)
    pool = min(QuestionsConfig.model_fields["pool"].default, corpus.passages)
    memory = machine.cores() * TOKENISER_MEMORY
    read = StageEstimate("read and cut", sources.seconds, memory, 3 * sources.text, basis)
    estimates = [read, _lexical("BM25", corpus, sources.sample, basis)]
    if config.minutes:
        batch = 2.0 * batch_size(_device() == "cuda") * min(corpus.tokens, LONGEST)
        memory = model.training_memory(model.parameters, min(batch, CHUNK_TOKENS["cuda"]))
        seconds = 60 * config.minutes
        estimates.append(StageEstimate("training", seconds, memory, 32 * model.parameters, "--minutes"))
    models = 2 if config.minutes else 1
    by_sentences = corpus.passages <= BY_SENTENCES
    again = by_sentences and not pools_sentences(config.start)  # else they come with their passages
    checked = models * pool * (1 + again)
    kinds = "passages and their sentences" if by_sentences else "passages"
    about = f"{pool:,} {kinds} by each encoder"
    estimates.append(_vectors("check", model, checked, checked * each, BYTES["fp16"], about))
    seconds = corpus.passages * each
    estimates.append(_vectors("vectors", model, corpus.passages, seconds, BYTES["fp16"], basis))
    if by_sentences:
        sentences = round(corpus.passages * corpus.tokens / SENTENCE)
        about = "where the check takes them"
        estimates.append(_vectors("sentences", model, sentences, again * seconds, BYTES["fp16"], about))
    return whole(estimates)


def measure(config: BuildConfig) -> SourceSize:
    """Read and cut the first records of the sources, and scale them to all of their bytes."""
    tokenizer = Tokenizer.from_folder(config.start)
    cutter = by_tokens(
        tokenizer, passage_length(config.start), language=sentence_language(config.language or "en")
    )
    began = perf_counter()
    files = [one for source in config.sources for one in detect(source)]
    sizes = {
        file.label: file.path.stat().st_size
        for one in files
        for file in one.source.files()
        if isinstance(file, DiskSource) and file.path.is_file()
    }
    passages: list[Passage] = []
    text, read, records, last = 0.0, 0.0, 0, ""
    of_last, complete = 0.0, True
    for item in (item for one in files for item in one.items(Options())):
        record = item.record
        if not isinstance(record, Document | Passage):
            continue
        if records >= SAMPLE and sizes:
            complete = False
            break
        if item.where.file != last:
            read, last, of_last = read + sizes.get(last, 0), item.where.file, 0.0
        size = len(record.text.encode())
        text, of_last, records = text + size, of_last + size, records + 1
        passages += [record] if isinstance(record, Passage) else [p.passage for p in cut(record, cutter)]
    if not passages:
        raise DataError("it contains no text", file=", ".join(config.sources))
    texts = [f"{passage.title} {passage.text}" for passage in passages]
    mean = sum(map(len, tokenizer.encode_batch(texts))) / len(passages)
    seconds = perf_counter() - began
    if complete:
        basis = f"{counted(len(passages), 'passages')} of about {mean:.0f} tokens"
        return SourceSize(text, CorpusSize(len(passages), mean), seconds, basis, passages)
    read += min(sizes.get(last, 0), of_last)
    times = max(1.0, sum(sizes.values()) / max(1.0, read))
    count = round(len(passages) * times)
    basis = f"about {count:,} passages of {mean:.0f} tokens, from the first {records:,} records"
    return SourceSize(text * times, CorpusSize(count, mean), seconds * times, basis, passages)
