"""Half of what training changed: the mean of an encoder's weights before and after it.

Where an encoder is a retriever already, a corpus teaches it the corpus and takes away some of what it knew: titles are
answered better, questions unlike titles sometimes worse. A model and what a short training made of it lie in one
valley, so their mean is a model too, and keeps more of both (Wortsman et al. 2022). `liebig average` takes folders of
one form; a start may have any that loads, so both are loaded here. Cost: both models in memory.
"""

from __future__ import annotations

import torch

from liebig.model.encoder import Encoder
from liebig.retriever.config import MeanConfig
from liebig.workspace import Folder

MODEL = "model"


def run(config: MeanConfig, folder: Folder) -> None:
    """Write the mean of both to `model/`."""
    encoder = Encoder.load(config.trained)
    before = dict(Encoder.load(config.start).named_parameters())
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.copy_((value + before[name]) / 2)
    encoder.save(folder.path / MODEL)
