"""Build the documentation as pages: `make site`, or `python docs/build_site.py` after `pip install '.[docs]'`.

Zensical renders a copy of docs/ with two more pages: the API from docstrings and the table of recipes from their
descriptions. Sources are parsed and never imported, so the site needs no torch. Blocks marked `math` hold LaTeX, as on
GitHub, and become MathML, which browsers draw without a script. Images get their size. The site fetches nothing from
elsewhere and is searched without a server. Any warning ends the build.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = {
    "Searching": ("search.retriever", "search.systems", "bm25.search", "indexes.base", "indexes.exact"),
    "Vectors": ("model.encoder", "model.packed", "vectors"),
    "Data": ("base.records", "collection", "store"),
    "Text": ("text.tokenizer", "text.layout", "text.passages", "text.sentences"),
    "Evaluation": ("measures", "measures.evaluator", "base.statistics"),
    "Training": ("train.objective", "train.batch", "train.step", "losses"),
    "Running": ("base.pipeline", "base.config", "base.workspace", "base.rng", "base.errors", "encoders"),
}
RECIPES = {
    "Pre-training": "recipes/*.toml",
    "Fine-tuning": "recipes/finetune/*.toml",
    "Query generation": "recipes/queries/*.toml",
    "The bundled encoders": "recipes/encoders/*.toml",
    "In seconds on a CPU": "recipes/smoke/*.toml",
}
IMAGE = re.compile(r'<img [^>]*?src="((?!https?:)[^"]+)"[^>]*>')
EQUATION = '<div class="equation" role="region" aria-label="Equation" tabindex="0">'  # it scrolls on a phone
MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
API_HEAD = """# API

This page lists the public classes and functions with their docstrings. Names that begin with an underscore, and modules
that are not listed, may change without notice. Most users need one class, [`Retriever`](#searchretriever).
"""
RECIPES_HEAD = """# Recipes

A recipe is a whole run as a TOML file. Each table is a stage; `"@name"` stands for the folder that an earlier stage
writes. `liebig show RECIPE` prints a recipe with every default, `liebig plan RECIPE` estimates its time, memory and
disk, and `liebig run RECIPE KEY=VALUE` runs it with a change. When you run a recipe again, it skips stages that are
up to date and resumes an interrupted one. The papers' recipes name data folders that you fill; those in `smoke/` bring
their own data.
"""


def build(out: Path) -> None:
    """Write the site into a folder, which is replaced."""
    with tempfile.TemporaryDirectory(prefix="liebig-site-") as scratch:
        home = Path(scratch)
        shutil.copytree(
            ROOT / "docs", home / "docs", ignore=shutil.ignore_patterns("*.py", "schema", "__pycache__")
        )
        shutil.copy(ROOT / "mkdocs.yml", home)
        for name, text in {"api.md": api_page(), "recipes.md": recipes_page()}.items():
            (home / "docs" / name).write_text(text, encoding="utf-8")
        for path in (home / "docs").rglob("*.md"):
            text = path.read_text(encoding="utf-8")
            changed = MATH.sub(lambda block: f"{EQUATION}{mathml(block[1])}</div>", text)
            if changed != text:
                path.write_text(changed, encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(home / "mkdocs.yml")]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        for path in (home / "site").rglob("*.html"):
            path.write_text(finished(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(home / "site", out)


def finished(html: str, folder: Path) -> str:
    """Give images their size, so that nothing moves while they load; a figure opens in full, for phones."""

    def sized(tag: re.Match[str]) -> str:
        width, height = image_size(folder / tag[1])
        image = f'{tag[0][:-1].rstrip(" /")} width="{width}" height="{height}">'
        return f'<a class="figure" href="{tag[1]}">{image}</a>' if tag[1].endswith(".svg") else image

    return IMAGE.sub(sized, html)


def image_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the head of a PNG or the viewBox of an SVG."""
    data = path.read_bytes()
    if path.suffix == ".png":
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    box = re.search(rb'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', data)
    assert box is not None, f"{path} has no viewBox"
    return round(float(box[1])), round(float(box[2]))


def mathml(latex: str) -> str:
    """A displayed equation, on one line so that Markdown leaves it alone."""
    from latex2mathml.converter import convert

    return convert(" ".join(latex.split()), display="block")


def recipes_page() -> str:
    """One table per folder of recipes."""
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
    """The listed modules with their public classes and functions."""
    parts = [API_HEAD]
    for title, names in MODULES.items():
        parts.append(f"\n## {title}\n")
        parts += [_module(name) for name in names]
    return "".join(parts)


def _module(name: str) -> str:
    tree = ast.parse(_source(name).read_text(encoding="utf-8"))
    head = f"\n### {name} {{ #{name.replace('.', '')} }}\n\n`liebig.{name}`: {_docstring(tree)}\n"
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
    text = _docstring(node)
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


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _flat(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation as pages.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "site", help="the folder to write, which is replaced"
    )
    build(parser.parse_args().out)
