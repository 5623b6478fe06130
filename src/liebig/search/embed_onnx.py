"""The same vectors without torch: a model exported to ONNX, optionally in int8, run by ONNX Runtime.

The export holds backbone, pooling and what follows as one graph from token ids and mask to vectors, and lies in a model
folder of the usual form, with the tokenizer and the settings that it needs. int8 rounds the weights of the
matrix products channel by channel and their inputs as they come: about half the time on a CPU, and nearly the same
ranking. Sequences are padded within a row, which by then holds sequences of about one length.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from liebig.base.errors import MissingDependency, ModelError
from liebig.base.machine import threads as free_threads
from liebig.model.encoder import Encoder
from liebig.model.loading import quiet
from liebig.ragged import Ragged

if TYPE_CHECKING:
    from liebig.search.embed import PackedRow

GRAPH = "model.onnx"
ABOUT = "onnx.json"
Floats = NDArray[np.float32]
Longs = NDArray[np.int64]


def is_export(path: Path) -> bool:
    """Whether a folder is an export."""
    return (path / ABOUT).is_file()


class Graph(nn.Module):
    """Token ids and mask (B x L) to vectors (B x D), with transformers' own padded forward."""

    def __init__(self, body: nn.Module, encoder: Encoder, takes_types: bool) -> None:
        super().__init__()
        self.body, self.tail, self.pooling, self.takes_types = (
            body,
            encoder.tail,
            encoder.pooling,
            takes_types,
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        extra = {"token_type_ids": torch.zeros_like(input_ids)} if self.takes_types else {}
        states_BLD = self.body(input_ids=input_ids, attention_mask=attention_mask, **extra).last_hidden_state
        if self.pooling == "cls":
            x_BD = states_BLD[:, 0]
        else:
            mask = attention_mask.to(states_BLD.dtype)[:, :, None]
            x_BD = (states_BLD * mask).sum(1) / mask.sum(1)
        for part in self.tail:
            x_BD = part(x_BD)
        return x_BD


def export(encoder: Encoder, folder: Path, *, int8: bool = True, opset: int = 18) -> None:
    """Write a model for ONNX Runtime into a folder, with tokenizer and settings."""
    if encoder.pooling not in ("cls", "mean"):
        raise ModelError(f"{encoder.pooling} pooling cannot be exported", fix="use cls or mean")
    if not encoder.pool_prompt:
        raise ModelError("a model that leaves its prompt out of pooling cannot be exported")
    _needs("onnx", "onnxscript", "onnxruntime")
    encoder.save(folder)
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "plain.onnx"
        _trace(_graph(encoder, folder), plain, opset)
        if int8:
            _quantise(plain, folder / GRAPH)
        else:
            _as_one_file(plain, folder / GRAPH)
    about = {"int8": int8, "opset": opset, "width": encoder.width}
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _graph(encoder: Encoder, folder: Path) -> Graph:
    from transformers import AutoModel

    with quiet():  # heads that are left out, and a pooler that is not used
        body = AutoModel.from_pretrained(str(folder), attn_implementation="eager", local_files_only=True)
    body = body.eval().float()
    takes_types = "token_type_ids" in body.forward.__code__.co_varnames
    return Graph(body, encoder, takes_types).eval()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Without a logger's warnings: the exporter's are of operators that no encoder has."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _trace(graph: Graph, path: Path, opset: int) -> None:
    ids, mask = torch.full((2, 8), 3), torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    batch, length = torch.export.Dim("batch", min=1, max=65536), torch.export.Dim("length", min=2, max=8192)
    axes = {0: batch, 1: length}
    with warnings.catch_warnings(), _silent("torch.onnx"), torch.inference_mode():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            (ids, mask),
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_shapes=(axes, axes),
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
        assert program is not None, "the exporter gives a program"
        program.save(str(path))


def _quantise(plain: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = plain.with_name("ready.onnx")
    quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    quantize_dynamic(
        str(ready),
        str(target),
        weight_type=QuantType.QInt8,
        per_channel=True,
        # Seven bits: without VNNI instructions the products of eight-bit numbers overflow their 16-bit sums.
        reduce_range=True,
        op_types_to_quantize=["MatMul", "Gemm"],
    )


def _as_one_file(plain: Path, target: Path) -> None:
    import onnx

    model = onnx.load(str(plain))
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size < 2**31 - 2**20:
        onnx.save_model(model, str(target))
    else:
        onnx.save_model(model, str(target), save_as_external_data=True, location=target.name + ".data")


def _needs(*packages: str) -> None:
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise MissingDependency(package, "onnx", "a model for ONNX Runtime")


class OnnxModel:
    """An export, as the engine wants a model; every core has rows of its own."""

    def __init__(
        self, folder: Path, encoder: Encoder, *, unit: bool = False, threads: int | None = None
    ) -> None:
        _needs("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common base beside this one
            said = str(error).partition("\n")[0]
            raise ModelError(
                f"the graph cannot be loaded: {said}", file=folder / GRAPH, fix="run liebig onnx again"
            ) from None
        self._pad, self._unit, self.width = encoder.tokenizer.pad, unit, encoder.width
        self._threads = threads or free_threads()

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = lambda tokens: None
    ) -> Callable[[], Floats]:
        """Vectors of `count` pieces; they are there when this returns."""
        out = np.empty((count, self.width), np.float32)

        def run_row(row: PackedRow) -> int:
            tokens, numbers = row
            vectors = self._session.run(["vectors"], padded(tokens, self._pad))[0]
            out[numbers] = F.normalize(torch.from_numpy(vectors), dim=-1).numpy() if self._unit else vectors
            return len(tokens.values)

        with ThreadPoolExecutor(self._threads) as pool:
            for size in pool.map(run_row, packed):
                done(size)
        return lambda: out


def padded(tokens: Ragged, pad: int) -> Mapping[str, Longs]:
    """A packed row as ids and mask, B x L."""
    sizes = tokens.lengths
    mask = np.arange(sizes.max()) < sizes[:, None]
    ids = np.full(mask.shape, pad, np.int64)
    ids[mask] = tokens.values
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
