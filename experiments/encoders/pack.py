"""An encoder as the package carries it: weights in half precision, with a card that says where it comes from.

    python experiments/encoders/pack.py runs/mini src/liebig/encoders/mini-v1 --name "liebig-mini v1" --results DIR

reads the last stage of a run of `recipes/encoders/mini.toml` (or those `--stages` names) with its log, and the
results that `evaluate.py` wrote. Nothing in the card is typed by hand but the words around the numbers.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

LARGEST = 16_000_000  # bytes of the folder
SMALLEST = 0.01  # of the longest direction
CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
license: apache-2.0
language: en
tags: [sentence-transformers, feature-extraction, sentence-similarity, liebig]
---

# {name}

{what}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("this folder")
vectors = model.encode(["a question", "a passage that answers it"])   # of length 1: compare by dot product
```

With Liebig it goes by the name `liebig:{folder}` wherever a model is asked for.

## Where it comes from

{steps}

The one command `liebig run {recipe}` makes it from data. Its data:

- 26,727 English Wikipedia articles of 2015 (CC BY-SA) and 99 English novels of the ELTeC collection (texts in the
  public domain, mark-up CC BY 4.0): masked language modelling, and the vocabulary.
- The same articles cut into texts of all lengths, and the training questions of SQuAD 1.1 (CC BY-SA 4.0) and Natural
  Questions (open version; its source states no licence), questions only: texts whose vectors were learnt.
- The teacher of these vectors is all-MiniLM-L6-v2 (Apache-2.0; 22.7 M parameters), which others trained on more than
  a billion pairs, SciFact's and Natural Questions' training data among them. What this encoder knows of relevance
  it has from there.

MedQuAD, SciFact, Cranfield and the Windows API documentation were left out altogether, questions and documents.

## Results

{results}

95 % bootstrap intervals in brackets; `experiments/encoders/README.md` has the commands and the values of every query.

## Limits

English, lower-cased; texts of {length} tokens, the rest is cut off. A small model of a small corpus: names and terms
that Wikipedia of 2015 hardly has are guessed from their pieces. The biases of its sources and of its teacher are in it.
Its masked-LM head is left from the first stage and no longer fits: it fills no masks.
"""


def halve(folder: Path, out: Path) -> None:
    """Copy a model folder with its weights in half precision, and vectors no longer than they must be."""
    shutil.copytree(folder, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("heads.safetensors"))
    narrow(out)
    for path in out.rglob("*.safetensors"):
        halves = {name: value.to(torch.float16).contiguous() for name, value in load_file(path).items()}
        save_file(halves, path, metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    # What to compute in, not what is stored: in float16 a CPU would be about 200 times slower.
    config.pop("torch_dtype", None)
    text = json.dumps({**config, "dtype": "float32"}, indent=2, sort_keys=True) + "\n"
    (out / "config.json").write_text(text)


def narrow(folder: Path) -> None:
    """Shorten the vectors to the directions a projection to more numbers than the encoder has can reach.

    Wx + c lies in the span of W's columns and c: its coordinates there have the same cosines. Directions of under
    a hundredth of the longest one's size are dropped.
    """
    for path in folder.glob("*_Dense"):
        config, kept = json.loads((path / "config.json").read_text()), load_file(path / "model.safetensors")
        if not (config["activation_function"].endswith("Identity") and config["bias"]):
            continue  # vectors that do not lie in that span, or with no constant to keep
        weight, bias = kept["linear.weight"].double(), kept["linear.bias"].double()
        directions, sizes, _ = torch.linalg.svd(
            torch.cat([weight, bias[:, None]], dim=1), full_matrices=False
        )
        reached = directions[:, sizes >= SMALLEST * sizes[0]].T
        shorter = {"linear.weight": (reached @ weight).float(), "linear.bias": (reached @ bias).float()}
        save_file(shorter, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps({**config, "out_features": len(reached)}) + "\n")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def stage_said(folder: Path) -> str:
    """What a stage of training did, from its recipe and log; its minutes where its times are there."""
    recipe = json.loads((folder / "manifest.json").read_text())["recipe"]
    log = lines(folder / "log.jsonl")
    last = [line for line in log if "tokens" in line][-1]
    held = [line["evaluation"] for line in log if "evaluation" in line][-1:]
    measured = ", ".join(f"{name} {value:.3f}" for name, value in (held[0] if held else {}).items())
    return (
        f"- `{recipe['objective']['kind']}`: {last['step']:,} steps, {last['tokens'] / 1e6:,.0f} M tokens"
        f"{pace(folder / 'timing.jsonl', last['tokens'])}, "
        f"peak rate {recipe['optim']['lr']:g}, seed {recipe['loop']['seed']}; held out: {measured}."
    )


def pace(times: Path, tokens: int) -> str:
    """Tokens a second, the median of the log's, and what they make in minutes."""
    if not times.exists():
        return ""
    rates = sorted(line["tokens_per_second"] for line in lines(times) if "tokens_per_second" in line)
    speed = rates[len(rates) // 2]
    return f" at {speed / 1e6:.1f} M tokens/s ({tokens / speed / 60:.1f} minutes)"


def described(folder: Path) -> str:
    """Size and use of the model, from its own files."""
    config = json.loads((folder / "config.json").read_text())
    parameters = sum(v.numel() for p in folder.rglob("*.safetensors") for v in load_file(p).values())
    dense = [json.loads((p / "config.json").read_text()) for p in folder.glob("*_Dense")]
    width = dense[-1]["out_features"] if dense else config["hidden_size"]
    return (
        f"A small English retriever: BERT with {config['num_hidden_layers']} layers of width {config['hidden_size']}, "
        f"{config['num_attention_heads']} heads and a WordPiece vocabulary of {config['vocab_size']:,} of its own; "
        f"{parameters / 1e6:.1f} M parameters, fp16. The mean of the tokens' states becomes a vector of {width} "
        "numbers, compared by cosine."
    )


def pack(run: Path, stages: Sequence[str], out: Path, name: str, recipe: str, results: Sequence[Path]) -> int:
    """Write the folder with its card; its size in bytes."""
    halve(run / stages[-1] / "model", out)
    if stages[-1] != "model":
        return size_of(out)  # a step on the way keeps the short card it has
    length = json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"]
    tables = "\n".join((path / "results.md").read_text() for path in results) or "Not evaluated."
    card = CARD.format(
        name=name, what=described(out), folder=out.name, recipe=recipe, results=tables, length=length,
        steps="\n".join(stage_said(run / stage) for stage in stages),
    )  # fmt: skip
    (out / "README.md").write_text(card, encoding="utf-8")
    return size_of(out)


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="liebig-mini")
    parser.add_argument("--recipe", default="recipes/encoders/mini.toml")
    parser.add_argument("--stages", nargs="+", default=["start", "model"])
    parser.add_argument("--results", type=Path, nargs="*", default=[])
    asked = parser.parse_args()
    size = pack(asked.run, asked.stages, asked.out, asked.name, asked.recipe, asked.results)
    print(f"{asked.out}: {size:,} bytes{'' if size <= LARGEST else ', which is too large for the package'}")


if __name__ == "__main__":
    main()
