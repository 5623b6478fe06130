"""mini-v3 on one GPU, in plain PyTorch: texts, the teachers' vectors of them, the student, and what it is worth.

    python train.py smoke --home HOME                    # whether and how fast the device computes
    python train.py assemble --home HOME                 # texts and tokens, all processors
    python train.py teach --home HOME                    # every teacher's vectors of every text
    python train.py weigh --home HOME                    # mixtures of the teachers on the dev splits
    python train.py train --home HOME --seconds 840      # the student; --resume goes on where it stopped
    python train.py finish --home HOME --seconds 60      # a short contrastive finish, beside the student
    python train.py evaluate --home HOME --split dev     # or test, once

HOME/in has what `prepare.py chunks` wrote (parts of files, joined here; a part that is not there yet is waited for),
HOME/start the package's encoder, which the student starts from, HOME/out what is worth keeping. Needs torch,
tokenizers, safetensors and numpy.

The student reads the same texts as its teachers and learns their vectors side by side, each centred by role (question
or passage) and weighted, turned to their first WIDTH principal directions. Its loss is the squared distance of the unit
vectors plus the KL divergence of the softmax over a batch's cosines; a batch has texts with some of their nearest
neighbours. Matrices are rounded to int8 rows in the forward pass, and gradients go straight through.

N texts, T tokens of a batch, B its texts, D width of targets, H width of the student.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import lzma
import os
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CLS, SEP = 101, 102  # of bert-base-uncased
OWN_CLS, OWN_SEP = 2, 3  # of the student
LONGEST = 512
QUERY, PASSAGE = 1, 0
WIDTH = 768  # of the targets
TEACHERS: dict[str, dict[str, Any]] = {
    "minilm": {"heads": 12, "eps": 1e-12, "limit": 256, "pool": "mean", "prompts": ("", "")},
    "bge": {
        "heads": 12, "eps": 1e-12, "limit": 512, "pool": "cls",
        "prompts": ("", "Represent this sentence for searching relevant passages: "),
    },
    "e5": {"heads": 12, "eps": 1e-12, "limit": 512, "pool": "mean", "prompts": ("passage: ", "query: ")},
    "mpnet": {"heads": 12, "eps": 1e-5, "limit": 384, "pool": "mean", "prompts": ("", "")},
}  # fmt: skip
GRID = (  # mpnet, minilm, bge, e5
    (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (5, 2, 2, 1), (4, 2, 3, 1), (3, 2, 3, 2), (4, 2, 4, 0),
    (3, 2, 5, 0), (5, 0, 5, 0), (2, 4, 4, 0), (6, 2, 2, 0),
)  # fmt: skip
ORDER = ("mpnet", "minilm", "bge", "e5")
DEFAULT = (4, 2, 3, 1)
DEV = ("medquad", "scifact", "cranfield", "squad", "cosqa")
TEST = (*DEV, "vaswani", "trec-dl21", "semeval-cqa")
PAIRLESS = ("medquad", "scifact", "cranfield", "squad")  # the contrastive finish has no pairs of their kind
KINDS = ("passage", "cut", "sentence", "phrase", "keywords", "title", "question", "code", "bare code")
BEGAN = time.time()


def say(*words: Any) -> None:
    print(f"[{time.strftime('%H:%M:%S')} +{time.time() - BEGAN:.0f}]", *words, flush=True)


# Files: HOME/in has parts NAME.000, NAME.001 and so on, which may still be coming.


def expected(home: Path) -> dict[str, int]:
    """The size of every file, by name."""
    return dict(json.loads((home / "in" / "files.json").read_text())["files"])


def joined(home: Path, name: str, patience: float = 900) -> bytes:
    """A file's bytes, once all parts are there."""
    size, until = expected(home)[name], time.time() + patience
    while True:
        parts = sorted((home / "in").glob(f"{name}.[0-9][0-9][0-9]"))
        if sum(part.stat().st_size for part in parts) == size:
            return b"".join(part.read_bytes() for part in parts)
        if time.time() > until:
            raise SystemExit(
                f"{name} is not whole: {sum(p.stat().st_size for p in parts):,} of {size:,} bytes"
            )
        time.sleep(0.5)


def student_folder(home: Path) -> Path:
    """The start's folder, made of its parts."""
    target = home / "student"
    for name in expected(home):
        if name.startswith("student/"):
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = joined(home, name)
            if not path.exists() or path.stat().st_size != len(data):
                temporary = path.with_name(
                    f"{path.name}.{os.getpid()}"
                )  # several commands may do this at once
                temporary.write_bytes(data)
                temporary.rename(path)
    return target


# Texts.

SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
STRING = re.compile(r'("""|\'\'\')(?:.|\n)*?\1')
COMMENT = re.compile(r"(?m)^\s*(?:#|//|/\*|\*).*\n?")
PUNCTUATION = re.compile(r"[^\w\s]+")
STOP = frozenset(
    "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may more "  # noqa: SIM905
    "of on or our should so some such than that the their them then there these they this those to was we were what "
    "when where which who why will with would you your".split()
)


def cut_words(text: str, count: int) -> str:
    """The first words of a text, with what is between them."""
    place = 0
    for number, match in enumerate(re.finditer(r"\S+", text), 1):
        place = match.end()
        if number == count:
            break
    return text[:place]


def plain(text: str) -> str:
    return " ".join(PUNCTUATION.sub(" ", text).split())


class Views:
    """The texts that are made of rows, with kinds, roles, and pairs of what belongs together."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.texts: list[str] = []
        self.kinds: list[int] = []
        self.roles: list[int] = []
        self.pairs: list[tuple[int, int]] = []

    def add(self, text: str, kind: str, query: float = 0.0, bare: float = 0.0) -> int:
        """A text; `query` is the chance that it plays a question, `bare` that it loses its punctuation."""
        if bare and self.rng.random() < bare:
            text = plain(text)
        text = text.strip()
        if len(text) < 2:
            return -1
        self.texts.append(text)
        self.kinds.append(KINDS.index(kind))
        self.roles.append(QUERY if self.rng.random() < query else PASSAGE)
        return len(self.texts) - 1

    def pair(self, one: int, other: int) -> None:
        if one >= 0 and other >= 0:
            self.pairs.append((one, other))

    def row(self, text: str, title: str, kind: str, python: bool) -> None:
        if kind == "question":
            self.add(text, "question", 1.0)
            if self.rng.random() < 0.3:
                self.add(plain(text), "question", 1.0)
        elif kind == "title":
            self.add(text, "title", 0.5)
        elif kind == "code":
            self.code(text, title, python)
        else:
            self.passage(text, title)

    def passage(self, text: str, title: str) -> None:
        draw = self.rng.random
        text = cut_words(text, 330)
        words = text.split()
        titled = title and draw() < 0.4
        whole = self.add(f"{title} {text}" if titled else text, "passage", bare=0.12)
        if title and draw() < 0.7:
            name = self.add(title, "title", 0.6, bare=0.2)
            if not titled:
                self.pair(name, whole)
        sentences = [one for one in SENTENCE.split(text) if 4 <= one.count(" ") < 70]
        if len(words) > 40:
            for _ in range(1 + (draw() < 0.5) if len(words) > 90 else int(draw() < 0.7)):
                size = self.rng.randint(15, min(120, len(words) - 10))
                begin = self.rng.randrange(len(words) - size)
                self.add(" ".join(words[begin : begin + size]), "cut", bare=0.25)
        for one in self.rng.sample(sentences, min(len(sentences), 1 + (draw() < 0.6))):
            self.add(one, "sentence", 0.35, bare=0.2)
        if len(words) > 6 and draw() < 0.8:
            size = self.rng.randint(2, min(10, len(words) - 1))
            begin = self.rng.randrange(len(words) - size)
            self.add(plain(" ".join(words[begin : begin + size])), "phrase", 0.7)
        if sentences and draw() < 0.45:
            self.add(self.keywords(self.rng.choice(sentences)), "keywords", 1.0)

    def keywords(self, text: str) -> str:
        """Some of a text's words that carry meaning, in its order."""
        words = [word for word in plain(text).split() if word.lower() not in STOP]
        kept = set(self.rng.sample(range(len(words)), min(len(words), self.rng.randint(2, 9))))
        return " ".join(word for place, word in enumerate(words) if place in kept)

    def code(self, text: str, title: str, python: bool) -> None:
        draw = self.rng.random
        text = text[:2400]
        self.add(text, "code", bare=0.1)
        bare = COMMENT.sub("", STRING.sub("", text))
        name = self.add(title, "title", 0.7) if title else -1
        if bare.strip() and bare != text and (title or draw() < 0.5):
            self.pair(name, self.add(bare, "bare code"))
        if title and draw() < 0.7:
            short = cut_words(plain(title), 12).lower()
            words = [word for word in short.split() if draw() < 0.85 or word not in STOP]
            self.add(" ".join((["python"] if python and draw() < 0.5 else []) + words), "question", 1.0)
        if draw() < 0.2:
            self.add(text.split("\n", 1)[0], "phrase", 0.5)


