"""What the parts of a layer are called, in transformers' modules and in the files of their weights, family by family.

The one place that knows it: the lean forms (`kernels/lean.py`) find the modules of a layer by these names, the encoder
in numpy (`numpy_model.py`) the tensors of a file. No torch.
"""

from __future__ import annotations

from typing import NamedTuple


class LayerNames(NamedTuple):
    """BERT's names; those of a layer are below the number of the layer in `layers`."""

    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    out: str = "attention.output.dense"
    first_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    second_norm: str = "output.LayerNorm"
    activation: str = "intermediate.intermediate_act_fn"
    heads: str = "attention.self.num_attention_heads"
    scale: str = "attention.self.scaling"
    first_dropout: str = "attention.output.dropout"  # before the first norm; "" where there is none
    second_dropout: str = "output.dropout"


BERT = LayerNames()
DISTILBERT = LayerNames(
    "transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
    "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm", "ffn.activation", "attention.n_heads",
    "attention.scaling", "", "ffn.dropout",
)  # fmt: skip
ROBERTA = ("roberta", "xlm-roberta", "camembert")  # their positions begin after the padding index
LAYER_NAMES = {**dict.fromkeys(("bert", "electra", *ROBERTA), BERT), "distilbert": DISTILBERT}
