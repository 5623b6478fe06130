"""The table of stages: by subject, the name and what it does in one line.

A stage reads files and writes one folder. It is one file of this folder, named like the stage, and one line below. The
file has `STAGE`, a `pipeline.Stage`: a config, `run(config, folder)` and an example. Every stage is a command of the
same name, and recipes can name it. A stage is imported when it is used, so the help of `liebig` loads no torch.

Another package adds stages, as it adds other commands, through the entry point group `liebig.commands`: the entry's
name is the stage's, its value the module, and the first line of the module's docstring says what it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liebig.base.pipeline import Stage

BUILT_IN = {
    "Data": {
        "init": "Read data in any supported format into a collection and summarise it.",
        "convert": "Write a collection or a run in another format.",
        "passages": "Cut a collection's documents into passages of whole sentences.",
        "tokenizer": "Train a tokenizer on collections; the same texts give the same bytes.",
        "prepare": "Split a collection into sentences and tokens: the memory-mapped store that training reads.",
    },
    "Train": {
        "pretrain": "Train an encoder on text without labels: Condenser, coCondenser, CoT-MAE, Contriever and others.",
        "finetune": "Train a retriever on labels: contrastive, distillation, similarity; random or adaptive batches.",
        "average": "Average the weights of models trained from one start with different seeds.",
        "import": "Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder.",
        "queries train": "Train a query generator on passages and their queries.",
        "queries generate": "Generate queries for every passage, with a generator or from a file.",
        "rerank train": "Train a cross-encoder on groups of one positive and several negatives.",
        "rerank score": "Rerank a run, or write soft labels of training groups, with one or more cross-encoders.",
        "mine": "Mine hard negatives from runs, and count what was dropped and why.",
    },
    "Search": {
        "bm25": "Index a collection's passages for BM25, or add and remove passages.",
        "encode": "Encode passages or queries into shards of vectors; resumes at the next shard.",
        "onnx": "Export a model for ONNX Runtime, in fp32 or int8.",
        "index": "Index vectors: exact by default, FAISS for what exceeds memory.",
        "retrieve": "Search all queries of a collection with a retriever, BM25, vectors or both, and write TREC runs.",
    },
    "Evaluate": {
        "evaluate": "Evaluate a run or a model on a collection, with confidence intervals, beside the papers' figures.",
        "compare": "Compare systems pairwise on the same queries, with corrected significance tests.",
        "report": "Write one self-contained HTML page about a folder of results.",
        "analyse attention": "Entropy of CLS attention, layer by layer, of several models (Condenser, Figure 2).",
        "analyse neighbours": "Measure how far the neighbourhoods of two retrievers agree (coCondenser, Equation 17).",
        "analyse space": "Alignment, uniformity, isotropy, hubness and effective dimension of a vector space.",
    },
}
SUMMARIES = {name: summary for stages in BUILT_IN.values() for name, summary in stages.items()}


def module_of(name: str) -> str:
    """The file of a stage or a command: `queries_train` of `queries train`."""
    name = name.replace(" ", "_")
    return f"{name}_" if iskeyword(name) else name


@cache
def added() -> dict[str, ModuleType]:
    """The modules of stages and other commands that installed packages add, by name."""
    from importlib.metadata import entry_points

    entries = sorted(entry_points(group="liebig.commands"), key=lambda entry: entry.name)
    return {entry.name: import_module(entry.module) for entry in entries if entry.name not in SUMMARIES}


def summary_of(module: ModuleType) -> str:
    """What an added module does: the first line of its docstring."""
    return (module.__doc__ or "").strip().partition("\n")[0]


def does(name: str) -> str:
    """What a stage does in a few words: its line up to the first stop, in lower case."""
    words = re.split(r"[,;:.]", SUMMARIES.get(name) or summary_of(added()[name]))[0]
    return f"{words[0].lower()}{words[1:]}"


class Stages(Mapping[str, "Stage"]):
    """The stages that recipes can name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Stage:
        if name not in self:
            raise KeyError(name)
        module = import_module(f"liebig.stages.{module_of(name)}") if name in SUMMARIES else added()[name]
        stage: Stage = module.STAGE
        return stage

    def __contains__(self, name: object) -> bool:  # imports no stage
        return name in SUMMARIES or (name in added() and hasattr(added()[name], "STAGE"))

    def __iter__(self) -> Iterator[str]:
        yield from SUMMARIES
        yield from (name for name, module in added().items() if hasattr(module, "STAGE"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


STAGES = Stages()
