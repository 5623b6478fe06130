"""A retriever's folder of a few documents, made by the stages."""

import json

import pytest

from liebig.base import pipeline
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import RetrieverDescription, write
from liebig.stages import STAGES

DOCUMENTS = {
    "barley": ("Barley", "en", "The growth of barley is limited by the scarcest nutrient of the soil.",
               "Nitrogen, phosphorus and potassium are taken from the ground by every harvest."),
    "steam": ("Steam engines", "en", "A steam engine turns the pressure of hot vapour into motion.",
              "James Watt added a separate condenser, which saved three quarters of the fuel."),
    "comet": ("Comets", "de", "A comet is a small body of ice and dust that grows a tail near the sun.",
              "Halley's comet returns every seventy-six years."),
    "violin": ("Violins", "de", "The violin has four strings tuned in perfect fifths.",
               "Its bow is strung with the hair of a horse."),
}  # fmt: skip


def write_collection(folder, documents=DOCUMENTS):
    """A collection with documents, metadata (a dict, or a language alone) and passages."""
    folder.mkdir(parents=True)
    rows, passages = [], []
    for id, (title, language, *texts) in documents.items():
        sections = [{"heading": "", "paragraphs": texts}]
        metadata = language if isinstance(language, dict) else {"language": language}
        rows.append({"id": id, "title": title, "sections": sections, "metadata": metadata})
        passages += [
            {"id": f"{id}-{i}", "title": title, "text": text, "doc": id} for i, text in enumerate(texts)
        ]
    for name, lines in (("documents", rows), ("passages", passages)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def make_folder(out, model, documents=DOCUMENTS, generation=1, system="hybrid"):
    """A folder by hand: the stages, and a retriever.json that points to them."""
    write_collection(out / "collection", documents)
    recipe = {
        "bm25": {"collection": str(out / "collection")},
        "index": {"kind": "encode", "source": str(out / "collection"), "model": str(model)},
    }
    pipeline.run(pipeline.plan_stages(STAGES, recipe, out), lambda line: None)
    (out / "model").symlink_to(model)
    description = RetrieverDescription(generation, system, "collection", "bm25", "index", "model", weight=0.5)
    write(out, description)
    return out


@pytest.fixture(scope="session")
def folder(small_model, tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("retriever") / "folder", small_model)


@pytest.fixture(scope="session")
def retriever(folder):
    return Retriever.from_folder(folder)
