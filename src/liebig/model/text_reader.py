"""How a model's folder reads texts, without its weights, and without torch where its `config.json` says enough."""

from __future__ import annotations

from pathlib import Path

from liebig.base.hub import model_folder
from liebig.model.settings import FolderReader, ModelSettings, TransformerFile, check_folder, read_model_file


def text_reader(source: str | Path) -> FolderReader:
    """How the model of a folder reads texts: the tokenizer, prompts and lengths of its encoder, without the weights."""
    settings = ModelSettings.read(model_folder(source))
    check_folder(settings.transformer)
    file = read_model_file(settings.transformer / "config.json", TransformerFile)
    if file.model_type in ("bert", "distilbert") and file.max_position_embeddings is not None:
        return FolderReader(settings, file.max_position_embeddings)
    from liebig.model.families import family_of  # torch and transformers, which take seconds
    from liebig.model.loading import quiet, read_config, readable

    with quiet(), readable(settings.transformer):
        config = read_config(settings.transformer)
        positions = family_of(config.model_type).room(config)
    return FolderReader(settings, positions)
