"""The table of commands: name, module, one line of help, and the panel of `liebig --help` it stands in.

A command is one file of this folder and one line below. Its module is imported when the command is used, so the help
of `liebig` itself loads no torch. A module has either

- `STAGE`, a `pipeline.Stage` (config, `run(config, folder)`, an example): a command that reads files and writes one
  folder, and that recipes can name; or
- `command`, a function whose annotated parameters typer reads.

Another package adds commands through the entry point group `liebig.commands`: the entry's name is the command's, its
value the module, and the first line of the module's docstring the help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liebig.base.pipeline import Stage


@dataclass(frozen=True)
class Command:
    """What `liebig --help` shows of a command, and where its code is."""

    name: str
    module: str
    help: str
    panel: str
    stage: bool = False

    @property
    def does(self) -> str:
        """What it does in a few words: the help up to its first stop, in lower case."""
        words = re.split(r"[,;:.]", self.help)[0]
        return f"{words[0].lower()}{words[1:]}"

    def load(self) -> ModuleType:
        """Import the command's module."""
        return import_module(self.module)


BUILT_IN = (
    Command(
        "demo",
        "liebig.commands.demo",
        "Build and evaluate a search engine for the documentation of your own Python.",
        "Start here",
    ),
    Command(
        "build",
        "liebig.commands.build",
        "Build a retriever from documents without labels, and check what works best.",
        "Start here",
    ),
    Command(
        "search",
        "liebig.commands.search",
        "Ask a retriever or an index a question in the terminal.",
        "Start here",
    ),
    Command(
        "serve", "liebig.commands.serve", "Serve a retriever over HTTP, with a search page.", "Start here"
    ),
    Command(
        "mcp",
        "liebig.commands.mcp",
        "Let an assistant search a retriever: an MCP server over standard input and output.",
        "Start here",
    ),
    Command(
        "init",
        "liebig.commands.init",
        "Read data in any supported format into a collection and summarise it.",
        "Data",
        stage=True,
    ),
    Command(
        "convert",
        "liebig.commands.convert",
        "Write a collection or a run in another format.",
        "Data",
        stage=True,
    ),
    Command(
        "passages",
        "liebig.commands.passages",
        "Cut a collection's documents into passages of whole sentences.",
        "Data",
        stage=True,
    ),
    Command(
        "tokenizer",
        "liebig.commands.tokenizer",
        "Train a tokenizer on collections; the same texts give the same bytes.",
        "Data",
        stage=True,
    ),
    Command(
        "prepare",
        "liebig.commands.prepare",
        "Split a collection into sentences and tokens: the memory-mapped store that training reads.",
        "Data",
        stage=True,
    ),
    Command(
        "texts",
        "liebig.commands.texts",
        "Cut a collection into texts of many lengths, from passages to phrases, for learning a teacher's vectors.",
        "Data",
        stage=True,
    ),
    Command(
        "pretrain",
        "liebig.commands.pretrain",
        "Train an encoder on text without labels: Condenser, coCondenser, CoT-MAE, Contriever and others.",
        "Train",
        stage=True,
    ),
    Command(
        "finetune",
        "liebig.commands.finetune",
        "Train a retriever on labelled or mined data: contrastive, distillation, similarity; adaptive batches.",
        "Train",
        stage=True,
    ),
    Command(
        "average",
        "liebig.commands.average",
        "Average the weights of models trained from one start with different seeds.",
        "Train",
        stage=True,
    ),
    Command(
        "import",
        "liebig.commands.import_",
        "Convert a published Condenser, coCondenser or Contriever checkpoint into a model folder.",
        "Train",
        stage=True,
    ),
    Command(
        "queries train",
        "liebig.commands.queries_train",
        "Train a query generator on passages and their queries.",
        "Train",
        stage=True,
    ),
    Command(
        "queries generate",
        "liebig.commands.queries_generate",
        "Generate queries for every passage, with a generator, an API server, or from a file.",
        "Train",
        stage=True,
    ),
    Command(
        "queries inspect",
        "liebig.commands.queries_inspect",
        "Show generated queries beside their passages, with statistics.",
        "Train",
        stage=True,
    ),
    Command(
        "rerank train",
        "liebig.commands.rerank_train",
        "Train a cross-encoder on groups of one positive and several negatives.",
        "Train",
        stage=True,
    ),
    Command(
        "rerank score",
        "liebig.commands.rerank_score",
        "Rerank a run, or write soft labels of training groups, with one or more cross-encoders.",
        "Train",
        stage=True,
    ),
    Command(
        "mine",
        "liebig.commands.mine",
        "Mine hard negatives from runs, and count what was dropped and why.",
        "Train",
        stage=True,
    ),
    Command(
        "bm25",
        "liebig.commands.bm25",
        "Index a collection's passages for BM25, or add and remove passages.",
        "Search",
        stage=True,
    ),
    Command(
        "encode",
        "liebig.commands.encode",
        "Encode passages or queries into shards of vectors; resumes at the next shard.",
        "Search",
        stage=True,
    ),
    Command(
        "onnx",
        "liebig.commands.onnx",
        "Export a model for ONNX Runtime, in fp32 or int8.",
        "Search",
        stage=True,
    ),
    Command(
        "index",
        "liebig.commands.index",
        "Index vectors: exact by default, FAISS or Milvus for what exceeds one machine's memory.",
        "Search",
        stage=True,
    ),
    Command(
        "retrieve",
        "liebig.commands.retrieve",
        "Search all queries of a collection with a retriever, or with BM25, vectors or both, and write TREC runs.",
        "Search",
        stage=True,
    ),
    Command(
        "fuse",
        "liebig.commands.fuse",
        "Fuse several runs of the same queries into one, by ranks or by scores.",
        "Search",
        stage=True,
    ),
    Command(
        "evaluate",
        "liebig.commands.evaluate",
        "Evaluate a run or a model on a collection, with confidence intervals, beside the papers' figures.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "compare",
        "liebig.commands.compare",
        "Compare systems pairwise on the same queries, with corrected significance tests.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "curve",
        "liebig.commands.curve",
        "Plot evaluations of models trained on more and more labels.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "label",
        "liebig.commands.label",
        "Judge in a browser which passages answer your questions.",
        "Evaluate",
    ),
    Command(
        "report",
        "liebig.commands.report",
        "Write one self-contained HTML page about a folder of results.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "analyse attention",
        "liebig.commands.analyse_attention",
        "Entropy of CLS attention, layer by layer, of several models (Condenser, Figure 2).",
        "Evaluate",
        stage=True,
    ),
    Command(
        "analyse neighbours",
        "liebig.commands.analyse_neighbours",
        "Measure how far the neighbourhoods of two retrievers agree (coCondenser, Equation 17).",
        "Evaluate",
        stage=True,
    ),
    Command(
        "analyse space",
        "liebig.commands.analyse_space",
        "Alignment, uniformity, isotropy, hubness and effective dimension of a vector space.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "analyse errors",
        "liebig.commands.analyse_errors",
        "Show which queries one system wins and loses against another, with their texts.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "analyse leakage",
        "liebig.commands.analyse_leakage",
        "Detect evaluation texts that leaked into the pre-training corpus.",
        "Evaluate",
        stage=True,
    ),
    Command(
        "run",
        "liebig.commands.run",
        "Run the stages of a recipe; skip what is up to date, resume what was interrupted.",
        "Operate",
    ),
    Command(
        "show",
        "liebig.commands.show",
        "Print a recipe with every default filled in, or the schema of a command's recipe.",
        "Operate",
    ),
    Command(
        "plan",
        "liebig.commands.plan",
        "Estimate time, memory, disk and cost of a recipe before running it.",
        "Operate",
    ),
    Command(
        "update",
        "liebig.commands.update",
        "Take new, changed and deleted documents into a retriever.",
        "Operate",
    ),
    Command(
        "export", "liebig.commands.export", "Write a retriever or a model for other software.", "Operate"
    ),
    Command(
        "doctor", "liebig.commands.doctor", "Check this installation and a retriever's folder.", "Operate"
    ),
)
METAVARS = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "Path": "PATH"}  # the help's words for types
GROUPS = {
    "analyse": "Look into models, vectors and results.",
    "queries": "Train query generators, generate queries and inspect them.",
    "rerank": "Train cross-encoders and score with them.",
}


@cache
def commands() -> dict[str, Command]:
    """Every command by its name: those of Liebig, and those that installed packages add."""
    from importlib.metadata import entry_points

    table = {command.name: command for command in BUILT_IN}
    for entry in sorted(entry_points(group="liebig.commands"), key=lambda entry: entry.name):
        module = import_module(entry.module)
        summary = (module.__doc__ or "").strip().partition("\n")[0]
        table.setdefault(
            entry.name, Command(entry.name, entry.module, summary, "Added", hasattr(module, "STAGE"))
        )
    return table


class Stages(Mapping[str, "Stage"]):
    """The commands that recipes can name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Stage:
        command = commands()[name]
        if not command.stage:
            raise KeyError(name)
        stage: Stage = command.load().STAGE
        return stage

    def __iter__(self) -> Iterator[str]:
        return (name for name, command in commands().items() if command.stage)

    def __len__(self) -> int:
        return sum(command.stage for command in commands().values())


STAGES = Stages()