def repaired(text: str) -> str:
    """A text whose UTF-8 was read as Latin-1, as it was."""
    try:
        return text.encode("latin-1").decode("utf-8") if "\u00e2\u0080" in text else text
    except (UnicodeEncodeError, UnicodeDecodeError):
        return text


def article_passages(row: dict[str, Any], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Passages of an article of Wikipedia, of whole paragraphs, with title and heading."""
    for section in row["sections"]:
        title = f"{row['title']}: {section['h']}" if section["h"] else row["title"]
        part: list[str] = []
        limit = rng.choice((60, 100, 100, 160, 250, 330))
        for paragraph in section["p"]:
            if part and sum(p.count(" ") for p in part) + paragraph.count(" ") > limit:
                yield "\n".join(part), title
                part, limit = [], rng.choice((60, 100, 100, 160, 250, 330))
            part.append(paragraph)
        if part:
            yield "\n".join(part), title


def read_rows(
    data: bytes, name: str, part: int, parts: int, rng: random.Random
) -> Iterator[tuple[str, str, str]]:
    """Text, title and kind of a share of a file's rows."""
    with lzma.open(io.BytesIO(data), "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number % parts != part:
                continue
            row = json.loads(line)
            if "sections" in row:
                for text, title in article_passages(row, rng):
                    yield text, title, "passage"
            else:
                fix = repaired if "books" in name else str
                yield fix(row["text"]), fix(row.get("title", "")), row["kind"]


def tokenizer_at(path: Path) -> Any:
    """A tokenizer that neither cuts nor pads."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokens_of(path: Path, texts: Sequence[str], longest: int) -> tuple[Any, Any]:
    """Token ids of all texts one behind the other without special ones, and their numbers."""
    tokenizer = tokenizer_at(path)
    tokenizer.enable_truncation(longest - 2)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    flat, lengths = [], []
    for begin in range(0, len(texts), 2048):
        rows = [one.ids for one in encode(list(texts[begin : begin + 2048]), add_special_tokens=False)]
        lengths += [len(row) for row in rows]
        flat.append(np.fromiter((i for row in rows for i in row), np.uint16, sum(map(len, rows))))
    return np.concatenate(flat) if flat else np.zeros(0, np.uint16), np.array(lengths, np.int32)


TOKENS: dict[tuple[str, int], tuple[Any, Any, Any]] = {}  # of texts that are encoded again and again


def tokens_again(path: Path, texts: Sequence[str]) -> tuple[Any, Any]:
    """The same, kept for the next time."""
    key = str(path), id(texts)
    if key not in TOKENS:
        TOKENS[key] = (texts, *tokens_of(path, texts, LONGEST))  # holding the texts keeps their id theirs
    return TOKENS[key][1:]


def assemble_part(task: tuple[Path, str, int, int, int]) -> str:
    """Worker: the texts of a share of a file, tokenised twice."""
    home, name, part, parts, limit = task
    target = home / "shards" / f"{Path(name).name.split('.')[0]}-{part}.npz"
    if target.exists():
        return f"{target.stem}: there"
    views = Views(zlib.crc32(f"{name} {part}".encode()))
    data = joined(home, name)
    for number, (text, title, kind) in enumerate(read_rows(data, name, part, parts, views.rng)):
        if limit and number >= limit:
            break
        views.row(text, title, kind, "python" in name)
    hashes = np.array(
        [int.from_bytes(hashlib.blake2b(f"{r}{t.lower()}".encode(), digest_size=8).digest(), "little")
         for t, r in zip(views.texts, views.roles)], np.uint64,
    )  # fmt: skip
    own, own_lengths = tokens_of(home / "student" / "tokenizer.json", views.texts, LONGEST)
    bert, bert_lengths = tokens_of(home / "student" / "bert-tokenizer.json", views.texts, LONGEST)
    arrays = {
        "own": own, "own_lengths": own_lengths, "bert": bert, "bert_lengths": bert_lengths, "hashes": hashes,
        "kinds": np.array(views.kinds, np.uint8), "roles": np.array(views.roles, np.uint8),
        "pairs": np.array(views.pairs, np.int64).reshape(-1, 2),
    }  # fmt: skip
    temporary = target.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.rename(target)
    return f"{target.stem}: {len(views.texts):,} texts, {len(own):,} tokens"


def assemble(args: argparse.Namespace) -> None:
    home: Path = args.home
    (home / "shards").mkdir(parents=True, exist_ok=True)
    (home / "out").mkdir(exist_ok=True)
    student_folder(home)
    sizes = {name: size for name, size in expected(home).items() if name.startswith("texts/")}
    tasks = []
    for name, size in sizes.items():  # in the order in which they come
        parts = max(1, round(size / 1.6e6)) if not args.limit else 1
        tasks += [(home, name, part, parts, args.limit) for part in range(parts)]
    # The shards are merged in the order of the tasks, so numbers of texts do not depend on timing.
    with get_context("fork").Pool(args.workers) as pool:
        for done, word in enumerate(pool.imap_unordered(assemble_part, tasks), 1):
            if done % 16 == 0 or done == len(tasks) or args.limit:
                say(f"{done} of {len(tasks)}:", word)
    names = [f"{Path(name).name.split('.')[0]}-{part}" for _, name, part, _, _ in tasks]
    merge(home, names)


def merge(home: Path, names: Sequence[str]) -> None:
    """All shards as one store, every text once."""
    shards = [dict(np.load(home / "shards" / f"{name}.npz")) for name in names]
    hashes = np.concatenate([shard["hashes"] for shard in shards])
    _, first = np.unique(hashes, return_index=True)
    keep = np.zeros(len(hashes), bool)
    keep[first] = True
    for shard, mask in zip(shards, np.split(keep, np.cumsum([len(s["hashes"]) for s in shards])[:-1])):
        mask &= (shard["own_lengths"] > 0) & (shard["bert_lengths"] > 0)
    new = np.cumsum(keep) - 1
    store = home / "store"
    store.mkdir(exist_ok=True)
    start, pairs = 0, []
    columns: dict[str, list[Any]] = {
        name: [] for name in ("own", "bert", "own_lengths", "bert_lengths", "kinds", "roles", "sources")
    }
    for number, shard in enumerate(shards):
        count = len(shard["hashes"])
        mask = keep[start : start + count]
        for kind in ("own", "bert"):
            columns[kind].append(shard[kind][np.repeat(mask, shard[f"{kind}_lengths"])])
        for name in ("own_lengths", "bert_lengths", "kinds", "roles"):
            columns[name].append(shard[name][mask])
        columns["sources"].append(np.full(mask.sum(), number, np.uint16))
        given = shard["pairs"]
        good = given[mask[given].all(1)] if len(given) else given
        pairs.append(new[good + start].reshape(-1, 2))
        start += count
    for name, parts in columns.items():
        np.save(store / f"{name}.npy", np.concatenate(parts))
    np.save(store / "pairs.npy", np.concatenate(pairs))
    kinds, lengths = (np.concatenate(columns[name]) for name in ("kinds", "own_lengths"))
    bert = np.concatenate(columns["bert_lengths"])
    say(
        f"{len(kinds):,} texts of {len(keep):,}, {lengths.sum() / 1e6:.1f} M tokens of ours, "
        f"{bert.sum() / 1e6:.1f} M of BERT's, {sum(map(len, pairs)):,} pairs"
    )
    print("| kind | texts | tokens each | questions |\n| --- | --- | --- | --- |")
    roles = np.concatenate(columns["roles"])
    for number, kind in enumerate(KINDS):
        mask = kinds == number
        if mask.any():
            print(f"| {kind} | {mask.sum():,} | {lengths[mask].mean():.1f} | {roles[mask].mean():.2f} |")
    (store / "done").write_text("")


@dataclass
class Store:
    """All texts: flat tokens with bounds."""

    own: Any
    own_lengths: Any
    bert: Any
    bert_lengths: Any
    roles: Any
    kinds: Any
    pairs: Any

    @classmethod
    def open(cls, home: Path, patience: float = 900) -> Store:
        until = time.time() + patience
        while not (home / "store" / "done").exists():
            if time.time() > until:
                raise SystemExit("no texts: run assemble")
            time.sleep(0.5)
        return cls(*(np.load(home / "store" / f"{name}.npy") for name in cls.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.roles)


# Encoders.


def load_teacher(home: Path, name: str, device: Any, dtype: Any) -> dict[str, Any]:
    """A teacher's weights on the device."""
    stored = np.load(io.BytesIO(zlib.decompress(joined(home, f"teachers/{name}.npz.z"))))
    found = {}
    for key in stored.files:
        if key.endswith(".scale"):
            continue
        value = torch.from_numpy(stored[key]).to(device).float()
        if f"{key}.scale" in stored.files:
            scale = torch.from_numpy(stored[f"{key}.scale"]).to(device).float()
            value = (value.view(len(scale), -1) * scale).view(value.shape)
        found[key] = value.to(dtype)
    return found


def relative_bias(table: Any, length: int) -> Any:
    """MPNet's bias of scores by distance, 1 x heads x L x L."""
    places = torch.arange(length, device=table.device)
    n = places[:, None] - places[None, :]  # context less memory
    large = (8 + (n.abs().clamp(min=1).float() / 8).log() / np.log(128 / 8) * 8).long().clamp(max=15)
    bucket = torch.where(n.abs() < 8, n.abs(), large) + (n < 0).long() * 16
    return table[bucket].permute(2, 0, 1)[None].contiguous()


def forward_same_length(w: dict[str, Any], ids_BL: Any, heads: int, eps: float) -> Any:
    """Last states of texts that all have L tokens: no padding, no mask."""
    length, width = ids_BL.shape[1], w["embeddings.word_embeddings.weight"].shape[1]
    bias = w.get("encoder.relative_attention_bias.weight")
    bias = None if bias is None else relative_bias(bias, length)

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["embeddings.word_embeddings.weight"][ids_BL] + w["embeddings.position_embeddings.weight"][:length]
    x = norm(x, "embeddings.LayerNorm")
    for number in range(100):
        at = f"encoder.layer.{number}."
        if f"{at}output.dense.weight" not in w:
            break
        if f"{at}qkv.weight" not in w:
            for part in ("weight", "bias"):
                w[f"{at}qkv.{part}"] = torch.cat(
                    [w[f"{at}attention.self.{one}.{part}"] for one in ("query", "key", "value")]
                )
        q, k, v = linear(x, f"{at}qkv").view(*ids_BL.shape, 3, heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        x = norm(x + linear(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        x = norm(
            x + linear(F.gelu(linear(x, f"{at}intermediate.dense")), f"{at}output.dense"),
            f"{at}output.LayerNorm",
        )
    return x


def teacher_vectors(
    w: dict[str, Any],
    name: str,
    tokens: Any,
    lengths: Any,
    roles: Any,
    prompts: Sequence[Any],
    budget: int,
    device: Any,
) -> Any:
    """Unit vectors of all texts in half precision, on the device; texts of equal length share a batch."""
    about = TEACHERS[name]
    flat = torch.from_numpy(tokens.astype(np.int32)).to(device)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)[:-1]])).to(device)
    extra = np.array([len(prompts[PASSAGE]), len(prompts[QUERY])])[roles]
    inner = np.minimum(lengths, about["limit"] - 2 - extra)  # tokens that are read
    order = np.lexsort((inner, roles))
    width = w["embeddings.word_embeddings.weight"].shape[1]
    out = torch.empty(len(lengths), width, dtype=torch.float16, device=device)
    keys = roles[order].astype(np.int64) * 1024 + inner[order]
    edges = np.flatnonzero(np.diff(keys, prepend=-1))
    seen, said = 0, time.time()
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with torch.inference_mode(), sdpa_kernel(kernels):
        for begin, end in zip(edges, [*edges[1:], len(order)]):
            role, size = int(roles[order[begin]]), int(inner[order[begin]])
            prompt = torch.as_tensor(prompts[role], device=device, dtype=torch.int32)
            total = size + 2 + len(prompt)
            step = max(1, budget // total)
            for at in range(begin, end, step):
                rows = torch.from_numpy(order[at : min(at + step, end)]).to(device)
                ids = torch.empty(len(rows), total, dtype=torch.int32, device=device)
                ids[:, 0], ids[:, -1] = CLS, SEP
                ids[:, 1 : 1 + len(prompt)] = prompt
                ids[:, 1 + len(prompt) : -1] = flat[starts[rows][:, None] + torch.arange(size, device=device)]
                states = forward_same_length(w, ids, about["heads"], about["eps"])
                pooled = states[:, 0].float() if about["pool"] == "cls" else states.float().mean(1)
                out[rows] = F.normalize(pooled, dim=1).half()
                seen += len(rows) * total
            if time.time() - said > 15:
                said = time.time()
                say(f"{name}: {seen / 1e6:.0f} M tokens")
    return out


def bert_prompts(home: Path, name: str) -> list[Any]:
    tokenizer = tokenizer_at(home / "student" / "bert-tokenizer.json")
    return [tokenizer.encode(prompt, add_special_tokens=False).ids for prompt in TEACHERS[name]["prompts"]]


def device_of(args: argparse.Namespace) -> Any:
    torch.set_float32_matmul_precision("high")
    return torch.device(args.device)


def save_array(target: Path, values: Any) -> None:
    np.save(target.with_suffix(".part.npy"), values)
    target.with_suffix(".part.npy").rename(target)


def teach(args: argparse.Namespace) -> None:
    home, device = args.home, device_of(args)
    student_folder(home)
    store = Store.open(home)
    (home / "vectors").mkdir(exist_ok=True)
    rows, saving = [], []
    for name in args.teachers:
        target = home / "vectors" / f"{name}.npy"
        if target.exists():
            say(name, "there")
            continue
        w = load_teacher(home, name, device, torch.float16 if device.type == "cuda" else torch.float32)
        began = time.time()
        vectors = teacher_vectors(
            w,
            name,
            store.bert,
            store.bert_lengths,
            store.roles,
            bert_prompts(home, name),
            args.budget,
            device,
        )
        if device.type == "cuda":
            torch.cuda.synchronize()
        bad = int((~torch.isfinite(vectors)).any(1).sum())
        spent = time.time() - began
        found = vectors.cpu().numpy()
        saving.append(Thread(target=save_array, args=(target, found)))
        saving[-1].start()
        rows.append((name, spent, store.bert_lengths.sum() / spent / 1e6, bad))
        say(
            f"{name}: {spent:.1f} s, {len(found):,} vectors, {bad} not finite, "
            f"on this side after {time.time() - began:.1f} s"
        )
        del w, vectors
    for one in saving:
        one.join()
    print("| teacher | seconds | M tokens/s | not finite |\n| --- | --- | --- | --- |")
    for name, spent, speed, bad in rows:
        print(f"| {name} | {spent:.1f} | {speed:.2f} | {bad} |")


# Evaluation.


@dataclass
class Split:
    """The questions of a split of a set."""

    queries: list[str]
    grades: list[dict[int, int]]
    bm25: list[tuple[Any, Any]]  # numbers and scores


@dataclass
class Set:
    """An evaluation set."""

    name: str
    passages: list[str]
    splits: dict[str, Split]


def read_set(home: Path, name: str, only: str, few: int = 0) -> Set:
    with lzma.open(io.BytesIO(joined(home, f"sets/{name}.jsonl.xz")), "rt", encoding="utf-8") as file:
        passages, *splits = map(json.loads, file)
    found = {}
    for one in splits:
        if one["split"] == only:
            count = few or len(one["queries"])
            found[only] = Split(
                one["queries"][:count],
                [{int(n): g for n, g in row} for row in one["grades"][:count]],
                [
                    (np.array([n for n, _ in row], np.int64), np.array([s for _, s in row]))
                    for row in one["bm25"][:count]
                ],
            )
    return Set(name, passages[: few * 2] if few else passages, found)


def minmax(scores: Any) -> Any:
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.ones(len(scores))


def fused(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """Numbers of the hybrid, best first: halves of min-max scores; what a list has not gets 0."""
    numbers = list(dict.fromkeys([*one[0].tolist(), *other[0].tolist()]))
    total = dict.fromkeys(numbers, 0.0)
    for found, scores in (one, other):
        if len(found):
            for number, score in zip(found.tolist(), minmax(np.asarray(scores, np.float64)).tolist()):
                total[number] += 0.5 * score
    return sorted(numbers, key=lambda number: -total[number])


def ndcg(ranked: Sequence[int], grades: dict[int, int], depth: int = 10) -> float:
    gains = [grades.get(int(number), 0) for number in ranked[:depth]]
    best = sorted(grades.values(), reverse=True)[:depth]
    ideal = sum(gain / np.log2(rank + 2) for rank, gain in enumerate(best))
    return sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)) / ideal if ideal else 0.0


def judged(one: Set, split: str, queries: Any, passages: Any) -> tuple[float, float]:
    """nDCG@10 of unit vectors, alone and fused with BM25."""
    asked = one.splits[split]
    dense, hybrid = [], []
    torch.set_float32_matmul_precision("highest")
    depth = min(100, len(passages))
    for begin in range(0, len(queries), 1024):
        scores, numbers = (queries[begin : begin + 1024].float() @ passages.float().T).topk(depth)
        scores, numbers = scores.cpu().numpy(), numbers.cpu().numpy()
        for row in range(len(scores)):
            place = begin + row
            grades = asked.grades[place]
            dense.append(ndcg(numbers[row], grades))
            hybrid.append(ndcg(fused(asked.bm25[place], (numbers[row], scores[row])), grades))
    torch.set_float32_matmul_precision("high")
    return float(np.mean(dense)), float(np.mean(hybrid))


Encode = Callable[[Sequence[str], int], Any]  # texts and role -> unit vectors


def evaluate_encoder(encode: Encode, sets: Sequence[Set], split: str) -> dict[str, tuple[float, float]]:
    return {
        one.name: judged(one, split, encode(one.splits[split].queries, QUERY), encode(one.passages, PASSAGE))
        for one in sets
    }


def spearman(one: Any, other: Any) -> float:
    def ranks(values: Any) -> Any:
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        return (ends - (counts - 1) / 2)[places]

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def sts(home: Path, split: str, encode: Encode) -> float:
    with lzma.open(io.BytesIO(joined(home, f"sets/stsb-{split}.csv.xz")), "rt", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) == 3]
    a, b = (encode([row[i] for row in rows], PASSAGE) for i in (0, 1))
    return spearman((a * b).sum(1).cpu().numpy(), np.array([float(row[2]) for row in rows]))


