"""CoT-MAE: one side of a pair is masked and encoded; a shallow decoder rebuilds the other side from its vector.

Encoder: masked language modelling at 30 %. Decoder: the embeddings of the other side, masked at 45 %, with the
encoder's CLS in the first place, through two fresh layers (query-as-context, Eq. 8–11). Symmetric pairs go both
ways; of passage + query the passage is encoded and the query decoded. The causal decoder of the released
query-as-context code predicts each next token of the unmasked query instead. No contrast, so no cached gradients.
Cost: MLM on the encoder's side, and the decoder's layers and the vocabulary on the other.
"""

from __future__ import annotations

from liebig.methods.mlm import MaskedObjective, Reduction
from liebig.model.backbone import Backbone
from liebig.model.encoder import cls
from liebig.model.heads import CausalDecoder, CotmaeDecoder
from liebig.train.batch import Batch
from liebig.train.objective import Represented

ENCODER, DECODER = "encoder", "decoder"


class CotMAE(MaskedObjective):
    """Sequence i of the side "decoder" is rebuilt from sequence i of the side "encoder"."""

    def __init__(
        self,
        backbone: Backbone,
        decoder: CotmaeDecoder | CausalDecoder,
        *,
        decoder_weight: float = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(backbone, {ENCODER: 1.0, DECODER: decoder_weight}, reduction)
        self.decoder = decoder

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.masked_counts(ENCODER, batch.sides[ENCODER]) | self.masked_counts(
            DECODER, batch.sides[DECODER]
        )

    def represent(self, chunk: Batch) -> Represented:
        encoder, decoder = chunk.sides[ENCODER], chunk.sides[DECODER]
        late_TD = self.backbone(encoder.packed).last
        decoded_TD = self.decoder(self.backbone, cls(late_TD, encoder.packed), decoder.packed)
        terms = self.masked_terms(ENCODER, late_TD, encoder)
        return Represented(terms=terms | self.masked_terms(DECODER, decoded_TD, decoder))
