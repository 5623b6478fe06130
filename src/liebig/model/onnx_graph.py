"""Models as ONNX graphs: traced, rounded to int8, and run without torch.

`OnnxEncoder` and `OnnxModel` run an encoder that `export/models.py` wrote; the rest is shared with cross-encoders
(`cross_encoder.py`). int8 rounds the weights of the matrix products channel by channel and their inputs as they come:
about half the time on a CPU, and nearly the same ranking. Sequences are padded within a row, which by then holds
sequences of about one length.

B sequences of a row, L its longest length.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from liebig.base.errors import MissingDependency, ModelError
from liebig.base.json_file import FileModel
from liebig.base.machine import threads as free_threads
from liebig.model.settings import (
    Floats,
    FolderReader,
    ModelSettings,
    PackedRow,
    Width,
    nothing,
    read_model_file,
)
from liebig.ragged import Ragged
from liebig.vectors.quantise import unit_length

if TYPE_CHECKING:
    from torch import nn

    from liebig.model.encoder import Encoder

GRAPH = "model.onnx"
ABOUT = "onnx.json"
WRITERS = ("onnx", "onnxscript", "onnxruntime")  # packages that writing a graph needs
OPSET = 18  # version of the operators
ADDED = "onnx"  # inside a model's folder: a graph for installations without torch
Longs = NDArray[np.int64]


def is_export(path: Path) -> bool:
    return (path / ABOUT).is_file()


def graph_folder(path: Path) -> Path | None:
    """Where a model's folder has a graph: it is an export, or one was added to it; None where there is none."""
    return next((folder for folder in (path, path / ADDED) if is_export(folder)), None)


def write_graph(
    graph: nn.Module,
    folder: Path,
    inputs: Sequence[str],
    output: str,
    *,
    int8: bool,
    **about: Any,
) -> None:
    """Write a module that takes integers of B x L into a folder, as `model.onnx`; `about` is said beside it."""
    needs(*WRITERS)
    for tensor in (
        *graph.parameters(),
        *graph.buffers(),
    ):  # maps of the folder's files, which Windows could not move
        tensor.data = tensor.data.clone()
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "plain.onnx"
        _trace(graph.eval(), plain, inputs, output)
        if int8:
            _quantise(plain, folder / GRAPH)
        else:
            _as_one_file(plain, folder / GRAPH)
    text = json.dumps({"int8": int8, "opset": OPSET, **about}, indent=2)
    (folder / ABOUT).write_text(text + "\n", encoding="utf-8")


def session(folder: Path, threads: int = 1) -> Any:
    """ONNX Runtime with an export's graph, on the CPU."""
    needs("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    try:
        return onnxruntime.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base beside this one
        said = str(error).partition("\n")[0]
        raise ModelError(
            f"the graph cannot be loaded: {said}", file=folder / GRAPH, fix="run liebig onnx again"
        ) from None


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


def _trace(graph: nn.Module, path: Path, inputs: Sequence[str], output: str) -> None:
    import torch

    example = {name: torch.full((2, 8), 3) for name in inputs}
    for name in {"attention_mask", "token_type_ids"} & set(inputs):
        example[name] = torch.ones(2, 8, dtype=torch.int64)
        example[name][1, 5:] = 0
    batch, length = torch.export.Dim("batch", min=1, max=65536), torch.export.Dim("length", min=2, max=8192)
    axes = {0: batch, 1: length}
    with warnings.catch_warnings(), _silent("torch.onnx"), torch.inference_mode():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            tuple(example.values()),
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=(axes,) * len(inputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None, "the exporter gives a program"
        program.save(str(path))


def _quantise(plain: Path, target: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = plain.with_name("ready.onnx")
    quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    # The quantiser transposes weights of a Gemm and leaves the shapes that the exporter noted: without them it infers.
    model = onnx.load(str(ready), load_external_data=False)
    del model.graph.value_info[:]
    onnx.save_model(model, str(ready))
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


def needs(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingDependency(package, "onnx", "a model for ONNX Runtime")


def padded(tokens: Ragged, pad: int) -> dict[str, Longs]:
    """A packed row as ids and mask, B x L."""
    sizes = tokens.lengths
    mask = np.arange(sizes.max()) < sizes[:, None]
    ids = np.full(mask.shape, pad, np.int64)
    ids[mask] = tokens.values
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}


# The same vectors without torch: a model exported to ONNX, optionally in int8, run by ONNX Runtime.
#
# A graph goes from token ids and mask to vectors; it lies in a model folder of the usual form, with the tokenizer and
# the settings that it needs, or was added to one.


class GraphFile(FileModel):
    """What a graph needs to be told: the width of its vectors, and the longest sequence."""

    width: Width
    positions: PositiveInt


class OnnxEncoder(FolderReader):
    """A model's folder with a graph, read without torch: tokenizer, prompts and lengths; `OnnxModel` is its forward."""

    def __init__(self, folder: Path) -> None:
        graph = graph_folder(folder)
        assert graph is not None, "a folder without a graph is read by NumpyEncoder"
        about, settings = read_model_file(graph / ABOUT, GraphFile), ModelSettings.read(folder)
        self.width = about.width
        super().__init__(settings, about.positions)


class OnnxModel:
    """An export with the interface that the engine needs; every core works on its own rows."""

    def __init__(
        self, folder: Path, encoder: Encoder | OnnxEncoder, *, unit: bool = False, threads: int | None = None
    ) -> None:
        self._session = session(folder)
        self._pad, self._unit, self.width = encoder.tokenizer.pad, unit, encoder.width
        self._threads = threads or free_threads()

    def start(
        self, packed: Iterable[PackedRow], count: int, done: Callable[[int], None] = nothing
    ) -> Callable[[], Floats]:
        """Vectors of `count` pieces; they are there when this returns."""
        out = np.empty((count, self.width), np.float32)

        def run_row(row: PackedRow) -> int:
            tokens, numbers = row
            vectors = self._session.run(["vectors"], padded(tokens, self._pad))[0]
            out[numbers] = unit_length(vectors) if self._unit else vectors
            return len(tokens.values)

        with ThreadPoolExecutor(self._threads) as pool:
            for size in pool.map(run_row, packed):
                done(size)
        return lambda: out