def teacher_encoder(home: Path, name: str, device: Any, prompts: bool = True) -> Encode:
    w = load_teacher(home, name, device, torch.float16 if device.type == "cuda" else torch.float32)
    said = bert_prompts(home, name) if prompts else [[], []]

    def encode(texts: Sequence[str], role: int) -> Any:
        tokens, lengths = tokens_again(home / "student" / "bert-tokenizer.json", texts)
        return teacher_vectors(
            w, name, tokens, lengths, np.full(len(texts), role, np.uint8), said, 131072, device
        ).float()

    return encode


def table(
    rows: dict[str, dict[str, tuple[float, float]]], sets: Sequence[str], more: dict[str, str] | None = None
) -> str:
    lines = [
        "| nDCG@10: dense / hybrid | " + " | ".join([*sets, "mean"]) + " |" + (" stsb |" if more else "")
    ]
    lines.append("| --- |" + " --- |" * (len(sets) + 1 + bool(more)))
    for name, values in rows.items():
        mean = np.mean([values[one] for one in sets], axis=0)
        cells = [f"{values[one][0]:.3f} / {values[one][1]:.3f}" for one in sets]
        lines.append(
            f"| {name} | "
            + " | ".join([*cells, f"**{mean[0]:.4f} / {mean[1]:.4f}**"])
            + " |"
            + (f" {more[name]} |" if more else "")
        )
    return "\n".join(lines)


