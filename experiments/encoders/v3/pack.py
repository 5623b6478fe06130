"""A student of `train.py` as the package carries it: int8 rows, a projection no wider than it must be, and a card.

    python experiments/encoders/v3/pack.py EXPORT TOKENIZER OUT --results test.json

EXPORT has the parts that `Student.export` wrote, TOKENIZER is the student's tokenizer.json. The student's projection
Wx + c to 768 numbers lies in the span of W's columns and c: the coordinates there have the same cosines. Of these 385
directions the smallest is dropped, so that a vector has as many numbers as the states, a multiple of what GPUs load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save_file
from torch import Tensor

LARGEST = 20_000_000  # bytes of the folder
DENSE = "2_Dense."
SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "mask", "pad", "sep", "unk")}
MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize"))
LENGTH, HEADS = 512, 12
CARD = Path(__file__).with_name("card.md")


def narrow(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """A projection to the coordinates in the span of what it reaches."""
    weight, bias = weight.double(), bias.double()
    directions, _, _ = torch.linalg.svd(torch.cat([weight, bias[:, None]], dim=1), full_matrices=False)
    reached = directions[:, : weight.shape[1]].T
    return (reached @ weight).float(), (reached @ bias).float()


def bert_config(stored: dict[str, Tensor]) -> dict[str, Any]:
    """The configuration that transformers reads, from the shapes of the weights."""
    words = stored["embeddings.word_embeddings.weight"]
    layers = {name.split(".")[2] for name in stored if name.startswith("encoder.layer.")}
    return {
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.0, "dtype": "float32",
        "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": words.shape[1], "initializer_range": 0.02,
        "intermediate_size": len(stored["encoder.layer.0.intermediate.dense.weight"]), "layer_norm_eps": 1e-12,
        "max_position_embeddings": LENGTH, "model_type": "bert", "num_attention_heads": HEADS,
        "num_hidden_layers": len(layers), "pad_token_id": 0, "tie_word_embeddings": True, "type_vocab_size": 2,
        "vocab_size": len(words),
    }  # fmt: skip


def results_table(path: Path, name: str) -> str:
    """The table of the card from what `train.py evaluate` wrote; `name` is what the student is called from now on."""
    content = json.loads(path.read_text().replace('"v3"', f'"{name}"'))
    sets = list(next(iter(content["results"].values())))
    rows = [
        "| nDCG@10, test | " + " | ".join([*sets, "mean"]) + " | STS-b |",
        "| --- |" + " ---: |" * (len(sets) + 2),
    ]
    for system, values in content["results"].items():
        for place, label in enumerate((system, f"{system} + bm25")):
            if system == "bm25" and place:
                continue
            cells = [values[one][place] for one in sets]
            mean = f"**{sum(cells) / len(cells):.4f}**"
            sts = content["sts"][system] if place == 0 else ""
            rows.append(
                f"| {label} | " + " | ".join(f"{cell:.3f}" for cell in cells) + f" | {mean} | {sts} |"
            )
    return "\n".join(rows)


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def pack(export: Path, tokenizer: Path, out: Path, results: Path) -> int:
    """Write the folder; its size in bytes."""
    stored = load(b"".join(path.read_bytes() for path in sorted(export.glob("student.safetensors.*"))))
    weight, bias = narrow(*(stored.pop(f"{DENSE}linear.{name}") for name in ("weight", "bias")))
    config = bert_config(stored)
    write_json(out / "config.json", config)
    save_file({f"bert.{name}": value for name, value in stored.items()}, out / "model.int8.safetensors")
    write_json(out / "modules.json", [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(MODULES)
    ])  # fmt: skip
    write_json(out / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})
    write_json(out / "sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})
    write_json(out / "special_tokens_map.json", SPECIAL)
    write_json(out / "tokenizer_config.json", {
        **SPECIAL, "clean_up_tokenization_spaces": False, "model_max_length": LENGTH,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    })  # fmt: skip
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    write_json(out / "1_Pooling" / "config.json", pooling)
    write_json(out / "2_Dense" / "config.json", {
        "in_features": weight.shape[1], "out_features": len(weight), "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    })  # fmt: skip
    projection = {"linear.weight": weight.half(), "linear.bias": bias.half()}
    save_file(projection, out / "2_Dense" / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "3_Normalize" / "config.json", {})
    (out / "tokenizer.json").write_bytes(tokenizer.read_bytes())  # which may be that very file
    card = CARD.read_text(encoding="utf-8").replace("RESULTS", results_table(results, out.name))
    (out / "README.md").write_text(card, encoding="utf-8")
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--results", type=Path, required=True, help="test.json of `train.py evaluate`")
    args = parser.parse_args()
    size = pack(args.export, args.tokenizer, args.out, args.results)
    print(f"{args.out}: {size:,} bytes{'' if size <= LARGEST else ', which is too large for the package'}")


if __name__ == "__main__":
    main()
