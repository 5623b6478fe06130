"""An encoder trained on a user's own questions, where TRAINABLE or more are judged (`liebig build --questions FILE`).

It learns them by contrast, with negatives that the untrained hybrid finds. What the check is told of that encoder is
cross-fitted: each of PARTS parts of the questions is answered by an encoder that was trained on the others. Cost: four
short trainings, and the pool encoded by each of the parts' encoders.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from liebig.base.config import Config, InputPath
from liebig.base.pipeline import Stage
from liebig.base.records import Group, Query
from liebig.base.workspace import Folder
from liebig.builder.build_config import BuildConfig
from liebig.builder.judge import PLAIN
from liebig.builder.questions import OWN, Question, folds, read as read_questions
from liebig.builder.runner import Builder, encode_passages, encode_sentences
from liebig.builder.steps import Candidate, Exam, IndexedCorpus
from liebig.builder.training import MEAN, TRAINABLE, MeanConfig
from liebig.builder.user_questions import once
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats.items import Item, Where
from liebig.methods.contrastive import Contrastive
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.samplers import steps_of
from liebig.model.folder import text_reader
from liebig.model.loading import FolderBackbone
from liebig.search.systems import Hits, Hybrid, open_system, weighted_by
from liebig.stages.finetune import STAGE as FINETUNE
from liebig.train.loop import LoopConfig
from liebig.train.optim import AdamWConfig

TRAIN = "train"
PARTS = 3  # of the questions, for cross-fitting the training
DEPTH = 50  # of the ranking that negatives come from
NEGATIVES = 20  # kept of a question
SAFE = 0.95  # a passage that scores more than this share of a relevant one's score may be relevant too
LR, EPOCHS, BATCH = 2e-5, 24, 48


class ExamplesConfig(Config):
    """Judged questions as training examples, with negatives that the hybrid finds."""

    questions: InputPath = Field(description="What the stage of a user's questions wrote.")
    bm25: InputPath = Field(description="BM25 index of the pool.")
    vectors: InputPath = Field(description="Vectors of the pool.")
    without: int | None = Field(
        None, ge=0, lt=PARTS, description="The part of the questions to leave out [default: none]."
    )


def write_examples(config: ExamplesConfig, folder: Folder) -> None:
    """Write a collection with groups of relevant and other passages, to fine-tune on."""
    questions = once(read_questions(config.questions))
    parts = folds(questions, PARTS)
    kept = [question for question, part in zip(questions, parts) if part != config.without]
    systems = [open_system(config.bm25), open_system(config.vectors)]
    hybrid = Hybrid(systems, weighted_by(PLAIN, "minmax"))
    hits = hybrid.search([Query("", question.text) for question in kept], DEPTH)
    pool = Collection(config.questions)
    where = Where(str(config.questions))
    written: set[str] = set()
    with CollectionWriter(folder.path) as writer:
        for number, (question, ranked) in enumerate(zip(kept, hits)):
            group = Group(f"q{number}", question.passages, tuple(negatives(question, ranked)))
            writer.add(Item(Query(group.query, question.text), where, TRAIN))
            writer.add(Item(group, where, TRAIN))
            for id in {*group.positives, *group.negatives} - written:
                writer.add(Item(pool.passage(id), where))
            written |= {*group.positives, *group.negatives}


def negatives(question: Question, hits: Hits) -> list[str]:
    """What was judged and is not relevant, then what was found and scores clearly less than what is relevant."""
    scores = dict(hits)
    best = max(
        (scores[id] for id in question.passages if id in scores), default=max(scores.values(), default=0.0)
    )
    clear = (id for id, score in hits if score <= SAFE * best)
    known = {*question.passages, *question.against}
    return [*question.against, *(id for id in clear if id not in known)][:NEGATIVES]


EXAMPLES = Stage("examples", ExamplesConfig, write_examples, part_of="build")


def train_on_questions(
    builder: Builder, config: BuildConfig, corpus: IndexedCorpus, exam: Exam, start: Candidate
) -> Candidate | None:
    """An encoder trained on all the questions; None where there are too few.

    What the check compares are vectors of the pool by encoders that were trained without a part of them.
    """
    if exam.judged < TRAINABLE:
        builder.say(
            f"training on your questions: skipped, {exam.judged} judged ones are too few ({TRAINABLE} are enough)"
        )
        builder.whole.drop("own")
        return None

    def train(name: str, without: int | None = None) -> Path:
        assert start.pool is not None, "the start has encoded the pool"
        mined = ExamplesConfig(questions=exam.questions, bm25=exam.bm25, vectors=start.pool, without=without)
        examples = builder.work(f"examples{name}", EXAMPLES, mined)
        recipe = finetuning(start.model, examples, text_reader(start.model).max_length, config.limit)
        model = builder.work(f"finetuned{name}", FINETUNE, recipe) / "model"
        # Training may have seen shorter texts; lengths and titles stay those of use.
        whole = MeanConfig(start=start.model, trained=model, share=1.0)
        return builder.work(f"finetuned{name}-whole", MEAN, whole) / "model"

    models = []
    for part in range(PARTS):
        builder.whole.repeat(PARTS - part)  # the last is on all of them
        models.append(train(f"-without-{part}", part))
    builder.whole.repeat(0)
    parts = [
        encode_passages(builder, f"pool-without-{part}", exam.questions, model)
        for part, model in enumerate(models)
    ]
    sentences = [
        encode_sentences(builder, f"pool-without-{part}-sentences", exam.questions, model)
        for part, model in enumerate(models if corpus.by_sentences else ())
    ]
    return Candidate(
        OWN,
        train(""),
        parts=tuple(parts),
        sentence_parts=tuple(sentences),
    )


def finetuning(model: Path, examples: Path, max_length: int, minutes: float) -> FinetuneConfig:
    """The recipe of `liebig finetune`: little, with a small learning rate.

    `minutes` are divided among the trainings on all questions and without each part of them.
    """
    steps = EPOCHS * steps_of(Collection(examples).count("queries"), BATCH)
    return FinetuneConfig(
        model=FolderBackbone(path=model),
        collection=examples,
        split=TRAIN,
        objective=Contrastive.Config(similarity="cosine", temperature=0.05),
        query_length=min(64, max_length),
        passage_length=min(256, max_length),
        optim=AdamWConfig(lr=LR),
        loop=LoopConfig(minutes=minutes / (PARTS + 1), steps=steps, batch=BATCH),
    )