# The weights of the teachers.


def role_means(vectors: Any, roles: Any) -> Any:
    """The mean vector of each role, 2 x width; of both where a role has none."""
    both = vectors.float().mean(0)
    return torch.stack(
        [
            vectors[roles == role].float().mean(0) if (roles == role).any() else both
            for role in (PASSAGE, QUERY)
        ]
    )


def unit(x: Any) -> Any:
    return F.normalize(x.float(), dim=1)


def weigh(args: argparse.Namespace) -> tuple[int, ...]:
    """Every mixture of the grid on the dev splits; the best by the mean of dense and hybrid over sets is written."""
    home, device = args.home, device_of(args)
    student_folder(home)
    there = [name for name in ORDER if (home / "vectors" / f"{name}.npy").exists()]
    sets = [read_set(home, name, "dev", args.few) for name in DEV]
    roles = torch.from_numpy(np.load(home / "store" / "roles.npy"))
    sides: dict[str, list[tuple[Any, Any]]] = {}
    for name in there:
        vectors = np.load(home / "vectors" / f"{name}.npy", mmap_mode="r")
        drawn = np.sort(np.random.default_rng(0).permutation(len(vectors))[:65536])
        means = role_means(torch.from_numpy(np.asarray(vectors[drawn])).to(device), roles[drawn].to(device))
        encode = teacher_encoder(home, name, device)
        sides[name] = [
            (
                unit(encode(one.splits["dev"].queries, QUERY) - means[QUERY]),
                unit(encode(one.passages, PASSAGE) - means[PASSAGE]),
            )
            for one in sets
        ]
        say("dev vectors of", name)
    results: dict[str, dict[str, tuple[float, float]]] = {}
    best, most = tuple(int(name in there) for name in ORDER), -1.0
    for weights in GRID:
        used = [(name, weight) for name, weight in zip(ORDER, weights) if weight]
        if any(name not in there for name, _ in used):
            continue
        total = sum(weights)
        values = {}
        for place, one in enumerate(sets):
            both = [
                torch.cat([sides[name][place][side] * (weight / total) ** 0.5 for name, weight in used], 1)
                for side in (0, 1)
            ]
            values[one.name] = judged(one, "dev", *both)
        results[" ".join(f"{name} {weight}" for name, weight in used)] = values
        mean = float(np.mean(list(values.values())))
        if len(used) > 1 and mean > most:
            best, most = weights, mean
    print(table(results, DEV))
    (home / "out").mkdir(exist_ok=True)
    (home / "out" / "weigh.json").write_text(
        json.dumps({"best": best, "order": ORDER, "results": results}, indent=1)
    )
    say("best mixture", dict(zip(ORDER, best)), f"{most:.4f}")
    return best


# Targets and neighbours.


def targets_of(home: Path, weights: Sequence[int], roles: Any, device: Any) -> tuple[Any, dict[str, Any]]:
    """The teachers side by side, weighted, turned to their first WIDTH directions: N x WIDTH in half precision."""
    used = [(name, weight) for name, weight in zip(ORDER, weights) if weight]
    total = sum(weight for _, weight in used)
    roles = torch.from_numpy(roles).to(device)
    parts, means = [], {}
    for name, weight in used:
        vectors = torch.from_numpy(np.load(home / "vectors" / f"{name}.npy")).to(device)
        vectors = torch.nan_to_num(vectors)
        mean = role_means(vectors, roles)
        means[name] = mean.cpu()
        for begin in range(0, len(vectors), 1 << 18):
            part = slice(begin, begin + (1 << 18))
            vectors[part] = (
                unit(vectors[part].float() - mean[roles[part].long()]) * (weight / total) ** 0.5
            ).half()
        parts.append(vectors)
        say("centred", name)
    count, wide = len(roles), sum(part.shape[1] for part in parts)
    square = torch.zeros(wide, wide, device=device)
    step = 1 << 18
    for begin in range(0, count, step):
        block = torch.cat([part[begin : begin + step] for part in parts], 1).float()
        square += block.T @ block
    values, directions = torch.linalg.eigh(square.double())
    width = min(WIDTH, wide, count)
    directions = directions.flip(1)[:, :width].float().to(device)
    share = (values.flip(0)[:width].sum() / values.sum()).item()
    first = (values.flip(0)[:384].sum() / values.sum()).item()
    out = torch.empty(count, width, dtype=torch.float16, device=device)
    for begin in range(0, count, step):
        block = torch.cat([part[begin : begin + step] for part in parts], 1).float()
        out[begin : begin + step] = (block @ directions).half()
    say(
        f"targets: {wide} numbers to {width}, which keep {share:.4f} of the square; 384 would keep {first:.4f}"
    )
    return out, {
        "directions": directions.cpu(),
        "weights": weights,
        **{f"mean.{name}": mean for name, mean in means.items()},
    }


