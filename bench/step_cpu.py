"""A training step on a CPU core: ours against Hugging Face Trainer with padding, same model, data and masks.

    python bench/step_cpu.py            about a minute; the last line is the smaller of the two ratios

Both sides train BERT 4 x 256 with AdamW in float32 on the same rows of natural lengths (at most 128 tokens, 82 on
average, 15 % masked): once masked language modelling (BertForMaskedLM), once Condenser (as a user of transformers
would write it, bench/usual.py). The Trainer pads each batch to its longest row and scores every position; ours
runs packed and scores masked positions only. One thread, CPU time; runs alternate, and the fastest step of each side
counts, since whatever else the machine does can only add to one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

from liebig.methods.condenser import Condenser
from liebig.methods.mlm import MaskedLM
from liebig.model.backbone import Backbone
from liebig.model.packed import Packed
from liebig.train.batch import Batch, Side
from liebig.train.loop import LoopConfig, train
from usual import UsualCondenser, natural_lengths

LAYERS, WIDTH, HEADS, VOCAB = 4, 256, 4, 30522
LONGEST, MEAN, RATE = 128, 82, 0.15
BATCH, STEPS, SKIPPED, ROUNDS = 16, 6, 2, 2
CLS, SEP, MASK = 101, 102, 103

Row = dict[str, list[int]]


def rows(n: int, seed: int = 0) -> list[Row]:
    """Random tokens of natural lengths, a share of them masked; labels are −100 elsewhere."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for length in natural_lengths(n, LONGEST, MEAN).tolist():
        ids = torch.randint(1000, VOCAB, (length,), generator=random)
        ids[0], ids[-1] = CLS, SEP
        targets = 1 + torch.randperm(length - 2, generator=random)[: max(1, round(RATE * (length - 2)))]
        labels = torch.full((length,), -100)
        labels[targets] = ids[targets]
        ids[targets] = MASK
        found.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
    return found


class Usual(nn.Module):
    """`UsualCondenser` behind the interface that Trainer wants."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.inner = UsualCondenser(config)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> dict[str, Any]:
        return {"loss": self.inner(input_ids, attention_mask, labels)}


def padded(batch: list[Row]) -> dict[str, torch.Tensor]:
    """Padded to the longest row of the batch."""
    longest = max(len(row["input_ids"]) for row in batch)

    def fill(name: str, value: int) -> torch.Tensor:
        return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in batch])

    ids = fill("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": fill("labels", -100)}


class Clock(TrainerCallback):
    """CPU seconds at the end of each step."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.times.append(time.process_time())


def trainer_seconds(make: Callable[[BertConfig], nn.Module], data: list[Row], folder: Path) -> float:
    """CPU seconds per step of Hugging Face Trainer."""
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=1e-4,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    clock = Clock()
    trainer = Trainer(make(config), arguments, train_dataset=data, data_collator=padded, callbacks=[clock])  # type: ignore[arg-type]  # a list is a dataset
    trainer.train()
    return fastest(clock.times)


def fastest(times: list[float]) -> float:
    """The shortest step between these times, loading included, after the first ones."""
    return min(b - a for a, b in zip(times[SKIPPED - 1 :], times[SKIPPED:]))


def packed_batch(data: list[Row], step: int) -> Batch:
    """The batch of a step as one packed row."""
    some = data[step * BATCH : (step + 1) * BATCH]
    packed = Packed.from_lists([row["input_ids"] for row in some])
    labels = torch.tensor([label for row in some for label in row["labels"]])
    targets = torch.nonzero(labels != -100).squeeze(1)
    return Batch({"text": Side(packed, torch.arange(len(some)), targets, labels[targets])}, len(some))


def our_seconds(condenser: bool, data: list[Row], folder: Path) -> float:
    """CPU seconds per step of our loop."""
    backbone, times = Backbone.create(LAYERS, WIDTH, HEADS, VOCAB), list[float]()
    objective = (
        Condenser(Condenser.Config(), backbone) if condenser else MaskedLM(MaskedLM.Config(), backbone)
    )

    def batch(step: int) -> Batch:
        times.append(time.process_time())
        return packed_batch(data, step)

    # without workers a batch is made when its step begins
    loop = LoopConfig(steps=STEPS, batch=BATCH, log_every=1, checkpoint_every=10_000, workers=0)
    train(objective, batch, folder, loop=loop)
    return fastest(times)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    torch.set_num_threads(1)
    data = rows(STEPS * BATCH)
    tokens = sum(len(row["input_ids"]) for row in data) / STEPS
    ratios = []
    for name, condenser in (("mlm", False), ("condenser", True)):
        make = Usual if condenser else BertForMaskedLM
        theirs, ours = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                theirs.append(trainer_seconds(make, data, Path(folder)))
                ours.append(our_seconds(condenser, data, Path(folder) / "ours"))
        slow, fast = min(theirs), min(ours)
        ratios.append(slow / fast)
        print(
            f"{name}: Trainer {slow:.2f} s a step ({tokens / slow:,.0f} tokens/s), "
            f"ours {fast:.2f} s ({tokens / fast:,.0f} tokens/s), {slow / fast:.1f} times"
        )
    print(f"ratio: {min(ratios):.2f}")


if __name__ == "__main__":
    main()
