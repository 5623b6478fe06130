"""The table of commands: name and one line of help, by the panel of `liebig --help`; every stage is one too.

A command that is not a stage is one file of this folder, named like the command, and one line below. The file has
`command`, a function whose annotated parameters typer reads. It is imported when the command is used, so the help of
`liebig` itself loads no torch. The table of stages is in `liebig/stages/__init__.py`, which also says how another
package adds commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

from liebig import stages
from liebig.stages import added, module_of, summary_of

PANELS = ("Start here", "Data", "Train", "Search", "Evaluate", "Operate")


@dataclass(frozen=True)
class Command:
    """What `liebig --help` shows of a command, and where its code is."""

    name: str
    module: str
    help: str
    panel: str
    stage: bool = False

    def load(self) -> ModuleType:
        return import_module(self.module)


OWN = {
    "Start here": {
        "demo": "Build and evaluate a search engine for the documentation of your own Python.",
        "build": "Build a retriever from documents without labels, and check what works best.",
        "search": "Ask a retriever a question in the terminal.",
        "ask": "Answer a question from the documents with a language model, which cites them.",
        "serve": "Serve a retriever over HTTP, with a search page.",
        "mcp": "Let an assistant search a retriever: an MCP server over standard input and output.",
        "mcp install": "Put a retriever into the settings of an assistant.",
    },
    "Evaluate": {
        "reproduce": "List, plan or run the tables of the papers.",
        "check": "Check which system of a retriever answers best, without building it again.",
        "label": "Judge in a browser which passages answer your questions.",
    },
    "Operate": {
        "run": "Run the stages of a recipe; skip what is up to date, resume what was interrupted.",
        "merge": "Put the parts of a stage together that were made with --part.",
        "show": "Print a recipe with every default filled in, or the schema of a command's recipe.",
        "plan": "Estimate time, memory, disk and cost of a recipe before running it.",
        "update": "Update a retriever after documents were added, changed or deleted.",
        "push": "Put a retriever into Milvus or OpenSearch, whole, and search it there.",
        "export": "Write a retriever or a model for other software.",
        "doctor": "Check this installation and a retriever's folder.",
    },
}
BUILT_IN = tuple(
    sorted(
        (
            Command(name, f"{package}.{module_of(name)}", help, panel, stage=package == "liebig.stages")
            for package, table in (("liebig.commands", OWN), ("liebig.stages", stages.BUILT_IN))
            for panel, lines in table.items()
            for name, help in lines.items()
        ),
        key=lambda command: PANELS.index(command.panel),
    )
)
METAVARS = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "Path": "PATH"}  # the help's words for types
GROUPS = {
    "analyse": "Look into models, vectors and results.",
    "queries": "Train query generators and generate queries.",
    "rerank": "Train cross-encoders and score with them.",
}


@cache
def commands() -> dict[str, Command]:
    """Every command by its name: those of Liebig, and those that installed packages add."""
    table = {command.name: command for command in BUILT_IN}
    for name, module in added().items():
        stage = hasattr(module, "STAGE")
        table.setdefault(name, Command(name, module.__name__, summary_of(module), "Added", stage))
    return table