def neighbours_of(targets: Any, count: int, seed: int = 0) -> Any:
    """The nearest texts of each text within its bucket, N x count: k-means on the first directions, then exact."""
    device, number = targets.device, len(targets)
    generator = torch.Generator().manual_seed(seed)
    buckets = max(1, number // 1500)
    short = unit(targets[:, :128]).half() if device.type == "cuda" else unit(targets[:, :128])
    sample = short[torch.randperm(number, generator=generator)[: 256 * buckets].to(device)]
    centres = sample[:buckets].clone()

    def nearest(x: Any) -> Any:
        return torch.cat([(x[b : b + 65536] @ centres.T).argmax(1) for b in range(0, len(x), 65536)])

    for _ in range(8):
        near = nearest(sample)
        sums = torch.zeros(buckets, short.shape[1], device=device).index_add_(0, near, sample.float())
        lone = torch.bincount(near, minlength=buckets) == 0
        centres = unit(sums).to(short.dtype)
        if lone.any():
            centres[lone] = sample[
                torch.randint(len(sample), (int(lone.sum()),), generator=generator).to(device)
            ]
    near = nearest(short)
    order = near.argsort()
    sizes = torch.bincount(near, minlength=buckets).cpu().tolist()
    out = torch.empty(number, count, dtype=torch.int32, device=device)
    begin = 0
    for size in sizes:
        rows = order[begin : begin + size]
        begin += size
        inside = targets[rows]
        for at in range(0, size, 8192):
            part = inside[at : at + 8192]
            scores = (part @ inside.T).float()
            scores[
                torch.arange(len(part), device=device), torch.arange(at, at + len(part), device=device)
            ] = -9
            best = scores.topk(min(count, size)).indices
            if size < count:  # small buckets repeat what they have
                best = best[:, torch.arange(count, device=device) % size]
            out[rows[at : at + 8192]] = rows[best].int()
    say(f"neighbours: {buckets} buckets, the largest {max(sizes):,}")
    return out


# The student.

MATRICES = ("query", "key", "value")


def int8_rows(weight: Any) -> tuple[Any, Any]:
    """Codes and half-precision scales, as the package stores them."""
    scale = (weight.detach().float().abs().amax(1, keepdim=True) / 127).clamp(min=1e-7).half()
    codes = (weight.detach().float() / scale.float()).round().clamp(-127, 127)
    return codes.to(torch.int8), scale


def read_int8(path: Path | bytes) -> dict[str, Any]:
    """A file of int8 rows and scales in float32."""
    from safetensors.torch import load

    tensors = load(path if isinstance(path, bytes) else path.read_bytes())
    return {
        name: value.float() * tensors[f"{name}.scale"].float()
        if f"{name}.scale" in tensors
        else value.float()
        for name, value in tensors.items()
        if not name.endswith(".scale")
    }


def fake_int8(weight: Any) -> Any:
    """The weight rounded to int8 rows; gradients go straight through."""
    scale = (weight.detach().abs().amax(1, keepdim=True) / 127).clamp(min=1e-7).half().float()
    return weight + ((weight.detach() / scale).round().clamp(-127, 127) * scale - weight.detach())


def attend(qkv_T3HE: Any, offsets: Any, longest: int) -> Any:
    """Attention of each text to itself: T x H x E."""
    q, k, v = qkv_T3HE.unbind(1)
    if qkv_T3HE.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(
            q, k, v, offsets, offsets, longest, longest, scale=q.shape[-1] ** -0.5, window_size=(-1, -1)
        )
    parts = []
    bounds = offsets.tolist()
    for begin, end in pairwise(bounds):
        one = (x[begin:end].transpose(0, 1) for x in (q, k, v))
        parts.append(F.scaled_dot_product_attention(*one).transpose(0, 1))
    return torch.cat(parts)


def embed_tokens(words: Any, places: Any, types: Any, scale: Any, shift: Any, ids: Any, at: Any) -> Any:
    x = F.embedding(ids, words) + F.embedding(at, places) + types[0]
    return F.layer_norm(x, (x.shape[1],), scale, shift, 1e-12)


def after_attention(x: Any, mixed: Any, w: Sequence[Any]) -> Any:
    out, out_b, s1, b1, up, up_b, down, down_b, s2, b2 = w
    x = F.layer_norm(x + F.linear(mixed, out, out_b), (x.shape[1],), s1, b1, 1e-12)
    return F.layer_norm(
        x + F.linear(F.gelu(F.linear(x, up, up_b)), down, down_b), (x.shape[1],), s2, b2, 1e-12
    )


class Student:
    """A BERT encoder with mean pooling and a projection; matrices are used as int8 rows."""

    def __init__(self, weights: dict[str, Any], heads: int, device: Any, tokenizer: Path) -> None:
        self.names = sorted(name for name in weights if not name.startswith("2_Dense."))
        self.p = {name: weights[name].float().to(device).requires_grad_(True) for name in self.names}
        self.layers = 1 + max(
            int(name.split(".")[2]) for name in self.names if name.startswith("encoder.layer.")
        )
        self.heads, self.device, self.tokenizer = heads, device, tokenizer
        self.width = self.p["embeddings.word_embeddings.weight"].shape[1]
        self.head = self.head_bias = None
        if "2_Dense.linear.weight" in weights:
            self.set_head(weights["2_Dense.linear.weight"], weights["2_Dense.linear.bias"])
        self.after: Any = after_attention
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def set_head(self, weight: Any, bias: Any) -> None:
        self.head = weight.detach().float().to(self.device).clone().requires_grad_(True)
        self.head_bias = bias.detach().float().to(self.device).clone().requires_grad_(True)

    def compile(self) -> None:
        self.after = torch.compile(after_attention)

    def plain(self) -> None:
        self.after = after_attention

    def parameters(self) -> list[Any]:
        assert self.head is not None
        return [*self.p.values(), self.head, self.head_bias]

    def used(self, dtype: torch.dtype | None = None) -> dict[str, Any]:
        """The weights of a step: matrices rounded, all in the dtype of the products."""
        dtype = dtype or self.dtype
        return {
            name: (fake_int8(value) if value.dim() == 2 else value).to(dtype)
            for name, value in self.p.items()
        }

    def pooled(
        self, ids: Any, places: Any, offsets: Any, texts: Any, lengths: Any, longest: int, w: dict[str, Any]
    ) -> Any:
        """The mean state of each text in float32, B x H."""
        e = "embeddings."
        x = embed_tokens(
            w[f"{e}word_embeddings.weight"], w[f"{e}position_embeddings.weight"], w[f"{e}token_type_embeddings.weight"],
            w[f"{e}LayerNorm.weight"], w[f"{e}LayerNorm.bias"], ids, places,
        )  # fmt: skip
        for number in range(self.layers):
            at = f"encoder.layer.{number}."
            joint = [
                torch.cat([w[f"{at}attention.self.{one}.{part}"] for one in MATRICES])
                for part in ("weight", "bias")
            ]
            qkv = F.linear(x, *joint).view(len(x), 3, self.heads, -1)
            mixed = attend(qkv, offsets, longest).flatten(1)
            for one in (x, mixed):  # only the number of tokens changes from batch to batch
                torch._dynamo.maybe_mark_dynamic(one, 0)
            parts = (
                "attention.output.dense",
                "attention.output.LayerNorm",
                "intermediate.dense",
                "output.dense",
                "output.LayerNorm",
            )
            x = self.after(x, mixed, [w[f"{at}{one}.{part}"] for one in parts for part in ("weight", "bias")])
        sums = torch.zeros(len(lengths), self.width, device=x.device).index_add(0, texts, x.float())
        return sums / lengths[:, None]

    def project(self, pooled: Any) -> Any:
        return F.linear(pooled, self.head, self.head_bias)

    def encoder(self, budget: int = 1 << 18) -> Encode:
        """Unit vectors of texts, rounded as in training."""

        def encode(texts: Sequence[str], role: int) -> Any:
            tokens, lengths = tokens_again(self.tokenizer, texts)
            batches = Batches(tokens, lengths, self.device)
            order = np.argsort(lengths, kind="stable")
            out = torch.empty(len(texts), self.head.shape[0], device=self.device)  # type: ignore[union-attr]
            sizes = np.cumsum(lengths[order] + 2)
            compiled, self.after = self.after, after_attention  # which was compiled for another precision
            with torch.no_grad():
                w = self.used(torch.float16 if self.device.type == "cuda" else None)
                begin = 0
                while begin < len(order):
                    before = sizes[begin - 1] if begin else 0
                    end = max(begin + 1, int(np.searchsorted(sizes, before + budget, side="right")))
                    rows = order[begin:end]
                    out[torch.from_numpy(rows).to(self.device)] = unit(
                        self.project(self.pooled(*batches.get(rows), w))
                    )
                    begin = end
            self.after = compiled
            return out

        return encode

    def export(self, folder: Path, about: dict[str, Any]) -> None:
        """int8 rows and the projection, in parts of at most 15 MB, and what goes with them."""
        from safetensors.torch import save

        folder.mkdir(parents=True, exist_ok=True)
        stored = {}
        for name, value in self.p.items():
            if value.dim() == 2:
                codes, scale = int8_rows(value)
                stored[name], stored[f"{name}.scale"] = codes.cpu(), scale.cpu()
            else:
                stored[name] = value.detach().half().cpu()
        stored["2_Dense.linear.weight"] = self.head.detach().half().cpu()  # type: ignore[union-attr]
        stored["2_Dense.linear.bias"] = self.head_bias.detach().half().cpu()  # type: ignore[union-attr]
        data = save({name: value.contiguous() for name, value in stored.items()})
        for number, begin in enumerate(range(0, len(data), 15_000_000)):
            (folder / f"student.safetensors.{number:03d}").write_bytes(data[begin : begin + 15_000_000])
        (folder / "about.json").write_text(json.dumps(about, indent=1))


def read_export(folder: Path) -> dict[str, Any]:
    return read_int8(b"".join(path.read_bytes() for path in sorted(folder.glob("student.safetensors.*"))))


class Batches:
    """Packed batches out of flat tokens that lie on the device."""

    def __init__(self, tokens: Any, lengths: Any, device: Any) -> None:
        self.lengths, self.device = lengths.astype(np.int64), device
        self.starts = torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths)[:-1]])).to(device)
        self.flat = torch.from_numpy(np.ascontiguousarray(tokens).astype(np.int32)).to(device)
        if not len(self.flat):
            self.flat = torch.zeros(1, dtype=torch.int32, device=device)
        self.inner = torch.from_numpy(self.lengths).to(device)

    def get(self, rows: Any) -> tuple[Any, ...]:
        """Ids, places, offsets, the text of each token, lengths and the longest."""
        device = self.device
        own = self.lengths[rows] + 2
        total, longest = int(own.sum()), int(own.max())
        index = torch.from_numpy(np.ascontiguousarray(rows)).to(device, non_blocking=True)
        lengths = self.inner[index] + 2
        ends = lengths.cumsum(0)
        offsets = F.pad(ends, (1, 0)).int()
        texts = torch.repeat_interleave(torch.arange(len(rows), device=device), lengths, output_size=total)
        places = torch.arange(total, device=device) - (ends - lengths)[texts]
        inner = (self.starts[index][texts] + places - 1).clamp_(0, len(self.flat) - 1)
        ids = self.flat[inner]
        ids = torch.where(
            places == 0, OWN_CLS, torch.where(places == lengths[texts] - 1, OWN_SEP, ids)
        ).long()
        return ids, places, offsets, texts, lengths.float(), max(32, 1 << (longest - 1).bit_length())


