"""Fine-tuning against sentence-transformers: queries per second with the same loss, batch and lengths.

    python bench/finetune.py --data SQUAD [--steps 60] [--peer loop|trainer] [--peer-compile]
    python bench/finetune.py --data SQUAD --size tiny --setting 8x2x128 --steps 3          (does it run? without a GPU)

A new BERT-base with random weights, made by the script, is trained on the questions of a BEIR folder, each with its
paragraph and random other ones: InfoNCE over the batch (MultipleNegativesRankingLoss), scale 1, dot product, dropout
0.1 and none on attention scores, bf16 autocast on a GPU, fused AdamW, gradients clipped at 1, questions cut at 32
tokens. A setting is queries x passages of a query x tokens of a passage; the first, which the ratio is of, is
coCondenser's for Natural Questions. The first steps, which compile and warm up, do not count.

sentence-transformers' trainer needs the packages `datasets` and `accelerate`. `--peer loop`, the default, needs
neither: its model, tokenisation and loss in a plain loop that does what the trainer does in a step and nothing else
(no logging, no callbacks), fed by a DataLoader of several processes with pinned memory. `--peer trainer` is the
trainer.
"""

from __future__ import annotations

import argparse
import gc
import json
import lzma
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from liebig import encoders
from liebig.base.machine import cores
from liebig.methods.contrastive import Contrastive
from liebig.methods.labelled import Examples
from liebig.methods.retrieval import RetrievalBatches
from liebig.methods.samplers import GroupChoice, random_batches
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.ragged import Ragged
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.train.distributed import World
from liebig.train.optim import AdamWConfig, build_optimiser as build
from liebig.train.precision import DTYPES, LossScaler, choose
from liebig.train.prefetch import Feed
from liebig.train.step import step
from usual import profile

SIZES = {"base": (12, 768, 12), "small": (6, 384, 6), "tiny": (2, 64, 2)}
QUERY, LR = 32, 5e-6
TOKENISERS = min(8, max(2, cores() - 1))  # processes that feed the peer
VOCABULARY = 30_528  # of the bundled tokenizer
SETTINGS = ["128x2x256", "64x8x128"]


