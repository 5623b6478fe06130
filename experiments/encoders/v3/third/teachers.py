"""The teachers: their vectors of every text, the mixture of them that the student learns, and each text's neighbours.

The teachers' vectors lie side by side, each centred by role (question or passage) and weighted, turned to their first
WIDTH principal directions.
"""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from judge import Encode, unit
from texts import PASSAGE, QUERY, Store, joined, say, tokenizer_at, tokens_again
from torch.nn.attention import SDPBackend, sdpa_kernel

CLS, SEP = 101, 102  # of bert-base-uncased
WIDTH = 768  # of the targets
TEACHERS: dict[str, dict[str, Any]] = {
    "minilm": {"heads": 12, "eps": 1e-12, "limit": 256, "pool": "mean", "prompts": ("", "")},
    "bge": {
        "heads": 12, "eps": 1e-12, "limit": 512, "pool": "cls",
        "prompts": ("", "Represent this sentence for searching relevant passages: "),
    },
    "mpnet": {"heads": 12, "eps": 1e-5, "limit": 384, "pool": "mean", "prompts": ("", "")},
}  # fmt: skip
ORDER = ("mpnet", "minilm", "bge")


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


def teach(home: Path, store: Store, budget: int, device: Any) -> dict[str, Any]:
    """Every teacher's vectors of every text, on the device."""
    vectors, rows = {}, []
    for name in TEACHERS:
        w = load_teacher(home, name, device, half(device))
        began = time.time()
        vectors[name] = teacher_vectors(
            w, name, store.bert, store.bert_lengths, store.roles, bert_prompts(home, name), budget, device
        )
        bad = int((~torch.isfinite(vectors[name])).any(1).sum())  # waits for the device
        spent = time.time() - began
        rows.append((name, spent, store.bert_lengths.sum() / spent / 1e6, bad))
        say(f"{name}: {spent:.1f} s, {len(store):,} vectors, {bad} not finite")
        del w
    print("| teacher | seconds | M tokens/s | not finite |\n| --- | --- | --- | --- |")
    for name, spent, speed, bad in rows:
        print(f"| {name} | {spent:.1f} | {speed:.2f} | {bad} |")
    return vectors


def half(device: Any) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32


def teacher_encoder(home: Path, name: str, device: Any) -> Encode:
    w = load_teacher(home, name, device, half(device))
    said = bert_prompts(home, name)

    def encode(texts: Sequence[str], role: int) -> Any:
        tokens, lengths = tokens_again(home / "student" / "bert-tokenizer.json", texts)
        return teacher_vectors(
            w, name, tokens, lengths, np.full(len(texts), role, np.uint8), said, 131072, device
        ).float()

    return encode


def role_means(vectors: Any, roles: Any) -> Any:
    """The mean vector of each role, 2 x width; of both where a role has none."""
    both = vectors.float().mean(0)
    return torch.stack(
        [
            vectors[roles == role].float().mean(0) if (roles == role).any() else both
            for role in (PASSAGE, QUERY)
        ]
    )


def targets_of(
    vectors: dict[str, Any], weights: Sequence[int], roles: Any, device: Any
) -> tuple[Any, dict[str, Any]]:
    """The teachers side by side, weighted, turned to their first WIDTH directions: N x WIDTH in half precision.

    The teachers' vectors are taken out of `vectors`, and their memory is used.
    """
    used = [(name, weight) for name, weight in zip(ORDER, weights) if weight]
    total = sum(weight for _, weight in used)
    roles = torch.from_numpy(roles).to(device)
    parts, means = [], {}
    for name, weight in used:
        side = torch.nan_to_num(vectors.pop(name))
        mean = role_means(side, roles)
        means[name] = mean.cpu()
        for begin in range(0, len(side), 1 << 18):
            part = slice(begin, begin + (1 << 18))
            side[part] = (
                unit(side[part].float() - mean[roles[part].long()]) * (weight / total) ** 0.5
            ).half()
        parts.append(side)
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
