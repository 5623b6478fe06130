"""The student's start: some layers of a teacher, the more active of their inner units, and a vocabulary of our own.

    python experiments/encoders/v2/start.py MINILM TOKENIZER TEXTS OUT --layers 0 2 4 5 --inner 576

A token that the teacher's vocabulary has keeps its embedding; another one starts as the mean of the teacher's pieces
of it. The inner units of a layer are ranked by what they add to its output on some of TEXTS (JSON lines with `text`):
mean square activation times the squared norm of the unit's column. What the others add on average goes into the
bias. `--compare` prints how near each choice of layers comes to the whole teacher instead of writing one.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, BertForMaskedLM, BertModel

from liebig.text.tokenizer import Tokenizer

TEXTS, BATCH, LENGTH = 2048, 64, 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MORE = "##"


def batches(folder: Path, texts: Path, count: int) -> Iterator[dict[str, Tensor]]:
    """The first texts as the teacher's batches."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with texts.open(encoding="utf-8") as file:
        rows = [json.loads(line)["text"] for line in islice(file, count)]
    for begin in range(0, len(rows), BATCH):
        yield tokenizer(
            rows[begin : begin + BATCH], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )


@dataclass
class Activity:
    """Sums over the tokens of a layer's inner activations, and of their squares."""

    sums: Tensor
    squares: Tensor
    tokens: int = 0

    def add(self, states_BTF: Tensor, mask_BT: Tensor) -> None:
        states = states_BTF[mask_BT.bool()].float()
        self.sums += states.sum(dim=0)
        self.squares += states.square().sum(dim=0)
        self.tokens += len(states)


def activity(model: BertModel, given: Sequence[dict[str, Tensor]]) -> list[Activity]:
    """What the inner units of every layer do on these batches."""
    inner = model.config.intermediate_size
    found = [Activity(torch.zeros(inner), torch.zeros(inner)) for _ in model.encoder.layer]
    mask = torch.zeros(0)

    def watch(one: Activity) -> Callable[..., None]:
        return lambda module, inputs, states: one.add(states, mask)

    hooks = [
        layer.intermediate.register_forward_hook(watch(one)) for layer, one in zip(model.encoder.layer, found)
    ]
    with torch.inference_mode():
        for batch in given:
            mask = batch["attention_mask"]
            model(**batch)
    for hook in hooks:
        hook.remove()
    return found


def prune(layer: torch.nn.Module, done: Activity, inner: int) -> dict[str, Tensor]:
    """The weights of a layer's feed-forward part with so many inner units."""
    up, down = layer.intermediate.dense, layer.output.dense
    worth = done.squares / done.tokens * down.weight.square().sum(dim=0)
    kept = worth.topk(inner).indices.sort().values
    lost = torch.ones(len(worth), dtype=torch.bool)
    lost[kept] = False
    average = down.weight[:, lost] @ (done.sums / done.tokens)[lost]
    return {
        "intermediate.dense.weight": up.weight[kept], "intermediate.dense.bias": up.bias[kept],
        "output.dense.weight": down.weight[:, kept], "output.dense.bias": down.bias + average,
    }  # fmt: skip


def pieces(token: str, known: dict[str, int]) -> list[int]:
    """The teacher's pieces of a token: the longest that fits, again and again (WordPiece)."""
    rest, prefix, found = token.removeprefix(MORE), MORE if token.startswith(MORE) else "", []
    while rest:
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in known), 0)
        if size == 0:
            return []
        found.append(known[prefix + rest[:size]])
        rest, prefix = rest[size:], MORE
    return found


def embeddings(teacher: BertModel, known: dict[str, int], own: Sequence[str]) -> Tensor:
    """An embedding of every token of our vocabulary."""
    given = teacher.embeddings.word_embeddings.weight
    unknown = known["[UNK]"]
    rows = [given[[known[token]] if token in known else pieces(token, known) or [unknown]] for token in own]
    return torch.stack([row.mean(dim=0) for row in rows])


def student(
    teacher: BertModel, words: Tensor, done: Sequence[Activity], layers: Sequence[int], inner: int
) -> BertForMaskedLM:
    """The start."""
    config = type(teacher.config)(**teacher.config.to_dict())
    config.update({
        "num_hidden_layers": len(layers), "intermediate_size": inner, "vocab_size": len(words), "pad_token_id": 0,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "tie_word_embeddings": True,
    })  # fmt: skip
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    state = model.bert.state_dict()
    state.update(
        {n: v for n, v in teacher.state_dict().items() if n.startswith("embeddings.") and n in state}
    )
    state["embeddings.word_embeddings.weight"] = words
    for place, number in enumerate(layers):
        layer = teacher.encoder.layer[number]
        weights = {**layer.state_dict(), **prune(layer, done[number], inner)}
        state.update({f"encoder.layer.{place}.{name}": value for name, value in weights.items()})
    model.bert.load_state_dict(state)
    model.tie_weights()
    return model


def pooled(model: BertModel, given: Sequence[dict[str, Tensor]]) -> Tensor:
    """The mean of the states of each text, of length 1."""
    found = []
    for batch in given:
        with torch.inference_mode():
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
        found.append((states * mask).sum(dim=1) / mask.sum(dim=1))
    return torch.nn.functional.normalize(torch.cat(found), dim=1)


def compare(teacher: BertModel, given: Sequence[dict[str, Tensor]], count: int) -> None:
    """Mean cosine of a text's vector with that of the whole teacher, for every choice of layers."""
    whole, every = pooled(teacher, given), teacher.encoder.layer
    rows = []
    for chosen in combinations(range(len(every)), count):
        teacher.encoder.layer = torch.nn.ModuleList(every[n] for n in chosen)
        rows.append(((pooled(teacher, given) * whole).sum(dim=1).mean().item(), chosen))
    for cosine, chosen in sorted(rows, reverse=True):
        print(f"{' '.join(map(str, chosen))}: {cosine:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 2, 4, 5])
    parser.add_argument("--inner", type=int, default=576)
    parser.add_argument("--count", type=int, default=TEXTS, help="texts the inner units are ranked on")
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    teacher = BertModel.from_pretrained(args.teacher, add_pooling_layer=False, dtype=torch.float32).eval()
    given = list(batches(args.teacher, args.texts, args.count))
    if args.compare:
        compare(teacher, given, len(args.layers))
        return
    known = AutoTokenizer.from_pretrained(args.teacher).get_vocab()
    own = Tokenizer.from_folder(args.tokenizer)
    tokens = own.tokens(range(own.vocab_size))
    with torch.inference_mode():
        words = embeddings(teacher, known, tokens)
        model = student(teacher, words, activity(teacher, given), args.layers, args.inner)
    model.save_pretrained(args.out)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (args.tokenizer / name).is_file():
            shutil.copyfile(args.tokenizer / name, args.out / name)
    parameters = sum(value.numel() for value in model.bert.parameters())
    shared = sum(token in known for token in tokens)
    print(
        f"{args.out}: {parameters / 1e6:.2f} M parameters, {shared:,} of {len(tokens):,} tokens known to the teacher"
    )


if __name__ == "__main__":
    main()
