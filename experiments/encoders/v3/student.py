"""The student: a BERT encoder with mean pooling whose matrices are used as int8 rows, and where it starts from.

T tokens of a batch, B its texts, H width of the states.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from judge import Encode, unit
from texts import student_folder, tokens_again

OWN_CLS, OWN_SEP = 2, 3
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


def packaged(folder: Path) -> dict[str, Any]:
    """The weights of a packed encoder."""
    from safetensors.torch import load_file

    dense = load_file(folder / "2_Dense" / "model.safetensors")
    return {
        **{
            name.removeprefix("bert."): value
            for name, value in read_int8(folder / "model.int8.safetensors").items()
        },
        **{f"2_Dense.{name}": value.float() for name, value in dense.items()},
    }


def start_of(home: Path, device: Any) -> Student:
    """The package's encoder."""
    tokenizer = student_folder(home) / "tokenizer.json"
    if tokenizer.read_bytes() != (home / "start" / "tokenizer.json").read_bytes():
        raise SystemExit(f"{tokenizer} is not the tokenizer that the start has")
    return Student(packaged(home / "start"), 12, device, tokenizer)


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
