"""How a build trains an encoder on its documents alone, and what every training of a build shares.

An encoder learns by contrast on two kinds of pairs (`contrast_recipe`). Half of the batches are a sentence and the
block around it (inverse cloze), half are a title or heading with a passage under it, where the corpus has them.
Questions that will be asked afterwards are never among them. Forty steps of 48 pairs took the dense ranking of
MedQuAD's development questions from useless to nearly BM25's.

One that is a retriever already goes half of the way: a model and what a short training made of it lie in one valley of
the loss, so what lies between is a model too, and keeps more of both (Wortsman et al. 2022). On some corpora that helps
and on others it does harm, so it waits for a request (`BuildConfig.may_train`), and the check decides.

A teacher's lessons are in `lessons.py`, training on a user's own questions in
`question_training.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.errors import DataError
from liebig.base.pipeline import Stage
from liebig.base.progress import counted
from liebig.base.workspace import Folder
from liebig.builder import check
from liebig.builder.build_config import LEFT_OUT, BuildConfig
from liebig.builder.check import CheckConfig
from liebig.builder.judge import TRAINED
from liebig.builder.questions import PAIRS, REST, RestConfig
from liebig.builder.runner import Builder, encode_passages
from liebig.builder.steps import Candidate, Exam, IndexedCorpus
from liebig.collection import Collection
from liebig.methods.base import Pooling, StoreConfig
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.simclr import SimCLR
from liebig.methods.sources.blocks import ClozeSource
from liebig.methods.sources.mixture import MixedBatches, MixturePart
from liebig.methods.sources.pairs import QuerySource
from liebig.model.encoder import Encoder
from liebig.model.loading import FolderBackbone
from liebig.stages.prepare import STAGE as PREPARE, PrepareConfig
from liebig.stages.pretrain import STAGE as PRETRAIN
from liebig.store import TokenStore
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig

FEWEST_TOKENS, FEWEST_EXAMPLES = 20_000, 32
BATCH_CPU, BATCH_CUDA = 64, 512
LR = 1e-4
LONGEST = 256  # tokens of a sequence in training


@dataclass(frozen=True)
class EncoderTraits:
    """The properties of the starting encoder that training depends on."""

    pooling: str
    max_length: int
    cuda: bool

    @property
    def length(self) -> int:
        """Tokens of a sequence in training."""
        return min(self.max_length, LONGEST)

    @property
    def trainable_pooling(self) -> Pooling:
        return "mean" if self.pooling == "mean" else "cls"

    @property
    def obstacle(self) -> str | None:
        """Why such an encoder cannot be trained; None if it can."""
        supported = self.pooling in ("mean", "cls")
        return None if supported else f"training an encoder with {self.pooling} pooling is not supported"

    @classmethod
    def of(cls, model: Path) -> EncoderTraits:
        encoder = Encoder.load(model)
        return cls(encoder.pooling, encoder.max_length, torch.cuda.is_available())


def batch_size(cuda: bool) -> int:
    """Pairs in a step, where the corpus has that many."""
    return BATCH_CUDA if cuda else BATCH_CPU


class MeanConfig(Config):
    """The weighted mean of an encoder's weights before and after training."""

    start: InputPath  # model before
    trained: InputPath  # same model after
    share: float = Field(0.5, ge=0, le=1)  # how far to go from the first to the second


def write_mean(config: MeanConfig, folder: Folder) -> None:
    """Write the weights between both to `model/`.

    `liebig average` takes folders of one form; a start may have any that loads, so both are loaded here.
    """
    start, encoder = Encoder.load(config.start), Encoder.load(config.trained)
    # Training may have seen shorter texts; lengths and titles stay those of use.
    encoder.max_length, encoder.layout = start.max_length, start.layout
    before = dict(start.named_parameters())
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.copy_(torch.lerp(before[name], value, config.share))
    encoder.save(folder.path / "model")


