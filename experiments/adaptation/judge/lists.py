"""A cross-encoder trained on titles and questions, and the bundled encoder taught by its lists, on one GPU.

    python experiments/adaptation/lists.py judge HOME --seconds 170   # all-mpnet-base-v2 finds the positive of eight
    python experiments/adaptation/lists.py teach HOME --seconds 240   # the bundled encoder learns the judge's lists
    python experiments/adaptation/lists.py score HOME                 # scores of the pairs in HOME/in/pairs.npz
    python experiments/adaptation/lists.py folder HOME OUT            # the judge as a folder of transformers

HOME/in has what `list_data.py` wrote, whole or in numbered parts, and the corpora in `data`; results go to HOME/out.
`teach` gives queries that are cut from a corpus to the hybrid, lets the judge score its first 30 passages, and the
encoder learns these lists by KL, with the distance to its own former vectors. It measures nDCG@10 on development
questions before, all the way and half way there. Needs torch, transformers, tokenizers, safetensors and numpy, and
nothing of Liebig but the bundled encoder's files.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[3]
ENCODER = ROOT / "src" / "liebig" / "encoders" / "mini-v3"
SETS = ("scifact", "cranfield", "squad", "medquad", "cosqa")
LENGTH = 256  # tokens of a pair, and of a passage that is learned from
WHOLE = 512  # of a passage that is searched
GROUP, GROUPS, AT_ONCE = 8, 64, 16  # passages of a group, groups of a step, and of a part of it
RATE, WARM = 4e-5, 0.06
FIRST = 30  # of the hybrid's passages
QUERIES, LISTED = 48, 16  # of a step of the encoder, and passages of each
LESSON_RATE, LESSON_STEPS = 3e-5, 150
SHARP = 0.05  # temperature of the encoder's cosines
ANCHOR = 1.0  # weight of the distance to its own former vectors
ARMS = ("judge", "both")  # what orders a list: the judge, or the judge and the hybrid half each
HELD = 10  # one of so many cut queries is not learned from
PART = 15 * 2**20
ROW = 131_072 if torch.cuda.is_available() else 4096  # tokens computed at once
TRIAL: dict[str, int] = {}
BEGAN = time.time()
Floats = NDArray[np.float32]


def say(*words: object) -> None:
    print(f"{time.time() - BEGAN:6.1f}", *words, flush=True)


def joined(home: Path, name: str) -> bytes:
    """A file that may lie there in numbered parts."""
    path = home / "in" / name
    if path.exists():
        return path.read_bytes()
    return b"".join(part.read_bytes() for part in sorted(path.parent.glob(f"{path.name}.[0-9][0-9][0-9]")))


def lines(home: Path, name: str) -> Any:
    return json.loads(lzma.decompress(joined(home, name)))


def arrays(home: Path, name: str) -> Any:
    return np.load(io.BytesIO(joined(home, name)))


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def half() -> torch.dtype:
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


# The cross-encoder: MPNet with the names of transformers, and one mask for all layers.


class Layer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.Module()
        self.attention.attn = nn.ModuleDict({name: nn.Linear(width, width) for name in "qkvo"})
        self.attention.LayerNorm = nn.LayerNorm(width, eps=1e-5)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = nn.ModuleDict(
            {"dense": nn.Linear(inner, width), "LayerNorm": nn.LayerNorm(width, eps=1e-5)}
        )

    def forward(self, x: Tensor, mask: Tensor, drop: float) -> Tensor:
        b, n, d = x.shape
        attn: Any = self.attention.attn
        q, k, v = (attn[name](x).view(b, n, self.heads, -1).transpose(1, 2) for name in "qkv")
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        y = attn["o"](y.transpose(1, 2).reshape(b, n, d))
        x = self.attention.LayerNorm(F.dropout(y, drop, self.training) + x)  # type: ignore[operator]
        y = self.output["dense"](F.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](F.dropout(y, drop, self.training) + x)  # type: ignore[no-any-return]


class Judge(nn.Module):
    """A pair's score from the first token's state."""

    def __init__(
        self, width: int = 768, inner: int = 3072, layers: int = 12, heads: int = 12, words: int = 30527
    ) -> None:
        super().__init__()
        self.mpnet = nn.Module()
        self.mpnet.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(words, width),
                "position_embeddings": nn.Embedding(514, width),
                "LayerNorm": nn.LayerNorm(width, eps=1e-5),
            }
        )
        self.mpnet.encoder = nn.ModuleDict(
            {
                "layer": nn.ModuleList(Layer(width, inner, heads) for _ in range(layers)),
                "relative_attention_bias": nn.Embedding(32, heads),
            }
        )
        self.classifier = nn.ModuleDict({"dense": nn.Linear(width, width), "out_proj": nn.Linear(width, 1)})
        for part in self.classifier.values():
            nn.init.normal_(part.weight, std=0.02)  # type: ignore[arg-type]
            nn.init.zeros_(part.bias)  # type: ignore[arg-type]

    def bias(self, length: int) -> Tensor:
        """MPNet's bias of attention by distance, 1 x heads x L x L; it is not learned on."""
        encoder: Any = self.mpnet.encoder
        table = encoder["relative_attention_bias"].weight.detach()
        places = torch.arange(length, device=table.device)
        n = places[:, None] - places[None, :]
        large = (8 + (n.abs().clamp(min=1).float() / 8).log() / math.log(16) * 8).long().clamp(max=15)
        bucket = torch.where(n.abs() < 8, n.abs(), large) + (n < 0).long() * 16
        return table[bucket].permute(2, 0, 1)[None]

    def forward(self, ids: Tensor, real: Tensor, drop: float = 0.1) -> Tensor:
        embed: Any = self.mpnet.embeddings
        encoder: Any = self.mpnet.encoder
        places = torch.arange(2, ids.shape[1] + 2, device=ids.device)
        x = embed["LayerNorm"](embed["word_embeddings"](ids) + embed["position_embeddings"](places))
        x = F.dropout(x, drop, self.training)
        mask = (self.bias(ids.shape[1]) + (~real)[:, None, None, :] * -1e4).to(half())
        for layer in encoder["layer"]:
            x = layer(x, mask, drop)
        with torch.autocast(
            x.device.type, enabled=False
        ):  # a score in half precision would tie with its neighbours
            x = F.dropout(x[:, 0].float(), drop, self.training)
            x = F.dropout(torch.tanh(self.classifier["dense"](x)), drop, self.training)
            return self.classifier["out_proj"](x)[:, 0]  # type: ignore[no-any-return]