def pieces_mean(table: Any, old: Any, vocabulary: dict[str, int]) -> Any:
    """Embeddings of a larger vocabulary: a new word is the mean of the pieces it had."""
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    rows = [table]
    more = [old.encode(word, add_special_tokens=False).ids for word in words[len(table) :]]
    if more:
        rows.append(torch.stack([table[ids].mean(0) for ids in more]))
    return torch.cat(rows)


def packaged(home: Path) -> dict[str, Any]:
    """The weights of the package's encoder, whose folder is HOME/start."""
    from safetensors.torch import load_file

    folder = home / "start"
    dense = load_file(folder / "2_Dense" / "model.safetensors")
    return {
        **{
            name.removeprefix("bert."): value
            for name, value in read_int8(folder / "model.int8.safetensors").items()
        },
        **{f"2_Dense.{name}": value.float() for name, value in dense.items()},
    }


def pieces_of(word: str, vocabulary: dict[str, int]) -> list[int]:
    """The numbers of a token's longest pieces in another WordPiece vocabulary."""
    prefix = "##" if word.startswith("##") and len(word) > 2 else ""
    rest, numbers = word.removeprefix(prefix), []
    while rest:
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in vocabulary), 0)
        if not size:
            return [vocabulary["[UNK]"]]
        numbers.append(vocabulary[prefix + rest[:size]])
        rest, prefix = rest[size:], "##"
    return numbers


def teacher_as_student(home: Path, name: str, tokenizer: Path, inner: int) -> dict[str, Any]:
    """A teacher's layers under the student's vocabulary, each with its `inner` largest neurons.

    A token that the teacher has not is the mean of its pieces; a neuron's size is that of its row times its column.
    """
    weights = load_teacher(home, name, torch.device("cpu"), torch.float32)
    key, old = (
        "embeddings.word_embeddings.weight",
        tokenizer_at(tokenizer.with_name("bert-tokenizer.json")).get_vocab(),
    )
    new = tokenizer_at(tokenizer).get_vocab()
    words = sorted(new, key=new.__getitem__)
    weights[key] = torch.stack([weights[key][pieces_of(word, old)].mean(0) for word in words])
    weights.setdefault("embeddings.token_type_embeddings.weight", torch.zeros(2, weights[key].shape[1]))
    for number in range(100):
        up, down = (f"encoder.layer.{number}.{part}" for part in ("intermediate.dense", "output.dense"))
        if f"{up}.weight" not in weights:
            break
        sizes = weights[f"{up}.weight"].norm(dim=1) * weights[f"{down}.weight"].norm(dim=0)
        kept = sizes.topk(min(inner, len(sizes))).indices.sort().values
        for part in (f"{up}.weight", f"{up}.bias"):
            weights[part] = weights[part][kept].contiguous()
        weights[f"{down}.weight"] = weights[f"{down}.weight"][:, kept].contiguous()
    return weights


def start_of(home: Path, args: argparse.Namespace, device: Any) -> Student:
    """The package's encoder under the student's vocabulary, a teacher's layers, or an export of an earlier run."""
    tokenizer = student_folder(home) / "tokenizer.json"
    if args.start is None and args.layers_of:
        return Student(teacher_as_student(home, args.layers_of, tokenizer, args.inner), 12, device, tokenizer)
    if args.start is not None:
        return Student(read_export(args.start), 12, device, tokenizer)
    weights = packaged(home)
    name = "embeddings.word_embeddings.weight"
    new = tokenizer_at(tokenizer).get_vocab()
    weights[name] = pieces_mean(weights[name], tokenizer_at(home / "start" / "tokenizer.json"), new)
    return Student(weights, 12, device, tokenizer)


def fit_head(student: Student, batches: Batches, targets: Any, count: int) -> None:
    """The projection that comes nearest to the targets, by least squares."""
    rows = np.random.default_rng(1).permutation(len(targets))[:count]
    width = student.width + 1
    square, cross = (
        torch.zeros(width, width, device=student.device),
        torch.zeros(width, targets.shape[1], device=student.device),
    )
    with torch.no_grad():
        w = student.used()
        for begin in range(0, len(rows), 2048):
            part = rows[begin : begin + 2048]
            x = F.pad(student.pooled(*batches.get(part), w), (0, 1), value=1.0)
            y = targets[torch.from_numpy(part).to(student.device)].float()
            square += x.T @ x
            cross += x.T @ y
    ridge = 1e-4 * square.diagonal().mean() * torch.eye(width, device=student.device)
    found = torch.linalg.solve((square + ridge).double().cpu(), cross.double().cpu()).float()
    student.set_head(found[:-1].T.contiguous(), found[-1])


def losses(z: Any, t: Any, rows: Any, tau: float) -> tuple[Any, Any]:
    """Squared distance of unit vectors, and the KL divergence of the softmax over a batch's cosines."""
    z, t = unit(z), unit(t)
    distance = (2 - 2 * (z * t).sum(1)).mean()
    same = rows[:, None] == rows[None, :]
    given = ((t @ t.T) / tau).masked_fill(same, -1e4).log_softmax(1)
    found = ((z @ z.T) / tau).masked_fill(same, -1e4).log_softmax(1)
    return distance, (given.exp() * (given - found)).sum(1).mean()