MEAN = Stage("mean", MeanConfig, write_mean, part_of="build")


def retrieves(builder: Builder, exam: Exam, start: Candidate) -> bool:
    """Whether an encoder is a retriever already, by the questions."""
    vectors = start.made or start.pool
    assert vectors is not None, "the start has encoded the pool"
    config = CheckConfig(questions=exam.made, bm25=exam.made_bm25, encoders={start.name: vectors})
    return bool(check.read(builder.work("check-start", check.STAGE, config))["fair"])


def train_on_documents(
    builder: Builder, config: BuildConfig, corpus: IndexedCorpus, exam: Exam, start: Candidate
) -> Candidate | None:
    """The encoder after training on the corpus; None where nobody wants that, or there is nothing to train on."""
    is_retriever = retrieves(builder, exam, start)
    if is_retriever and config.minutes is None:
        if config.questions is None:
            builder.say(LEFT_OUT)
        builder.whole.drop("train")
        return None
    rest = builder.work("rest", REST, RestConfig(collection=corpus.collection, questions=exam.made))
    store = builder.work("store", PREPARE, PrepareConfig(collection=rest, tokenizer=start.model))
    traits = EncoderTraits.of(start.model)
    tokens = TokenStore.open(store)
    obstacle = traits.obstacle
    if len(tokens.tokens) < FEWEST_TOKENS:
        obstacle = f"{counted(len(tokens), 'documents')} with {len(tokens.tokens):,} tokens are too little to train on"
    recipe = None
    if obstacle is None:
        recipe = contrast_recipe(start.model, traits, store, exam.made, config.limit)
    if recipe is None:
        obstacle = obstacle or "the documents are too short to cut sentences from, and have too few titles"
        builder.say(f"training: skipped, because {obstacle}")
        return None
    if not recipe.stores:
        builder.say("training: on titles alone, because the documents are too short to cut sentences from")
    model = builder.work("trained", PRETRAIN, recipe) / "model"
    if is_retriever:
        model = builder.work("mean", MEAN, MeanConfig(start=start.model, trained=model)) / "model"
    return Candidate(TRAINED, model, encode_passages(builder, "pool-trained", exam.pool, model))


def contrast_recipe(
    model: Path, traits: EncoderTraits, store: Path, questions: Path, minutes: float
) -> PretrainConfig | None:
    """The recipe of `liebig pretrain` for training on the documents; None where no pairs can be made."""
    sources: list[tuple[ClozeSource.Config | QuerySource.Config, int]] = [
        (ClozeSource.Config(), _blocks(TokenStore.open(store, hashes=False), traits))
    ]
    if (questions / PAIRS).is_dir():
        titles = Collection(questions / PAIRS)
        sources.append((QuerySource.Config(collection=titles.path), titles.count("passages")))
    sources = [(source, examples) for source, examples in sources if examples >= FEWEST_EXAMPLES]
    if not sources:
        return None
    parts = tuple(MixturePart(source=source, weight=1.0) for source, _ in sources)
    batch = min(batch_size(traits.cuda), int(0.9 * min(examples for _, examples in sources)))
    return PretrainConfig(
        model=FolderBackbone(path=model),
        stores=(StoreConfig(path=store),) if any(source.reads_store for source, _ in sources) else (),
        source=MixedBatches.Config(parts=parts) if len(parts) > 1 else sources[0][0],
        objective=SimCLR.Config(similarity="cosine", pooling=traits.trainable_pooling),
        max_length=traits.length,
        optim=AdamWConfig(lr=LR),
        loop=LoopConfig(minutes=minutes, batch=batch, chunk_tokens="auto" if traits.cuda else "whole"),
    )


def _blocks(store: TokenStore, traits: EncoderTraits) -> int:
    """Blocks that a sentence can be taken from; documents of one sentence have none."""
    try:
        return len(ClozeSource(store, traits.length - 4))
    except DataError:
        return 0