@dataclass(frozen=True)
class Task:
    """Questions, passages, the right passage of each question, wrong ones, and the tokens of a passage."""

    queries: list[str]
    passages: list[str]
    right: list[int]
    wrong: list[list[int]]
    length: int

    @classmethod
    def read(cls, folder: Path, negatives: int, length: int) -> Task:
        if not (folder / "queries.jsonl.xz").is_file():
            raise SystemExit(f"no queries.jsonl.xz in {folder}: give --data, a folder in BEIR layout")
        passages: list[str] = []
        places: dict[str, int] = {}
        for row in _rows(folder / "corpus.jsonl.xz"):
            places[row["_id"]] = len(passages)
            passages.append(f"{row.get('title', '')} {row['text']}".strip())
        texts = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl.xz")}
        lines = [line.split("\t") for line in (folder / "qrels" / "train.tsv").read_text().splitlines()[1:]]
        right = [places[p] for _, p, _ in lines]
        drawn = np.random.default_rng(0).integers(1, len(passages), (len(right), negatives))
        wrong = ((np.array(right)[:, None] + drawn) % len(passages)).tolist()
        return cls([texts[q] for q, _, _ in lines], passages, right, wrong, length)

    def rows(self) -> list[list[str]]:
        """The texts of each example: question, right passage, wrong ones."""
        return [
            [q, self.passages[r], *(self.passages[i] for i in w)]
            for q, r, w in zip(self.queries, self.right, self.wrong)
        ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def new_model(size: str, folder: Path) -> Path:
    """A folder that both sides load: random weights, the packaged tokenizer, BERT's number of word pieces."""
    layers, width, heads = SIZES[size]
    tokenizer = Tokenizer.from_folder(encoders.folder())
    Encoder(Backbone.create(layers, width, heads, VOCABULARY, dropout=0.1, seed=0), tokenizer).save(folder)
    return folder


class Clock:
    """Queries per second from the `warm`-th step on."""

    def __init__(self, warm: int, device: torch.device) -> None:
        self.warm, self.device, self.began, self.seen, self.steps = warm, device, 0.0, 0, 0

    def tick(self, queries: int) -> None:
        """A step is done."""
        self.steps += 1
        if self.steps == self.warm:
            self.began = self._now()
        self.seen += queries if self.steps > self.warm else 0

    def rate(self) -> float:
        return self.seen / (self._now() - self.began)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.monotonic()


def ours(args: Any, model: Path, task: Task, batch: int, device: torch.device) -> float:
    """Queries per second of the package's feed, step and optimiser."""
    n = len(task.queries)
    examples = Examples(
        tuple(map(str, range(n))),
        tuple(map(str, range(len(task.passages)))),
        Ragged.from_lists([[r] for r in task.right]),
        Ragged.from_lists(task.wrong),
        Ragged.from_lists([[r] for r in task.right]),
        np.arange(len(task.passages)),
    )
    encoder = Encoder.load(model).to(device)
    queries, passages = (
        RoleLayout(encoder.tokenizer, length).all_ids(some)
        for some, length in ((task.queries, QUERY), (task.passages, task.length))
    )
    lengths = [float(t.lengths.mean()) for t in (queries, passages)]
    print(f"mean tokens: {lengths[0]:.1f} of {QUERY} a question, {lengths[1]:.1f} of {task.length} a passage")
    world, choice = World(device=device), GroupChoice(negatives=len(task.wrong[0]))
    maker = RetrievalBatches(
        examples, queries, passages, random_batches(n, batch, 0), choice, world, mask=False
    )
    objective = Contrastive.build(Contrastive.Config(), encoder, None).train()
    if device.type == "cuda":
        objective.compile()
    precision = choose("auto", device)
    optimiser = build(AdamWConfig(lr=LR), objective, clip=1.0, scaler=LossScaler(precision == "fp16"))
    feed, clock, total = Feed(maker, 2, pin=device.type == "cuda"), Clock(args.warm, device), args.steps

    def run(number: int) -> None:
        made = feed.get(number, total + args.warm)
        optimiser.update(
            lambda constants: step(
                objective,
                made,
                world,
                chunk_tokens=None,
                dtype=DTYPES[precision],
                seed=number,
                constants=constants,
            ),
            LR,
        )
        clock.tick(made.n)

    for number in range(total + args.warm):
        run(number)
    rate = clock.rate()
    print(f"waiting for batches: {feed.waited:.2f} s in all")
    if args.profile:
        profile(run, range(4))
    feed.close()
    return rate


def their_model(args: Any, model: Path, length: int, device: torch.device) -> tuple[Any, Any]:
    """sentence-transformers' model and loss."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from sentence_transformers.util import dot_score

    made = SentenceTransformer(str(model), device=str(device), model_kwargs={"attn_implementation": "sdpa"})
    made.max_seq_length = length
    loss = MultipleNegativesRankingLoss(made, scale=1.0, similarity_fct=dot_score)
    if args.peer_compile:
        made[0].auto_model.compile(dynamic=True)
    return made.train(), loss


def their_loop(args: Any, model: Path, task: Task, batch: int, device: torch.device) -> float:
    """What sentence-transformers' trainer does in a step, in a plain loop."""
    made, loss = their_model(args, model, task.length, device)
    cuda = device.type == "cuda"

    def collate(rows: list[list[str]]) -> list[dict[str, torch.Tensor]]:
        features = []
        for i, column in enumerate(zip(*rows)):
            made.max_seq_length = task.length if i else QUERY
            found = made.preprocess(list(column))
            features.append({k: v for k, v in found.items() if isinstance(v, torch.Tensor)})
        return features

    rows: Any = task.rows()  # a list is a dataset too
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        rows, batch_size=batch, shuffle=True, drop_last=True, collate_fn=collate, num_workers=TOKENISERS,
        pin_memory=cuda, persistent_workers=True, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    parameters = [p for p in made.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.01, fused=True)
    clock, total = Clock(args.warm, device), args.steps + args.warm
    while clock.steps < total:
        for features in loader:
            moved = [{k: v.to(device, non_blocking=True) for k, v in f.items()} for f in features]
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                value = loss(moved, None)
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            optimiser.zero_grad()
            clock.tick(batch)
            if clock.steps == total:
                break
    return clock.rate()


def their_trainer(args: Any, model: Path, task: Task, batch: int, device: torch.device) -> float:
    """sentence-transformers' trainer itself."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer
    from sentence_transformers.training_args import SentenceTransformerTrainingArguments
    from transformers import TrainerCallback

    made, loss = their_model(args, model, task.length, device)
    columns = dict(zip(["anchor", "positive", *(f"negative_{i}" for i in range(99))], zip(*task.rows())))
    clock = Clock(args.warm, device)

    class Tick(TrainerCallback):
        def on_step_end(self, arguments, state, control, **rest):  # type: ignore[no-untyped-def]
            clock.tick(batch)

    with tempfile.TemporaryDirectory() as out:
        settings = SentenceTransformerTrainingArguments(
            output_dir=out, max_steps=args.steps + args.warm, per_device_train_batch_size=batch, learning_rate=LR,
            bf16=device.type == "cuda", report_to=[], save_strategy="no", logging_strategy="no",
            dataloader_drop_last=True, dataloader_num_workers=TOKENISERS, use_cpu=device.type == "cpu",
        )  # fmt: skip
        data = Dataset.from_dict({name: list(texts) for name, texts in columns.items()})
        SentenceTransformerTrainer(
            model=made, args=settings, train_dataset=data, loss=loss, callbacks=[Tick()]
        ).train()
    return clock.rate()


def free(device: torch.device) -> None:
    """Give back what the side before held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def arguments() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder with training judgements")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument(
        "--setting", action="append", help=f"queries x passages x tokens, several times {SETTINGS}"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm", type=int, default=10, help="steps before the clock starts")
    parser.add_argument("--peer", choices=("loop", "trainer"), default="loop")
    parser.add_argument(
        "--peer-compile", action="store_true", help="compile sentence-transformers' model too"
    )
    parser.add_argument("--profile", action="store_true", help="ours alone, and where its time goes")
    parser.add_argument("--device", help="cuda or cpu [default: the GPU if there is one]")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    theirs = their_loop if args.peer == "loop" else their_trainer
    ratios = []
    with tempfile.TemporaryDirectory() as home:
        model = new_model(args.size, Path(home) / "model")
        for setting in args.setting or SETTINGS:
            batch, passages, length = map(int, setting.split("x"))
            task = Task.read(args.data, passages - 1, length)
            mine = ours(args, model, task, batch, device)
            print(f"{setting}: liebig {mine:.1f} queries/s", flush=True)
            if args.profile:
                continue
            free(device)
            other = theirs(args, model, task, batch, device)
            free(device)
            ratios.append(mine / other)
            what = f"sentence-transformers, {args.peer}{', compiled' if args.peer_compile else ''}"
            print(f"{setting}: {what} {other:.1f} queries/s; {ratios[-1]:.2f} times", flush=True)
    if ratios:
        print(f"ratio: {min(ratios):.2f}")


if __name__ == "__main__":
    main()
