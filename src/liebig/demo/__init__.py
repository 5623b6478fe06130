"""`liebig demo`: the documentation of your own Python becomes a collection, a vocabulary and a token store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from liebig import pipeline
from liebig.data.store import TokenStore
from liebig.pipeline import Stage

RECIPE = {
    "collection": {"kind": "init", "paths": ["stdlib:"]},
    "tokenizer": {"collections": ["@collection"], "vocab_size": 8192},
    "store": {"kind": "prepare", "collection": "@collection", "tokenizer": "@tokenizer"},
}


def run(table: Mapping[str, Stage], out: Path, say: Callable[[str], None]) -> None:
    """Run the demo's stages and sum up what is there."""
    pipeline.run(pipeline.plan_stages(table, RECIPE, out), say)
    counts = json.loads((out / "collection" / "summary.json").read_text())["counts"]
    store = TokenStore.open(out / "store")
    say("")
    say(f"{counts['documents']:,} documents of the standard library, {len(store.tokens):,} tokens,")
    say(f"{len(store.sentences) - 1:,} sentences, a vocabulary of {store.tokenizer.vocab_size:,}: {out}")
    say("")
    say("Next:")
    say("  liebig show --schema pretrain                      what a pre-training recipe can say")
    say("  liebig run recipes/smoke/condenser.toml            Condenser in seconds on a CPU")
    say("  liebig init YOUR_FOLDER --out runs/collection      the same with your own documents")