def decoded(packed: bytes) -> dict[str, Tensor]:
    """Weights from int8 codes and the scales of their rows."""
    stored = np.load(io.BytesIO(zlib.decompress(packed)))
    found = {}
    for name in stored.files:
        if not name.endswith(".scale"):
            value = torch.from_numpy(stored[name]).float()
            scale = f"{name}.scale"
            found[name] = value * torch.from_numpy(stored[scale]).float() if scale in stored.files else value
    return found


def new_judge(home: Path) -> Judge:
    """The judge before it learned anything: all-mpnet-base-v2 with a fresh head, the same one each time."""
    torch.manual_seed(1)
    if TRIAL:
        return Judge(48, 96, 2, 4)
    model = Judge()
    found = {f"mpnet.{name}": value for name, value in decoded(joined(home, "judge.z")).items()}
    missing, left = model.load_state_dict(found, strict=False)
    assert all(name.startswith("classifier") for name in missing), missing
    assert all("pooler" in name or "position_ids" in name for name in left), left
    return model


class Words:
    """A tokenizer, without special tokens."""

    def __init__(self, text: bytes) -> None:
        self.one = Tokenizer.from_str(text.decode())
        self.one.no_padding()
        self.one.no_truncation()

    def __call__(self, texts: Sequence[str], most: int) -> list[list[int]]:
        out: list[list[int]] = []
        for start in range(0, len(texts), 20_000):
            many = self.one.encode_batch(list(texts[start : start + 20_000]), add_special_tokens=False)
            out += [one.ids[:most] for one in many]
        return out