def seeds(count: int, size: int, seed: int) -> Iterator[Any]:
    """Numbers of texts, all of them in a new order again and again, `size` at a time."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    while True:
        while len(order) < size:
            order = np.concatenate([order, rng.permutation(count)])
        yield order[:size]
        order = order[size:]


def rate(done: float, warm: float) -> float:
    """The share of the peak rate: up, flat for a while, then down to zero in a line."""
    if done < warm:
        return done / warm
    return min(1.0, (1 - done) / (1 - FLAT))


FLAT = 0.3  # of the time at the peak rate


def optimizer_of(student: Student, lr: float) -> Any:
    decayed = [value for value in student.parameters() if value.dim() == 2]
    others = [value for value in student.parameters() if value.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-6, fused=student.device.type == "cuda")


def prepare_targets(args: argparse.Namespace, store: Store, device: Any) -> tuple[Any, Any]:
    """Targets and neighbours; kept in HOME/targets for the next command."""
    home: Path = args.home
    kept = home / "targets"
    if (kept / "done").exists():
        return tuple(torch.from_numpy(np.load(kept / f"{n}.npy")).to(device) for n in ("targets", "near"))  # type: ignore[return-value]
    if args.weights:
        weights = tuple(args.weights)
    elif (home / "out" / "weigh.json").exists():
        weights = tuple(json.loads((home / "out" / "weigh.json").read_text())["best"])
    else:
        weights = DEFAULT
    weights = tuple(w if (home / "vectors" / f"{n}.npy").exists() else 0 for n, w in zip(ORDER, weights))
    say("weights", dict(zip(ORDER, weights)))
    targets, about = targets_of(home, weights, store.roles, device)
    near = neighbours_of(targets, args.near)
    kept.mkdir(exist_ok=True)
    np.save(kept / "targets.npy", targets.cpu().numpy())
    np.save(kept / "near.npy", near.cpu().numpy())
    torch.save(about, kept / "about.pt")
    (kept / "done").write_text("")
    return targets, near


def faster(student: Student, batch: Callable[[], Any]) -> None:
    """Compile the student if that gives the same numbers sooner; what was seen is said."""

    def once() -> tuple[float, Any]:
        began = time.time()
        found = batch()
        torch.cuda.synchronize()
        return time.time() - began, found

    once()
    before, reference = once()
    try:
        student.compile()
        first, _ = once()
        after, found = min((once() for _ in range(2)), key=lambda pair: pair[0])
        off = (found - reference).abs().max().item()
    except Exception as error:  # a compiler that fails is a reason to go on without it
        say("not compiled:", type(error).__name__, str(error)[:300])
        student.plain()
        return
    say(
        f"plain {before * 1e3:.0f} ms, compiled {after * 1e3:.0f} ms (first {first:.1f} s), "
        f"largest difference {off:.4f}"
    )
    if after > before or off > 0.1 or off != off:
        student.plain()


def train(args: argparse.Namespace) -> None:
    home, device = args.home, device_of(args)
    seconds = args.seconds if args.until is None else args.until - time.time()
    began = time.time()
    store = Store.open(home)
    targets, near = prepare_targets(args, store, device)
    near = near.cpu().numpy()
    student = start_of(home, args, device)
    batches = Batches(store.own, store.own_lengths, device)
    sets = [read_set(home, name, "dev", args.few) for name in DEV]
    checkpoint = home / f"{args.name}.pt"
    step, texts, spent = 0, 0, 0.0
    state = (
        torch.load(checkpoint, map_location=device, weights_only=True)
        if args.resume and checkpoint.exists()
        else None
    )
    if state is None:
        if student.head is None or len(student.head) != targets.shape[1] or args.start is None:
            fit_head(student, batches, targets, args.fit)
            say("projection fitted")
    else:
        student.set_head(state["head"], state["head_bias"])
        with torch.no_grad():
            for name, value in state["p"].items():
                student.p[name].copy_(value)
        step, texts, spent = state["step"], state["texts"], state["spent"]
        say(f"goes on at step {step}, {texts:,} texts")
    optimizer = optimizer_of(student, args.lr)
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
    log = (home / "out" / f"{args.name}.jsonl").open("a" if state is not None else "w")

    def record(**values: Any) -> None:
        log.write(json.dumps(values) + "\n")
        log.flush()

    def look(tag: str) -> dict[str, tuple[float, float]]:
        values = evaluate_encoder(student.encoder(), sets, "dev")
        mean = np.mean(list(values.values()), axis=0)
        say(f"dev at {texts / 1e6:.2f} M texts: dense {mean[0]:.4f}, hybrid {mean[1]:.4f}")
        record(step=step, texts=texts, seconds=round(spent), tag=tag, dev=values)
        return values

    results = {"before": look("before")} if state is None else {"resumed": look("resumed")}
    group = args.group
    drawn = seeds(len(store), args.batch // group, args.seed + step)
    rng = np.random.default_rng(args.seed + step)

    def rows_of() -> Any:
        own = next(drawn)
        picks = rng.integers(0, near.shape[1], (len(own), group - 1))
        return np.concatenate([own[:, None], near[own[:, None], picks]], 1).ravel().astype(np.int64)

    if device.type == "cuda" and not args.no_compile:
        several = [batches.get(rows_of()) for _ in range(3)]

        faster(student, lambda: passes(student, several))
    if device.type == "cuda":
        torch.cuda.synchronize()
    prelude = time.time() - began
    total = spent + (seconds - prelude - args.reserve if args.until is not None else seconds)
    say(f"{prelude:.0f} s until the first step; training for {total - spent:.0f} s")
    last = said = saved = looked = time.time()
    sums, counted, tokens = torch.zeros(2, device=device), 0, 0
    first_texts, first_time = texts, time.time()
    # The first step sets the clock: the rate follows the time, so it reaches zero when time is up.
    while spent < total and not (args.steps and step >= args.steps):
        done = min(1.0, spent / total)
        for one in optimizer.param_groups:
            one["lr"] = args.lr * max(1e-3, rate(done, args.warm))
        rows = rows_of()
        given = batches.get(rows)
        index = torch.from_numpy(rows).to(device)
        z = student.project(student.pooled(*given, student.used()))
        distance, divergence = losses(z, targets[index], index, args.tau)
        loss = args.distance * distance + args.divergence * divergence
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step, texts, counted = step + 1, texts + len(rows), counted + 1
        tokens += int(batches.lengths[rows].sum()) + 2 * len(rows)
        sums += torch.stack([distance.detach(), divergence.detach()])
        if step % 20 == 0 and device.type == "cuda":
            torch.cuda.synchronize()
        now = time.time()
        spent, last = spent + now - last, now
        if now - said > args.every:
            values = (sums / counted).tolist()
            speed = (texts - first_texts) / (now - first_time)
            if not np.isfinite(values).all():
                raise SystemExit("the loss is not a number; the last export stands")
            say(f"step {step}, {texts / 1e6:.2f} M texts, distance {values[0]:.4f}, divergence {values[1]:.4f}, "
                f"norm {norm:.3f}, "
                f"{speed / 1e3:.1f} k texts/s, {tokens / (now - first_time) / 1e6:.2f} M tokens/s")  # fmt: skip
            record(
                step=step,
                texts=texts,
                seconds=round(spent),
                distance=values[0],
                divergence=values[1],
                lr=optimizer.param_groups[0]["lr"],
            )
            sums.zero_()
            counted, said = 0, now
        if now - saved > args.save_every or (args.steps and step == args.steps):
            save_state(student, optimizer, checkpoint, step, texts, spent)
            student.export(
                home / "out" / args.name, {"step": step, "texts": texts, "seconds": spent, "whole": False}
            )
            saved = time.time()
        if now - looked > args.look_every:
            look("during")
            looked = time.time()
        last = time.time() if args.until is None else last
    save_state(student, optimizer, checkpoint, step, texts, spent)
    student.export(
        home / "out" / args.name,
        {
            "step": step,
            "texts": texts,
            "seconds": spent,
            "whole": True,
            "arguments": {k: str(v) for k, v in vars(args).items()},
        },
    )
    results["after"] = look("after")
    say(f"trained: {step} steps, {texts:,} texts in {spent:.0f} s")
    print(table(results, DEV))


def save_state(student: Student, optimizer: Any, path: Path, step: int, texts: int, spent: float) -> None:
    state = {
        "p": student.p, "head": student.head, "head_bias": student.head_bias, "optimizer": optimizer.state_dict(),
        "step": step, "texts": texts, "spent": spent,
    }  # fmt: skip
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    temporary.rename(path)


def finish(args: argparse.Namespace) -> None:
    """A contrastive finish on titles with their texts and docstrings with their code, beside the distillation."""
    home, device = args.home, device_of(args)
    store = Store.open(home)
    targets, _ = prepare_targets(args, store, device)
    args.start = home / "out" / args.name
    student = start_of(home, args, device)
    batches = Batches(store.own, store.own_lengths, device)
    sets = [read_set(home, name, "dev", args.few) for name in DEV]
    before = evaluate_encoder(student.encoder(), sets, "dev")
    optimizer = optimizer_of(student, args.finish_lr)
    began, step = time.time(), 0
    drawn = seeds(len(store.pairs), min(args.batch // 4, len(store.pairs)), 5)
    while (spent := time.time() - began) < args.seconds:
        for one in optimizer.param_groups:
            one["lr"] = args.finish_lr * max(
                1e-3, min(1.0, 10 * spent / args.seconds) * (1 - spent / args.seconds)
            )
        pairs = store.pairs[next(drawn)]
        rows = np.concatenate([pairs[:, 0], pairs[:, 1]])
        index = torch.from_numpy(rows).to(device)
        z = student.project(student.pooled(*batches.get(rows), student.used()))
        distance, divergence = losses(z, targets[index], index, args.tau)
        a, b = unit(z).chunk(2)
        scores = a @ b.T / args.tau
        alike = (index[: len(a), None] == index[None, : len(a)]) | (
            index[len(a) :, None] == index[None, len(a) :]
        )
        scores = scores.masked_fill(alike & ~torch.eye(len(a), dtype=torch.bool, device=device), -1e4)
        goal = torch.arange(len(a), device=device)
        contrast = (F.cross_entropy(scores, goal) + F.cross_entropy(scores.T, goal)) / 2
        loss = args.distance * distance + args.divergence * divergence + args.contrast * contrast
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        step += 1
        if args.steps and step >= args.steps:
            break
    after = evaluate_encoder(student.encoder(), sets, "dev")
    gain = float(np.mean([np.subtract(after[one], before[one]) for one in PAIRLESS]))
    kept = gain > 0.001
    about = {"steps": step, "gain": gain, "kept": kept, "before": before, "after": after}
    (home / "out" / "finish.json").write_text(json.dumps(about, indent=1))
    student.export(home / (f"{args.name}-finished" if not kept else f"out/{args.name}-finished"), about)
    print(table({"before": before, "finished": after}, DEV))
    say(f"{step} steps; sets without such pairs {gain:+.4f}:", "kept" if kept else "not kept")


def smoke(args: argparse.Namespace) -> None:
    """What the device computes against the CPU, and how fast, on random tokens: nothing but HOME/start is needed."""
    home, device = args.home, device_of(args)
    tokenizer = home / "start" / "tokenizer.json"
    rng = np.random.default_rng(0)
    lengths = np.concatenate(
        [rng.integers(1, 24, 2400), rng.integers(24, 200, 1500), rng.integers(200, 510, 196)]
    )
    lengths = rng.permutation(lengths)
    tokens = rng.integers(5, 30000, lengths.sum()).astype(np.uint16)
    few = np.arange(24)
    found = []
    for place in (torch.device("cpu"), device):
        one = Student(packaged(home), 12, place, tokenizer)
        pooled = one.pooled(*Batches(tokens, lengths, place).get(few), one.used())
        z = unit(one.project(pooled))
        (z @ z.T).square().sum().backward()
        found.append((z.detach().cpu(), [one.p[name].grad.flatten().cpu() for name in one.names]))
    cosines = (found[0][0] * found[1][0]).sum(1)
    grads = [
        F.cosine_similarity(a, b, dim=0).item() for a, b in zip(found[0][1], found[1][1]) if a.norm() > 1e-6
    ]
    say(
        f"student on {device} and CPU: cosine at least {cosines.min():.5f}; of gradients at least {min(grads):.4f}"
    )
    width, inner, dtype = 768, 3072, torch.float16 if device.type == "cuda" else torch.float32
    shapes = {
        "embeddings.word_embeddings.weight": (30522, width),
        "embeddings.position_embeddings.weight": (512, width),
    }
    for number in range(12):
        at = f"encoder.layer.{number}."
        for part in (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
        ):
            shapes |= {f"{at}{part}.weight": (width, width), f"{at}{part}.bias": (width,)}
        shapes |= {f"{at}intermediate.dense.weight": (inner, width), f"{at}intermediate.dense.bias": (inner,)}
        shapes |= {f"{at}output.dense.weight": (width, inner), f"{at}output.dense.bias": (width,)}
    w = {name: (torch.randn(shape, device=device) * 0.03).to(dtype) for name, shape in shapes.items()}
    for name in [
        "embeddings",
        *(f"encoder.layer.{n}.{p}" for n in range(12) for p in ("attention.output", "output")),
    ]:
        w |= {f"{name}.LayerNorm.weight": torch.ones(width, device=device, dtype=dtype)}
        w |= {f"{name}.LayerNorm.bias": torch.zeros(width, device=device, dtype=dtype)}
    w["encoder.relative_attention_bias.weight"] = torch.randn(32, 12, device=device).to(dtype)
    for length in (37, 128, 301):
        count = max(1, args.budget // length)
        ids = torch.randint(5, 30000, (count, length), device=device)
        kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with torch.inference_mode(), sdpa_kernel(kernels):
            out = forward_same_length(w, ids, 12, 1e-5)
            exact = forward_same_length({n: v.float() for n, v in w.items()}, ids[:2], 12, 1e-5)
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.time()
            float(forward_same_length(w, ids, 12, 1e-5).float().mean())
        spent = time.time() - began
        cosine = F.cosine_similarity(out[:2].float(), exact, dim=2).min().item()
        say(
            f"mpnet's shape, {length} tokens: cosine {cosine:.5f}, {count * length / spent / 1e6:.2f} M tokens/s"
        )
    if device.type != "cuda":
        return
    student = Student(packaged(home), 12, device, tokenizer)
    batches = Batches(tokens, lengths, device)
    several = [batches.get(rng.permutation(len(lengths))[: len(lengths) - 96 * n]) for n in range(3)]
    faster(student, lambda: passes(student, several))
    say(f"a pass of three batches: {sum(len(one[0]) for one in several) / 1e6:.2f} M tokens")


def passes(student: Student, several: Sequence[Any]) -> Any:
    """Forward and backward of some batches."""
    found = []
    for given in several:
        found.append(student.pooled(*given, student.used()))
        found[-1].square().mean().backward()
    for value in student.parameters():
        value.grad = None
    return torch.cat(found).detach()


def evaluate(args: argparse.Namespace) -> None:
    home, device = args.home, device_of(args)
    folder = student_folder(home)
    names = DEV if args.split == "dev" else TEST
    sets = [read_set(home, name, args.split, args.few) for name in names]
    results: dict[str, dict[str, tuple[float, float]]] = {
        "bm25": {
            one.name: (
                float(
                    np.mean(
                        [
                            ndcg(found, g)
                            for (found, _), g in zip(
                                one.splits[args.split].bm25, one.splits[args.split].grades
                            )
                        ]
                    )
                ),
            )
            * 2
            for one in sets
        }
    }
    more = {"bm25": ""}
    models: dict[str, Encode] = {
        "start": Student(packaged(home), 12, device, home / "start" / "tokenizer.json").encoder()
    }
    for path in sorted((home / "out").glob("*/about.json")):
        models[path.parent.name] = Student(
            read_export(path.parent), 12, device, folder / "tokenizer.json"
        ).encoder()
    for name in args.teachers:
        if f"teachers/{name}.npz.z" in expected(home):
            models[name] = teacher_encoder(home, name, device)
    for name, encode in models.items():
        began = time.time()
        results[name] = evaluate_encoder(encode, sets, args.split)
        more[name] = f"{sts(home, args.split, encode):.4f}"
        say(f"{name}: {time.time() - began:.1f} s")
    (home / "out" / f"{args.split}.json").write_text(json.dumps({"results": results, "sts": more}, indent=1))
    print(table(results, names, more))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "command", choices=("assemble", "teach", "weigh", "train", "finish", "evaluate", "smoke")
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=0, help="assemble: rows of each file, for a trial")
    parser.add_argument(
        "--few", type=int, default=0, help="so many questions, and twice as many passages, for a trial"
    )
    parser.add_argument("--teachers", nargs="+", default=["minilm", "bge", "e5", "mpnet"])
    parser.add_argument("--budget", type=int, default=1 << 18, help="teach: tokens of a batch")
    parser.add_argument("--weights", type=int, nargs=4, help="of " + ", ".join(ORDER))
    parser.add_argument("--name", default="v3", help="train: the folder in HOME/out")
    parser.add_argument("--start", type=Path, help="the folder of an export, instead of HOME/start")
    parser.add_argument(
        "--layers-of", choices=tuple(TEACHERS), help="train: start from this teacher's layers instead"
    )
    parser.add_argument(
        "--inner", type=int, default=1152, help="with --layers-of: neurons of a feed-forward part"
    )
    parser.add_argument("--seconds", type=float, default=840)
    parser.add_argument(
        "--until", type=float, help="train: stop at this time (seconds since 1970), --reserve before it"
    )
    parser.add_argument("--reserve", type=float, default=5)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many, for a trial")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--group", type=int, default=8, help="a text and its neighbours")
    parser.add_argument("--near", type=int, default=24, help="neighbours they are drawn from")
    parser.add_argument("--fit", type=int, default=131072, help="texts the projection is fitted on")
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument("--finish-lr", type=float, default=8e-5)
    parser.add_argument("--warm", type=float, default=0.02)
    parser.add_argument("--tau", type=float, default=0.05)
    parser.add_argument("--distance", type=float, default=1.0)
    parser.add_argument("--divergence", type=float, default=1.0)
    parser.add_argument("--contrast", type=float, default=0.2)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--save-every", type=float, default=60)
    parser.add_argument("--look-every", type=float, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = (
        "false" if args.command == "assemble" else "true"
    )  # that has processes
    globals()[args.command](args)


if __name__ == "__main__":
    main()
