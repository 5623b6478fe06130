"""Fine-tuning against sentence-transformers' trainer: queries per second, same loss, batch and lengths.

    python bench/finetune.py MODEL [--data ../shared/data/squad] [--batch 64] [--steps 100] [--compile]

MODEL is a folder that both load. Both train on the questions of a BEIR folder with one positive and one other passage
of the training set each, InfoNCE over the batch (MultipleNegativesRankingLoss), scale 1, dot product, bf16 on a GPU,
questions cut at 32 tokens and passages at 128. The first steps, which compile and warm up, are not counted.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path

import numpy as np
import torch

from liebig.finetune.batches import Choice, Maker
from liebig.finetune.contrastive import Retriever
from liebig.model.encoder import Encoder
from liebig.train.config import AdamWConfig
from liebig.train.distributed import World
from liebig.train.feed import Feed
from liebig.train.labelled.examples import Examples, Ragged
from liebig.train.labelled.samplers import random_batches
from liebig.train.labelled.texts import Shape, Texts
from liebig.train.optim import build
from liebig.train.precision import DTYPES, LossScaler, choose
from liebig.train.step import step

WARM = 10


def read(folder: Path) -> tuple[list[str], list[str], list[int]]:
    """Training questions, passages, and the passage of each question."""
    passages, places = [], {}
    for row in _rows(folder / "corpus.jsonl.xz"):
        places[row["_id"]] = len(passages)
        passages.append(f"{row.get('title', '')} {row['text']}".strip())
    texts = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl.xz")}
    lines = (folder / "qrels" / "train.tsv").read_text().splitlines()[1:]
    pairs = [line.split("\t") for line in lines]
    return [texts[q] for q, _, _ in pairs], passages, [places[p] for _, p, _ in pairs]


def _rows(path: Path) -> list[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def others(answers: list[int], passages: int) -> list[int]:
    """A random other passage for each question."""
    drawn = np.random.default_rng(0).integers(1, passages, len(answers))
    return ((np.array(answers) + drawn) % passages).tolist()


def ours(args: argparse.Namespace, device: torch.device) -> float:
    """Queries per second of the package's step, optimiser and feed."""
    queries, passages, answers = read(args.data)
    wrong = others(answers, len(passages))
    known = np.arange(len(passages))
    examples = Examples(
        tuple(map(str, range(len(queries)))),
        tuple(map(str, range(len(passages)))),
        Ragged.of([[a] for a in answers]),
        Ragged.of([[w] for w in wrong]),
        Ragged.of([[a] for a in answers]),
        known,
    )
    encoder = Encoder.load(args.model).to(device)
    shapes = Shape(encoder.tokenizer, 32), Shape(encoder.tokenizer, 128)
    sampler = random_batches(len(queries), args.batch, 0)
    texts = Texts.of(queries, shapes[0]), Texts.of(passages, shapes[1])
    world = World(device=device)
    maker = Maker(examples, *texts, sampler, Choice(negatives=1), world, mask=False)
    objective = Retriever(encoder).train()
    if args.compile:
        objective.compile()
    precision = choose("auto", device)
    optimiser = build(AdamWConfig(lr=5e-6), objective, clip=1.0, scaler=LossScaler(precision == "fp16"))
    feed = Feed(maker, 2, pin=device.type == "cuda")
    began, seen = 0.0, 0
    for number in range(args.steps + WARM):
        if number == WARM:
            began = _now(device)
        batch = feed.get(number, args.steps + WARM)
        optimiser.update(
            lambda constants, b=batch, n=number: step(
                objective, b, world, chunk_tokens=None, dtype=DTYPES[precision], seed=n, constants=constants
            ),
            5e-6,
        )
        seen += batch.n if number >= WARM else 0
    rate = seen / (_now(device) - began)
    feed.close()
    return rate


def theirs(args: argparse.Namespace, device: torch.device) -> float:
    """The same with sentence-transformers' trainer."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.training_args import SentenceTransformerTrainingArguments
    from sentence_transformers.util import dot_score
    from transformers import TrainerCallback

    queries, passages, answers = read(args.data)
    wrong = others(answers, len(passages))
    model = SentenceTransformer(str(args.model), device=str(device))
    model.max_seq_length = 128
    data = Dataset.from_dict(
        {
            "anchor": [" ".join(q.split()[:28]) for q in queries],
            "positive": [passages[a] for a in answers],
            "negative": [passages[w] for w in wrong],
        }
    )
    clock: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, arguments, state, control, **rest):  # type: ignore[no-untyped-def]
            if state.global_step in (WARM, args.steps + WARM):
                clock.append(_now(device))

    settings = SentenceTransformerTrainingArguments(
        output_dir=str(args.out), max_steps=args.steps + WARM, per_device_train_batch_size=args.batch,
        learning_rate=5e-6, bf16=device.type == "cuda", report_to=[], save_strategy="no", logging_strategy="no",
        dataloader_drop_last=True, dataloader_num_workers=2, torch_compile=args.compile,
        use_cpu=device.type == "cpu",
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model, scale=1.0, similarity_fct=dot_score)
    SentenceTransformerTrainer(
        model=model, args=settings, train_dataset=data, loss=loss, callbacks=[Clock()]
    ).train()
    return args.steps * args.batch / (clock[1] - clock[0])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/squad"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("/tmp/liebig-bench-finetune"))
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    mine = ours(args, device)
    print(f"liebig: {mine:.1f} queries/s")
    other = theirs(args, device)
    print(f"sentence-transformers: {other:.1f} queries/s")
    print(f"ratio {mine / other:.2f}")


if __name__ == "__main__":
    main()
