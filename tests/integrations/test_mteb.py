"""MTEB's protocol for encoders, called as mteb calls it; and, where mteb is installed, a task of its own."""

import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from liebig import Encoder
from liebig.base.errors import MissingDependency
from liebig.base.records import Passage
from liebig.integrations.mteb import MtebModel
from liebig.search.embed import Embedder
from tests.worlds.models import small_encoder

CALL = {"task_metadata": object(), "hf_split": "test", "hf_subset": "default", "batch_size": 32}


class PromptType(StrEnum):
    query = "query"
    document = "document"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose prompts and rule for titles tell roles apart."""
    path = small_encoder(tmp_path_factory.mktemp("mteb") / "plain")
    encoder = Encoder.load(path)
    encoder.prompts = {"query": "ask: ", "passage": "say: "}
    encoder.save(path.with_name("model"))
    return path.with_name("model")


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_queries_documents_and_plain_texts_are_read_in_their_roles(folder):
    model, ours = MtebModel(folder), Embedder.load(folder)
    queries = [{"text": ["what limits growth"], "query": ["what limits growth"]}, {"text": ["a comet"]}]
    asked = ["what limits growth", "a comet"]
    close(model.encode(queries, prompt_type=PromptType.query, **CALL), ours.vectors(asked, "query"))
    close(model.encode([{"text": asked}], **CALL), ours.vectors(asked, None))
    corpus = [{"text": ["Barley grows", "none"], "title": ["Barley", None], "body": ["grows", "none"]}]
    passages = [Passage("", "grows", "Barley"), Passage("", "none")]
    found = model.encode(corpus, prompt_type=PromptType.document, **CALL)
    close(found, ours.vectors(passages, "passage"))
    assert not np.allclose(found[1], model.encode([{"text": ["none"]}], **CALL)[0], atol=1e-4)
    assert model.encode([], prompt_type=PromptType.query, **CALL).shape == (0, 32)


def test_similarities_are_those_of_the_model(folder):
    model = MtebModel(folder)
    a = model.encode([{"text": ["one", "two"]}], **CALL)
    b = model.encode([{"text": ["three", "four"]}], **CALL)
    np.testing.assert_allclose(model.similarity(a, b).numpy(), a @ b.T, rtol=1e-5)
    np.testing.assert_allclose(model.similarity(a[0], b).numpy(), (a @ b.T)[:1], rtol=1e-5)
    np.testing.assert_allclose(model.similarity_pairwise(a, b).numpy(), (a * b).sum(1), rtol=1e-5)


def test_a_model_that_changed_has_another_revision(folder, tmp_path):
    other = small_encoder(tmp_path / "model", layers=2)
    assert MtebModel(folder).revision != MtebModel(other).revision
    assert MtebModel(folder).revision == MtebModel(folder).revision


def test_a_missing_package_is_one_sentence(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", None)
    with pytest.raises(MissingDependency, match=r"pip install .*\[mteb\]"):
        _ = MtebModel(folder).mteb_model_meta


TASK = """
import sys
import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from liebig.integrations.mteb import MtebModel

class Fields(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="Fields", description="Fields.", reference="https://example.org", type="Retrieval", category="t2t",
        modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="ndcg_at_10",
        dataset={"path": "someone/fields", "revision": "1"},
    )

    def load_data(self, *args, **kwargs):
        texts = {"1": ("Barley", "growth of barley"), "2": ("Comets", "a comet of ice"), "3": ("Glass", "sand")}
        corpus = Dataset.from_list([{"id": i, "title": t, "text": x} for i, (t, x) in texts.items()])
        queries = Dataset.from_list([{"id": "q", "text": "growth of barley"}])
        split = {"corpus": corpus, "queries": queries, "relevant_docs": {"q": {"1": 1}}, "top_ranked": None}
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True

result = mteb.evaluate(MtebModel(sys.argv[1]), Fields(), cache=None, co2_tracker=False)
print("score", result.task_results[0].get_score(), result.model_name)
"""


def test_mteb_runs_a_task_of_its_own(folder, tmp_path):
    pytest.importorskip("mteb")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
    }
    words = [sys.executable, "-c", TASK, str(Path(folder))]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "liebig/model" in done.stdout
    assert float(done.stdout.split("score ")[1].split()[0]) > 0
