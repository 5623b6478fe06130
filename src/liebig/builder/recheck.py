"""The check of a build on a folder that is there already: which system answers best now, perhaps by new questions.

Nothing in the folder changes. Questions are made from its passages as a build makes them, and asked of a pool that is
encoded by the folder's own encoder, in a temporary folder; a user's questions are asked beside them. The vectors of all
passages are those of the folder. Cost: the pool encoded once, one to three thousand passages, and its sentences.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from liebig.base.errors import RecipeError
from liebig.base.progress import Whole
from liebig.builder import check
from liebig.builder.build import compare_systems, set_exam, start_of
from liebig.builder.build_config import BuildConfig
from liebig.builder.judge import SystemChoice
from liebig.builder.runner import Builder
from liebig.builder.signs import signs_of
from liebig.builder.steps import IndexedCorpus
from liebig.collection import Collection
from liebig.search import retriever_folder as description

PHASES = {
    "questions": "Make questions about the documents, to check systems with",
    "check": "Check which system answers best",
}


def recheck(folder: Path, questions: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """What `checks.json` would have after a build today, and in `served` the name of what the folder answers with."""
    now = description.read(folder)
    if now.index is None or now.bm25 is None or now.model is None:
        raise RecipeError(
            "the folder has one index only, so there is nothing to compare",
            file=folder,
            fix="build it with an encoder that reads these texts: --model FOLDER",
        )
    config = BuildConfig(
        sources=now.more.get("sources") or (str(folder),),
        model=str((folder / now.model).resolve()),
        questions=None if questions is None else str(questions),
        language=now.more.get("language", BuildConfig.model_fields["language"].default),
    )
    before = check.read(folder / now.checks) if now.checks is not None else {}
    collection = folder / now.collection
    signs = signs_of(collection, folder / now.model)
    main = config.language or next(filter(None, now.more.get("languages") or {}), "en")
    count = Collection(collection).count("passages")
    corpus = IndexedCorpus(collection, count, signs, folder / now.bm25, main)
    with tempfile.TemporaryDirectory(prefix="liebig-check-") as place, Whole(PHASES, say) as whole:
        builder = Builder(Path(place), say)
        builder.whole, builder.by_sentences = whole, corpus.by_sentences
        if now.sentences is not None:
            builder.sentences[collection, config.start] = folder / now.sentences
        exam = set_exam(builder, config, corpus)
        start = start_of(builder, config, corpus, exam, folder / now.index)
        start = replace(start, query=None if now.query is None else folder / now.query)
        bundled = bool(before.get("bundled", True))
        checked, _ = compare_systems(builder, config, corpus, exam, [start], None, bundled=bundled)
        checks = check.read(checked)
    encoder = before.get("choice", {}).get("encoder", "start")
    has_sentences = now.sentences is not None
    served = SystemChoice(encoder, now.system, now.weight, now.norm, has_sentences and now.system == "hybrid")
    return {**checks, "served": served.name}
