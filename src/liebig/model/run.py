"""`liebig import`: a published checkpoint becomes a model folder."""

from __future__ import annotations

import sys
from dataclasses import asdict

from liebig.model.config import ImportConfig
from liebig.model.convert import import_checkpoint
from liebig.workspace import Folder


def run(config: ImportConfig, folder: Folder) -> None:
    """Converts the checkpoint and leaves what it turned out to be in `import.json`."""
    imported = import_checkpoint(
        config.source,
        folder.path,
        tokenizer=config.tokenizer,
        pooling=config.pooling,
        similarity=config.similarity,
        max_length=config.max_length,
    )
    folder.write_json("import.json", asdict(imported))
    head = ", with its head" if imported.heads else ""
    sys.stderr.write(f"{config.source} is taken for a {imported.kind} checkpoint{head}: {imported.says}\n")
