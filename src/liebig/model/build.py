"""The backbone a recipe asks for: from a folder, from the hub, or new."""

from __future__ import annotations

from liebig.errors import ModelError
from liebig.model.backbone import Backbone
from liebig.model.config import BackboneConfig, FolderBackbone, HubBackbone
from liebig.text.tokenizer import Tokenizer


def make_backbone(choice: BackboneConfig, tokenizer: Tokenizer, seed: int) -> Backbone:
    """The chosen backbone; its vocabulary must have room for the tokenizer's. The seed is for new weights only."""
    if isinstance(choice, FolderBackbone):
        backbone = Backbone.load(choice.path)
    elif isinstance(choice, HubBackbone):
        backbone = Backbone.load(choice.name)
    else:
        sizes = choice.model_dump(exclude={"kind"})
        backbone = Backbone.create(**sizes, vocab_size=tokenizer.vocab_size, pad=tokenizer.pad, seed=seed)
    if tokenizer.vocab_size > backbone.vocab_size:
        raise ModelError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the backbone only {backbone.vocab_size}",
            fix="prepare the corpus with the backbone's own tokenizer",
        )
    return backbone
