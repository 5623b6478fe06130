"""Pages of the site that are made while it is built: the API from docstrings, the recipes from their descriptions.

A hook of mkdocs (see mkdocs.yml). Sources are parsed, never imported, so a page costs milliseconds and needs no torch.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
MODULES = {
    "Searching": ("retriever.retriever", "search.systems", "search.fuse", "search.fold", "lexical.bm25"),
    "Vectors": (
        "model.encoder",
        "model.packed",
        "model.pooling",
        "index.base",
        "index.opening",
        "index.exact",
    ),
    "Data": ("records", "data.collection", "data.store", "text.tokenizer", "text.passages", "text.views"),
    "Evaluation": ("measures", "measures.engine", "measures.names", "statistics"),
    "Training": (
        "train.objective",
        "train.batch",
        "train.step",
        "losses",
        "losses.contrastive",
        "losses.mlm",
    ),
    "Running": ("pipeline", "config", "workspace", "progress", "rng", "errors", "encoders"),
}
RECIPES = {
    "Pre-training": "recipes/*.toml",
    "Fine-tuning": "recipes/finetune/*.toml",
    "Query generation": "recipes/queries/*.toml",
    "The bundled encoders": "recipes/encoders/*.toml",
    "In seconds on a CPU": "recipes/smoke/*.toml",
}
API_HEAD = """# API

What the modules offer, from their docstrings. Names that begin with an underscore, and modules that are not listed, are
Liebig's own business and may change. Most people need one class, [`Retriever`](#retrieverretriever).
"""
RECIPES_HEAD = """# Recipes

Whole runs as TOML: a table a stage, `"@name"` for the folder that an earlier stage writes. `liebig show RECIPE` prints
a recipe with every default, `liebig run RECIPE --plan` what it would take, `liebig run RECIPE KEY=VALUE` runs it with a
change. Run again, it skips what is up to date and takes up what was interrupted. The papers' recipes name data folders
that you fill; those in `smoke/` bring their own.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the made pages to the site's files."""
    from mkdocs.structure.files import File

    for name, text in {"api.md": api_page(), "recipes.md": recipes_page()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def recipes_page() -> str:
    """A table a folder of recipes."""
    parts = [RECIPES_HEAD]
    for title, pattern in RECIPES.items():
        rows = [_recipe_row(path) for path in sorted(ROOT.glob(pattern))]
        if rows:
            parts.append(f"\n## {title}\n\n| recipe | what it is |\n| --- | --- |\n" + "".join(rows))
    return "".join(parts)


def _recipe_row(path: Path) -> str:
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    return f"| `{path.relative_to(ROOT).as_posix()}` | {tree.get('description', '')} |\n"


def api_page() -> str:
    """The listed modules, with their public classes and functions."""
    parts = [API_HEAD]
    for title, names in MODULES.items():
        parts.append(f"\n## {title}\n")
        parts += [_module(name) for name in names]
    return "".join(parts)


def _module(name: str) -> str:
    tree = ast.parse(_source(name).read_text(encoding="utf-8"))
    head = f"\n### {name} {{ #{name.replace('.', '')} }}\n\n`liebig.{name}`: {_told(tree)}\n"
    return head + "".join(_member(node, "") for node in tree.body)


def _source(name: str) -> Path:
    path = ROOT / "src" / "liebig" / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _member(node: ast.stmt, owner: str) -> str:
    """A public function, or a class with its public methods."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith(
        "_"
    ):
        return ""
    text = _told(node)
    if isinstance(node, ast.ClassDef):
        inner = "".join(_member(child, f"{node.name}.") for child in node.body)
        return f"\n#### class {node.name}\n\n{text}\n{inner}" if text or inner else ""
    return f"\n- **`{owner}{node.name}{_signature(node)}`** {_flat(text)}\n" if text else ""


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    if any(isinstance(mark, ast.Name) and "property" in mark.id for mark in node.decorator_list):
        return returns.replace(" -> ", ": ", 1)
    arguments = ast.unparse(node.args)
    own = [part for part in arguments.split(", ") if part not in ("self", "cls")]
    return f"({', '.join(own)}){returns}"


def _told(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _flat(text: str) -> str:
    return " ".join(text.split())
