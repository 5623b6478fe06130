"""The Python API: the same results as the commands, small objects that print well, and a cheap import."""

import gc
import json
import subprocess
import sys

import numpy as np
import pytest

import liebig
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Document, Section
from liebig.stages import STAGES
from tests.worlds.models import small_encoder

TOPICS = {
    "barley": "Barley grows in cool ground. What limits it is the nutrient that is scarcest.",
    "heap": "A heap keeps its smallest item first. Two sorted lists are merged by a heap.",
    "glass": "Glass is made of sand, soda and lime. It is melted and blown while it is hot.",
    "iron": "Iron is melted from ore with coal. Steel is iron with little carbon in it.",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A BEIR folder, its collection, a model, and a store of the same texts."""
    folder = tmp_path_factory.mktemp("api")
    model = small_encoder(folder / "model")
    (folder / "data" / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": name, "text": text} for name, text in TOPICS.items()]
    asked = [{"_id": f"q{name}", "text": f"what is {name}"} for name in TOPICS]
    for name, lines in (("corpus", rows), ("queries", asked)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "data" / f"{name}.jsonl").write_text(text)
    grades = "".join(f"q{name}\t{name}\t1\n" for name in TOPICS)
    for split in ("train", "test"):
        (folder / "data" / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + grades)
    from liebig.base import pipeline

    stages = {
        "collection": {"kind": "init", "paths": [str(folder / "data")]},
        "store": {"kind": "prepare", "collection": "@collection", "tokenizer": str(model)},
    }
    pipeline.run(pipeline.plan_stages(STAGES, stages, folder), lambda line: None)
    return folder


def test_importing_liebig_loads_no_torch_and_every_public_name_exists():
    code = "import sys, liebig; dir(liebig); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert all(getattr(liebig, name) is not None for name in liebig.__all__)
    assert {*liebig.HOMES, "__version__"} == set(liebig.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = liebig.nothing


def test_documents_in_memory_become_a_retriever(tmp_path):
    iron = Document("iron", "Iron", (Section("", (TOPICS["iron"],)),), {"kind": "metal", "language": "en"})
    glass = {"id": "glass", "title": "Glass", "text": TOPICS["glass"], "year": 1900}
    retriever = liebig.build_documents([TOPICS["barley"], glass, iron], tmp_path / "out", minutes=0).retriever
    assert retriever.search("limits of barley", k=1)[0].doc == "0"
    (result,) = retriever.search("soda and lime", k=1, filters={"year": "1900"})
    assert (result.doc, result.title) == ("glass", "Glass")
    assert retriever.search("steel", k=1)[0].metadata == {"kind": "metal", "language": "en"}


def test_a_temporary_folder_goes_with_the_retriever(small_model):
    retriever = liebig.build_documents([TOPICS["barley"]], minutes=0, model=str(small_model)).retriever
    folder = retriever.folder
    gc.collect()
    assert folder.is_dir(), "the retriever keeps it, although the result of the build is gone"
    del retriever
    gc.collect()
    assert not folder.exists()


def test_what_is_not_a_document_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"document 1: expected a string, a dict or a Document, got int"):
        liebig.build_documents(["barley", 3], tmp_path / "out")
    with pytest.raises(DataError, match="document 0: the record has no field 'text'"):
        liebig.build_documents([{"title": "barley"}], tmp_path / "out")
    with pytest.raises(DataError, match=r"give a list: \[document\]"):
        liebig.build_documents("barley", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_build_prints_its_check_and_opens_its_retriever(small_model, tmp_path):
    (tmp_path / "in").mkdir()
    for name, text in TOPICS.items():
        (tmp_path / "in" / f"{name}.txt").write_text(text)
    built = liebig.build(tmp_path / "in", tmp_path / "out", minutes=0, model=str(small_model))
    assert len(built.retriever) == len(TOPICS)
    assert f"Retriever in {tmp_path / 'out'}" in repr(built)
    assert "Questions made from the documents" in repr(built)
    assert "Questions made from the documents" in built._repr_html_(), (
        "with too few questions there is no table to show"
    )
    with pytest.raises(RecipeError, match="minuts is not a key"):
        liebig.build(tmp_path / "in", tmp_path / "other", minuts=1)


def test_training_and_evaluation_are_those_of_the_commands(world, tmp_path):
    config = {
        "model": {"kind": "folder", "path": str(world / "model")},
        "stores": [{"path": str(world / "store")}],
        "objective": {"kind": "mlm"},
        "loop": {"steps": 2, "batch": 2},
        "max_length": 32,
    }
    trained = liebig.pretrain(out=tmp_path / "pretrained", **config)
    assert repr(trained).startswith(f"Model in {tmp_path / 'pretrained' / 'model'}\n2 steps, loss ")
    assert "<th>loss</th>" in trained._repr_html_()
    before = (tmp_path / "pretrained" / "manifest.json").read_bytes()
    liebig.pretrain(out=tmp_path / "pretrained", **config)
    assert (tmp_path / "pretrained" / "manifest.json").read_bytes() == before, "it was up to date"
    tuned = liebig.finetune(
        out=tmp_path / "tuned",
        model={"kind": "folder", "path": trained.model},
        collection=world / "collection",
        negatives=0,
        loop={"steps": 2, "batch": 2},
    )
    assert tuned.encoder().encode("barley").shape == trained.encoder().encode("barley").shape
    result = liebig.evaluate(tuned.model, world / "collection", samples=100, measures=["nDCG@10"])
    assert 0 <= result["nDCG@10"] <= 1
    assert "nDCG@10" in repr(result)
    assert "<table>" in result._repr_html_()
    with pytest.raises(RecipeError, match=r"nDCG@11 was not measured.*nDCG@10"):
        result["nDCG@11"]


def test_a_recipe_file_comes_first_and_keywords_are_laid_over_it(world, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f"""
stores = [{{ path = "{world / "store"}" }}]
model = {{ kind = "folder", path = "{world / "model"}" }}
objective = {{ kind = "mlm" }}
max_length = 32
loop = {{ steps = 5, batch = 2 }}
""")
    trained = liebig.pretrain(recipe, out=tmp_path / "out", loop={"steps": 1})
    assert max(trained.losses) == 1


def test_an_encoder_has_the_names_of_sentence_transformers():
    encoder = liebig.Encoder.load("liebig:mini-v3")
    encoder.prompts = {"query": "ask: ", "passage": "tell: "}
    np.testing.assert_array_equal(encoder.encode_query("barley"), encoder.encode("barley", prompt="query"))
    np.testing.assert_array_equal(
        encoder.encode_document(["barley"]), encoder.encode(["barley"], prompt="passage")
    )
    assert not np.array_equal(encoder.encode_query("barley"), encoder.encode_document("barley"))