def pair(query: list[int], passage: list[int]) -> list[int]:
    """<s> query </s></s> passage </s>, the longer one cut first."""
    room = LENGTH - 4
    if len(query) + len(passage) > room:
        short = min(len(query), len(passage), room // 2)
        query, passage = (
            (query[:short], passage[: room - short])
            if len(query) <= len(passage)
            else (query[: room - short], passage[:short])
        )
    return [0, *query, 2, 2, *passage, 2]


def padded(rows: Sequence[list[int]], pad: int, on: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids, and which are real."""
    longest = -(-max(map(len, rows)) // 16) * 16
    ids = np.full((len(rows), longest), pad, np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    given = torch.from_numpy(ids)
    given = given.pin_memory().to(on, non_blocking=True) if on.type == "cuda" else given
    return given, given != pad


@torch.no_grad()
def scored(
    model: Judge, queries: Sequence[list[int]], passages: Sequence[list[int]], pairs: NDArray[Any]
) -> Floats:
    """Scores of pairs of numbers."""
    on = next(model.parameters()).device
    lengths = np.minimum([len(queries[q]) + len(passages[p]) + 4 for q, p in pairs], LENGTH)
    order = np.argsort(lengths, kind="stable")
    out = torch.empty(len(pairs), device=on)
    start = 0
    while start < len(order):
        some = order[start : start + 8192]
        count = max(1, min(len(some), ROW // (-(-int(lengths[some[0]]) // 16) * 16)))
        count = max(1, min(count, ROW // (-(-int(lengths[some[count - 1]]) // 16) * 16)))
        some = some[:count]
        ids, real = padded([pair(queries[q], passages[p]) for q, p in pairs[some]], 1, on)
        out[torch.from_numpy(some).to(on)] = model(ids, real)
        start += count
    if not out.isfinite().all():
        say("scores that are no numbers:", int((~out.isfinite()).sum()), "of", len(out))
    return out.nan_to_num(0.0, 30.0, -30.0).cpu().numpy()


# Training the cross-encoder.


def neighbours(home: Path, rows: list[dict[str, Any]], texts: list[str]) -> list[list[int]]:
    """For each query passages of its kind that the bundled encoder finds and that are not known to answer it."""
    encoder = Student.load().to(device())
    words = Words((ENCODER / "tokenizer.json").read_bytes())
    vectors = encoder.encode(words(texts, LENGTH), half())
    asked = encoder.encode(words([row["q"] for row in rows], LENGTH), half())
    kinds = ["title" if row["k"] == "wiki" else row["k"] for row in rows]
    found: list[list[int]] = [[] for _ in rows]
    for kind in dict.fromkeys(kinds):
        here = [i for i, one in enumerate(kinds) if one == kind]
        if "own" in rows[here[0]]:
            continue
        members = sorted({n for i in here for n in (rows[i]["p"], *rows[i]["no"], *rows[i]["b"])})
        of_kind = vectors[members]
        for start in range(0, len(here), 2048):
            some = here[start : start + 2048]
            best = (asked[some] @ of_kind.T).topk(min(44, len(members))).indices
            near = (of_kind[best] * vectors[[rows[i]["p"] for i in some]][:, None]).sum(2) > 0.95
            for i, numbers, same in zip(some, best.tolist(), near.tolist()):
                no = {rows[i]["p"], *rows[i]["no"]}
                found[i] = [
                    members[n] for n, s in zip(numbers[2:], same[2:]) if members[n] not in no and not s
                ]
    return found


def train_judge(home: Path, seconds: float) -> None:
    began, on = time.time(), device()
    texts = lines(home, "pool.json.xz")
    rows = [
        json.loads(line) for line in lzma.decompress(joined(home, "groups.jsonl.xz")).decode().splitlines()
    ]
    rows += [row for row in rows if row["k"] == "nq"]  # there are few of these
    if TRIAL:
        rows = rows[:: max(1, len(rows) // TRIAL["groups"])]
        used = sorted({n for row in rows for n in (row["p"], *row["no"], *row["b"])})
        place = {n: i for i, n in enumerate(used)}
        texts = [texts[n] for n in used]
        for row in rows:
            row.update(p=place[row["p"]], no=[place[n] for n in row["no"]], b=[place[n] for n in row["b"]])
    say(len(rows), "groups,", len(texts), "texts")
    near = neighbours(home, rows, texts)
    say("neighbours found:", np.mean([len(one) for one in near]).round(1), "a query")
    words = Words(joined(home, "tokenizer.json"))
    passages, queries = words(texts, LENGTH), words([row["q"] for row in rows], LENGTH)
    model = new_judge(home).to(on).train()
    start = {name: value.detach().clone() for name, value in model.named_parameters()} if not TRIAL else {}
    fresh = [p for name, p in model.named_parameters() if name.startswith("classifier")]
    old = [
        p
        for name, p in model.named_parameters()
        if not name.startswith("classifier") and "relative" not in name
    ]
    optimiser = torch.optim.AdamW(
        [{"params": old, "lr": RATE, "factor": 1.0}, {"params": fresh, "lr": RATE, "factor": 2.0}],
        betas=(0.9, 0.98), weight_decay=0.01, fused=on.type == "cuda",
    )  # fmt: skip
    say("ready")
    rng = np.random.default_rng(3)
    groups, at_once = TRIAL.get("step", GROUPS), min(AT_ONCE, TRIAL.get("step", GROUPS))
    until, first = began + seconds, time.time()
    order: list[int] = []
    losses, right, steps, seen = [], [], 0, 0

    def members(i: int) -> list[int]:
        others = list(
            dict.fromkeys([*rng.permutation(near[i])[:4].tolist(), *rng.permutation(rows[i]["b"]).tolist()])
        )
        more = others + [int(n) for n in rng.permutation(near[i])[4:] if n not in others]
        while len(more) < GROUP - 1:
            more.append(int(rng.integers(len(passages))))
        return [rows[i]["p"], *more[: GROUP - 1]]

    while True:
        done = (time.time() - first) / max(1e-9, until - first)
        if (done >= 1 and not TRIAL) or (TRIAL and steps >= TRIAL["steps"]):
            break
        factor = min(1.0, (done + 0.002) / WARM) * max(0.01, 1 - done)
        for part in optimiser.param_groups:
            part["lr"] = RATE * factor * part["factor"]
        if len(order) < groups:
            order += rng.permutation(len(rows)).tolist()
        chosen, order = order[:groups], order[groups:]
        for begin in range(0, groups, at_once):
            some = chosen[begin : begin + at_once]
            pairs = [pair(queries[i], passages[n]) for i in some for n in members(i)]
            by_length = np.argsort([len(one) for one in pairs], kind="stable")
            table = torch.zeros(len(pairs), device=on)
            with torch.autocast(on.type, torch.bfloat16):
                for part in np.array_split(by_length, 2):
                    ids, real = padded([pairs[n] for n in part], 1, on)
                    table = table.index_put((torch.from_numpy(part).to(on),), model(ids, real))
            scores = table.view(len(some), GROUP)
            loss = F.cross_entropy(scores, torch.zeros(len(some), dtype=torch.long, device=on))
            (loss * len(some) / groups).backward()
            losses.append(loss.detach())
            right.append((scores.detach().argmax(1) == 0).float().mean())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=False)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        seen += groups
        if steps % 25 == 0 or steps == 3:
            many = 25 * groups // at_once
            said = torch.stack(losses[-many:]).mean(), torch.stack(right[-many:]).mean()
            say(f"step {steps}, {seen} groups, {done:.0%}: loss {said[0]:.3f}, right {said[1]:.3f}")
    said = {
        "steps": steps,
        "groups": seen,
        "seconds": time.time() - first,
        "loss": float(torch.stack(losses[-100:]).mean()) if losses else 0.0,
    }
    (home / "out").mkdir(exist_ok=True)
    (home / "out" / "judge.json").write_text(json.dumps(said))
    say("learned", said)
    torch.save({name: value.detach().cpu() for name, value in model.state_dict().items()}, home / "judge.tmp")
    (home / "judge.tmp").rename(home / "judge.pt")
    if start:
        write_changes(home, model, start)


def write_changes(home: Path, model: Judge, start: dict[str, Tensor]) -> None:
    """What training changed, in a few bits a number."""
    for fineness in (1.3, 0.9, 0.6):
        stored: dict[str, NDArray[Any]] = {}
        for name, value in model.named_parameters():
            change = (value.detach() - start[name]).float()
            if change.ndim == 2 and change.numel() > 10_000 and not name.startswith("classifier"):
                scale = (change.square().mean(1, keepdim=True).sqrt() / fineness).clamp(min=1e-12)
                stored[name] = (change / scale).round().clamp(-127, 127).to(torch.int8).cpu().numpy()
                stored[name + ".scale"] = scale.cpu().numpy()
            else:
                stored[name] = change.half().cpu().numpy() if change.ndim == 1 else change.cpu().numpy()
        buffer = io.BytesIO()
        np.savez(buffer, **stored)
        coder = zlib.compressobj(6, strategy=zlib.Z_HUFFMAN_ONLY)
        packed = coder.compress(buffer.getvalue()) + coder.flush()
        if len(packed) <= 3 * PART:
            break
    for number, begin in enumerate(range(0, len(packed), PART)):
        (home / "out" / f"judge.changes.{number:03d}").write_bytes(packed[begin : begin + PART])
    say(f"changes written, {len(packed) / 2**20:.1f} MiB")


def load_judge(home: Path) -> Judge:
    model = Judge(48, 96, 2, 4) if TRIAL else Judge()
    model.load_state_dict(torch.load(home / "judge.pt"))
    model = model.to(device(), torch.float16 if torch.cuda.is_available() else torch.float32).eval()
    model.classifier.float()
    return model


def folder(home: Path, out: Path) -> None:
    """The judge for transformers and Liebig."""
    from transformers import MPNetConfig, MPNetForSequenceClassification

    if (home / "judge.pt").exists():
        state = torch.load(home / "judge.pt")
    else:
        packed = b"".join(part.read_bytes() for part in sorted((home / "out").glob("judge.changes.[0-9]*")))
        changes = decoded(packed)
        state = {name: value + changes[name] for name, value in new_judge(home).named_parameters()}
    tiny = (
        {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
        if TRIAL
        else {}
    )
    shape = {"vocab_size": 30527, "num_labels": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 514}
    config = MPNetConfig(**shape, **tiny)
    config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    made = MPNetForSequenceClassification(config)
    left = made.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    assert all("position_ids" in name for name in left.missing_keys), left
    made.save_pretrained(out)
    given = json.loads(joined(home, "tokenizer.json"))
    given["truncation"] = given["padding"] = None
    (out / "tokenizer.json").write_text(json.dumps(given))
    marks = {
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "unk_token": "[UNK]",
    }
    marks |= {"pad_token": "<pad>", "mask_token": "<mask>"}
    about = {**marks, "model_max_length": LENGTH, "tokenizer_class": "MPNetTokenizer", "do_lower_case": True}
    (out / "tokenizer_config.json").write_text(json.dumps(about))
    (out / "special_tokens_map.json").write_text(json.dumps(marks))


# The bundled encoder.


class Student(nn.Module):
    """mini-v3 as torch sees it."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(**json.loads((ENCODER / "config.json").read_text()))
        self.body = BertModel(config, add_pooling_layer=False)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        words = Tokenizer.from_file(str(ENCODER / "tokenizer.json"))
        self.marks = words.token_to_id("[CLS]"), words.token_to_id("[SEP]")
        assert words.token_to_id("[PAD]") == 0

    @classmethod
    def load(cls) -> Student:
        model = cls()
        stored = load_file(ENCODER / "model.int8.safetensors")
        state = {}
        for name, value in stored.items():
            if name.startswith("bert.") and not name.endswith(".scale"):
                full = torch.from_numpy(value.astype(np.float32))
                scale = stored.get(f"{name}.scale")
                state[name.removeprefix("bert.")] = (
                    full if scale is None else full * torch.from_numpy(scale.astype(np.float32))
                )
        left = model.body.load_state_dict(state, strict=False)
        assert all("position_ids" in name for name in left.missing_keys), left
        dense = load_file(next((ENCODER / "2_Dense").glob("*.safetensors")))
        model.dense.load_state_dict(
            {n.split(".")[-1]: torch.from_numpy(v.astype(np.float32)) for n, v in dense.items()}
        )
        return model.eval()

    def forward(self, ids: Tensor, real: Tensor) -> Tensor:
        states = self.body(input_ids=ids, attention_mask=real.long()).last_hidden_state
        mean = (states * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
        with torch.autocast(ids.device.type, enabled=False):
            return F.normalize(
                F.linear(mean.float(), self.dense.weight.float(), self.dense.bias.float()), dim=1
            )

    def rows(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        whole = [[self.marks[0], *row[: WHOLE - 2], self.marks[1]] for row in rows]
        return padded(whole, 0, self.dense.weight.device)

    @torch.no_grad()
    def encode(self, rows: Sequence[list[int]], dtype: torch.dtype = torch.float32) -> Tensor:
        """Vectors of texts as tokens."""
        on = self.dense.weight.device
        order = np.argsort([len(row) for row in rows], kind="stable")
        out = torch.empty(len(rows), self.dense.out_features, device=on)
        start = 0
        with torch.autocast(on.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            while start < len(order):
                some = order[start : start + 4096]
                count = max(1, min(len(some), 2 * ROW // (len(rows[some[0]]) + 18)))
                count = max(1, min(count, 2 * ROW // (len(rows[some[count - 1]]) + 18)))
                some = some[:count]
                out[torch.from_numpy(some).to(on)] = self(*self.rows([rows[n] for n in some]))
                start += count
        return out.clone()


# Lists and what they are worth.


def minmax(scores: NDArray[Any]) -> NDArray[Any]:
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.ones(len(scores))


def fused(lists: Sequence[tuple[Sequence[int], NDArray[Any]]]) -> tuple[list[int], NDArray[Any]]:
    """Numbers, best first, and the mean of their scores, each list brought to [0, 1]; what a list has not gets 0."""
    total: dict[int, float] = {}
    for numbers, scores in lists:
        for number, score in zip(numbers, minmax(np.asarray(scores, np.float64)) if len(numbers) else ()):
            total[int(number)] = total.get(int(number), 0.0) + float(score) / len(lists)
    ordered = sorted(total, key=lambda number: -total[number])
    return ordered, np.array([total[number] for number in ordered])


def ndcg(ranked: Sequence[int], relevant: Sequence[int]) -> float:
    right = set(relevant)
    gain = sum(1 / math.log2(rank + 2) for rank, number in enumerate(ranked[:10]) if number in right)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(10, len(right))))


class Corpus:
    """A set: its passages, what is asked, and queries that are cut from it."""

    def __init__(self, home: Path, name: str) -> None:
        told, found = lines(home, f"sets/{name}.json.xz"), arrays(home, f"sets/{name}.npz")
        few = TRIAL.get("queries", 0)
        self.name = name
        corpus = lzma.decompress(joined(home, f"data/{name}/corpus.jsonl.xz")).decode().splitlines()
        self.titled = [(row.get("title") or "", row["text"]) for row in map(json.loads, corpus)]
        self.texts = [f"{title} {text}".strip() for title, text in self.titled]
        self.asked, self.relevant = told["asked"][: few or None], told["relevant"][: few or None]
        self.made = told["made"][:: max(1, len(told["made"]) // (3 * few))] if few else told["made"]
        pick = slice(None, None, max(1, len(told["made"]) // (3 * few))) if few else slice(None)
        self.bm25 = list(zip(found["asked"].astype(int), found["asked_scores"].astype(np.float64)))
        self.made_bm25 = list(
            zip(found["made"].astype(int)[pick], found["made_scores"].astype(np.float64)[pick])
        )
        if few:  # what no question of the trial needs is left out, for a machine without a GPU
            kept = {n for row, _ in (*self.bm25[:few], *self.made_bm25) for n in row[:12].tolist() if n >= 0}
            kept |= {n for row in self.relevant for n in row} | {row[2] for row in self.made}
            self.texts = [text if n in kept else "nothing" for n, text in enumerate(self.texts)]

    def bare(self, number: int, cut: str) -> str:
        """A passage without its title and what was cut from it."""
        text = self.titled[number][1]
        return (text.replace(cut, " ") if cut else text).strip() or text

    @staticmethod
    def hybrids(
        words: Sequence[Any], queries: Tensor, passages: Tensor, depth: int
    ) -> list[tuple[list[int], NDArray[Any]]]:
        """BM25 and the cosine, each brought to [0, 1], half each."""
        out = []
        scores, numbers = (queries @ passages.T).topk(min(depth, len(passages)))
        for (hits, values), row, of_row in zip(words, numbers.tolist(), scores.cpu().numpy()):
            there = hits >= 0
            out.append(fused([(hits[there].tolist(), values[there]), (row, of_row)]))
        return out

    def measured(
        self, vectors: Callable[[Sequence[str]], Tensor]
    ) -> tuple[dict[str, list[float]], list[Any]]:
        """nDCG@10 of the development questions, by the vectors alone and in the plain hybrid."""
        passages, queries = vectors(self.texts), vectors(self.asked)
        order = (queries @ passages.T).topk(10).indices.tolist()
        hybrid = self.hybrids(self.bm25, queries, passages, 100)
        values = {
            "alone": [ndcg(row, right) for row, right in zip(order, self.relevant)],
            "hybrid": [ndcg(row, right) for (row, _), right in zip(hybrid, self.relevant)],
        }
        return values, hybrid


class Lesson:
    """The cut queries of a set with the hybrid's first passages and the judge's scores of them."""

    def __init__(self, one: Corpus, judge: Judge, start: Student, words: Words, own: Words) -> None:
        on = device()
        texts = list(one.texts)
        cache: dict[str, int] = {}
        tokens = own(texts, WHOLE)
        passages = start.encode(tokens)
        queries = start.encode(own([row[1] for row in one.made], LENGTH))
        lists, hybrid_scores = [], []
        for (kind, _, source, cut), (numbers, scores) in zip(
            one.made, one.hybrids(one.made_bm25, queries, passages, 50)
        ):
            row = numbers[:FIRST]
            score = scores[:FIRST]
            if source not in row:
                row, score = [*row[:-1], source], score
            if kind in ("sentence", "claim", "title"):
                bare = one.bare(source, cut if kind != "title" else "")
                place = cache.setdefault(bare, len(texts) + len(cache))
                row = [place if n == source else n for n in row]
            lists.append(row)
            hybrid_scores.append(score)
        self.texts = texts + list(cache)
        width = min(map(len, lists))
        self.lists = np.array([row[:width] for row in lists])
        self.hybrid = np.array([score[:width] for score in hybrid_scores])
        self.queries, self.tokens = (
            own([row[1] for row in one.made], LENGTH),
            [t[:LENGTH] for t in own(self.texts, LENGTH)],
        )
        used = np.unique(self.lists)
        place = {int(n): i for i, n in enumerate(used)}
        asked, answers = (
            words([row[1] for row in one.made], LENGTH),
            words([self.texts[n] for n in used], LENGTH),
        )
        pairs = np.array([(q, place[int(n)]) for q, row in enumerate(self.lists) for n in row])
        self.judged = scored(judge, asked, answers, pairs).reshape(self.lists.shape)
        self.before = torch.zeros(len(self.texts), passages.shape[1], device=on)
        self.before[torch.from_numpy(used).to(on)] = start.encode([self.tokens[n] for n in used])
        self.asked_before = queries

    def target(self, arm: str) -> Tensor:
        if arm == "judge":
            return torch.from_numpy(self.judged / 2).float()
        both = [minmax(a) / 2 + minmax(b) / 2 for a, b in zip(self.judged, self.hybrid)]
        return torch.from_numpy(6 * np.array(both)).float()

    def batches(self, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
        learned = np.array([n for n in range(len(self.lists)) if n % HELD])
        size = TRIAL.get("batch", QUERIES)
        while True:
            order = rng.permutation(learned)
            for start in range(0, len(order) - size + 1, size):
                yield order[start : start + size]

    def loss(
        self, model: Student, target: Tensor, some: NDArray[Any], columns: NDArray[Any]
    ) -> tuple[Tensor, Tensor]:
        """KL of the lists, and the distance to the former vectors."""
        on = device()
        numbers = np.take_along_axis(self.lists[some], columns, 1)
        used, inverse = np.unique(numbers, return_inverse=True)
        by_length = np.argsort([len(self.tokens[n]) for n in used], kind="stable")
        vectors = torch.zeros(len(used), model.dense.out_features, device=on)
        for part in np.array_split(by_length, 2):
            if len(part):
                new = model(*model.rows([self.tokens[used[n]] for n in part]))
                vectors = vectors.index_put((torch.from_numpy(part).to(on),), new)
        queries = model(*model.rows([self.queries[n] for n in some]))
        places = torch.from_numpy(inverse.reshape(numbers.shape)).to(on)
        scores = (queries[:, None] * vectors[places]).sum(2) / SHARP
        wanted = target[torch.from_numpy(some)].gather(1, torch.from_numpy(columns)).to(on).softmax(1)
        kl = F.kl_div(scores.log_softmax(1), wanted, reduction="batchmean")
        former = self.before[torch.from_numpy(used).to(on)], self.asked_before[torch.from_numpy(some).to(on)]
        distance = torch.cat(
            [2 - 2 * (vectors * former[0]).sum(1), 2 - 2 * (queries * former[1]).sum(1)]
        ).mean()
        return kl, distance

    @torch.no_grad()
    def held(self, model: Student, target: Tensor) -> float:
        """KL of the lists of queries that are not learned from."""
        rest = np.array([n for n in range(len(self.lists)) if n % HELD == 0])
        every = np.arange(self.lists.shape[1])
        values = [
            self.loss(model, target, some, np.repeat(every[None], len(some), 0))[0].item() * len(some)
            for some in np.array_split(rest, max(1, len(rest) // 32))
        ]
        return float(sum(values) / len(rest))


def taught(lesson: Lesson, arm: str, seconds: float) -> tuple[Student, dict[str, Any]]:
    """The bundled encoder after the lesson."""
    on, model = device(), Student.load().to(device())
    target = lesson.target(arm)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=LESSON_RATE, weight_decay=0.01, fused=on.type == "cuda"
    )
    rng = np.random.default_rng(1)
    stream = lesson.batches(rng)
    before = lesson.held(model, target)
    steps, began = TRIAL.get("steps", LESSON_STEPS), time.time()
    said: list[tuple[Tensor, Tensor]] = []
    step = 0
    width = lesson.lists.shape[1]
    while step < steps:
        done = max(step / steps, (time.time() - began) / seconds)
        if done >= 1 and step:
            break
        optimiser.param_groups[0]["lr"] = LESSON_RATE * min(1.0, (done + 0.01) / 0.1) * max(0.01, 1 - done)
        some = next(stream)
        listed = min(LISTED, width)
        columns = np.argsort(rng.random((len(some), width)), axis=1)[:, :listed]
        best = target[torch.from_numpy(some)].topk(min(3, listed), 1).indices.numpy()
        columns[:, : best.shape[1]] = np.where(
            (columns == best[:, :1]).any(1)[:, None], columns[:, : best.shape[1]], best
        )
        with torch.autocast(on.type, torch.bfloat16):
            kl, distance = lesson.loss(model, target, some, columns)
        (kl + ANCHOR * distance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        said.append((kl.detach(), distance.detach()))
        step += 1
    after = lesson.held(model, target)
    ends = [
        round(float(torch.stack([pair[i] for pair in some]).mean()), 4)
        for some in (said[:10], said[-10:])
        for i in (0, 1)
    ]
    facts = {
        "steps": step,
        "seconds": round(time.time() - began, 1),
        "held_before": before,
        "held_after": after,
    }
    return model, {**facts, "kl": [ends[0], ends[2]], "distance": [ends[1], ends[3]]}


def between(model: Student, share: float) -> Student:
    """Weights between the start and what was taught."""
    made = Student.load().to(device())
    with torch.no_grad():
        for mine, theirs in zip(made.parameters(), model.parameters()):
            mine.lerp_(theirs, share)
    return made


def teach(home: Path, seconds: float) -> None:
    began = time.time()
    judge, start = load_judge(home), Student.load().to(device())
    words, own = Words(joined(home, "tokenizer.json")), Words((ENCODER / "tokenizer.json").read_bytes())
    out = home / "out"
    out.mkdir(exist_ok=True)
    results: dict[str, Any] = {}
    values: dict[str, Any] = {}

    def note(name: str, arm: str, found: dict[str, list[float]], **facts: Any) -> None:
        values.update({f"{name}: {arm}: {system}": np.array(row) for system, row in found.items()})
        means = {system: round(float(np.mean(row)), 4) for system, row in found.items()}
        results.setdefault(name, {})[arm] = {**means, **facts}
        say(name, arm, means, facts or "")
        (out / "teach.json").write_text(json.dumps(results, indent=1))
        np.savez_compressed(out / "teach.npz", **values)

    def vectors(model: Student) -> Callable[[Sequence[str]], Tensor]:
        return lambda texts: model.encode(own(texts, WHOLE - 2))

    corpora: list[tuple[Corpus, Any]] = []
    for name in SETS if not TRIAL else SETS[1::3]:
        one = Corpus(home, name)
        found, hybrid = one.measured(vectors(start))
        pairs = np.array([(q, n) for q, (row, _) in enumerate(hybrid) for n in row[:FIRST]])
        used, numbers = np.unique(pairs[:, 1], return_inverse=True)
        pairs[:, 1] = numbers
        scores = scored(judge, words(one.asked, LENGTH), words([one.texts[n] for n in used], LENGTH), pairs)
        at = 0
        found |= {"judge": [], "judge and hybrid": []}
        for (row, own_scores), right in zip(hybrid, one.relevant):
            first = row[:FIRST]
            mine, at = scores[at : at + len(first)], at + len(first)
            found["judge"].append(ndcg([first[n] for n in np.argsort(-mine, kind="stable")], right))
            found["judge and hybrid"].append(
                ndcg(fused([(first, own_scores[:FIRST]), (first, mine)])[0], right)
            )
        note(name, "start", found, questions=len(one.asked), passages=len(one.texts))
        corpora.append((one, None))
    show(results, out)
    left = len(corpora) * len(ARMS)
    for one, _ in corpora:
        try:
            lesson = Lesson(one, judge, start, words, own)
            say(one.name, lesson.lists.shape, "lists are judged")
            for arm in ARMS:
                until = max(5.0, (seconds - (time.time() - began)) / left)
                left -= 1
                model, facts = taught(lesson, arm, 0.7 * until)
                for share, label in ((1.0, "whole"), (0.5, "half")):
                    found, _ = one.measured(vectors(between(model, share)))
                    note(one.name, f"{arm}, {label}", found, **(facts if share == 1 else {}))
        except Exception as error:
            say(one.name, "failed:", repr(error)[:400])
        torch.cuda.empty_cache()
    show(results, out)


def show(results: dict[str, Any], out: Path) -> None:
    """Points over the encoder before, alone and in the plain hybrid."""
    sets = [name for name in SETS if name in results]
    arms = ["start", *(f"{arm}, {label}" for arm in ARMS for label in ("whole", "half"))]
    table = [
        "| nDCG@10, development | " + " | ".join(sets) + " | mean |",
        "| --- |" + " ---: |" * (len(sets) + 1),
    ]
    for system in ("alone", "hybrid", "judge", "judge and hybrid"):
        for arm in arms:
            here = [name for name in sets if system in results[name].get(arm, {})]
            if not here:
                continue
            first = arm == "start" and "judge" not in system
            beside = "hybrid" if "judge" in system else system
            cells = []
            for name in (*sets, None):
                if name is not None and name not in here:
                    cells.append("")
                    continue
                some = here if name is None else [name]
                value = float(np.mean([results[one][arm][system] for one in some]))
                base = float(np.mean([results[one]["start"][beside] for one in some]))
                cells.append(f"{value:.4f}" if first else f"{100 * (value - base):+.1f}")
            table.append(f"| {system}, {arm} | " + " | ".join(cells) + " |")
    (out / "teach.md").write_text("\n".join(table) + "\n")
    print("\n".join(table), flush=True)


def score(home: Path) -> None:
    """Scores of pairs that builds ask for, in files that can be read while the rest is computed."""
    judge, words = load_judge(home), Words(joined(home, "tokenizer.json"))
    texts, pairs = lines(home, "pair_texts.json.xz"), arrays(home, "pairs.npz")
    done: dict[str, Floats] = {}
    tokens = {}
    for name in pairs.files:
        rows = pairs[name].astype(np.int64)
        rows = rows[: TRIAL.get("pairs")]
        used, inverse = np.unique(rows, return_inverse=True)
        more = [n for n in used.tolist() if n not in tokens]
        tokens |= dict(zip(more, words([texts[n] for n in more], LENGTH)))
        of_used = [tokens[n] for n in used.tolist()]
        done[name] = scored(judge, of_used, of_used, inverse.reshape(rows.shape))
        np.savez_compressed(home / "out" / "scores.tmp.npz", **done)
        (home / "out" / "scores.tmp.npz").rename(home / "out" / "scores.npz")
        say(name, len(rows), "pairs", f"mean {done[name].mean():.2f}, spread {done[name].std():.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("judge", "teach", "score", "folder"))
    parser.add_argument("home", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--trial", action="store_true", help="a tiny model and a few steps")
    given = parser.parse_args()
    if given.trial:
        TRIAL.update(groups=16, step=8, steps=3, queries=2, batch=2, pairs=50)
    torch.set_float32_matmul_precision("high")
    if given.part == "folder":
        folder(given.home, given.out)
    elif given.part == "score":
        score(given.home)
    else:
        {"judge": train_judge, "teach": teach}[given.part](given.home, given.seconds)


if __name__ == "__main__":
    main()
