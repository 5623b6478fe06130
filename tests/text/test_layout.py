"""One layout: the token ids of a passage are the same in training, encoding, evaluation, search, serving and doctor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liebig.base import pipeline
from liebig.base.errors import ModelError, RecipeError
from liebig.base.records import Document, Passage, Query, Section
from liebig.evaluation.encoders import ModelScorer
from liebig.methods.finetuning import FinetuneConfig
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.reranker import scorer
from liebig.model.backbone import Backbone
from liebig.model.cross_encoder import CrossEncoder
from liebig.model.encoder import Encoder, TorchModel
from liebig.model.loading import FolderBackbone
from liebig.model.settings import PackedRow
from liebig.search.embed import Embedder
from liebig.search.pieces import frame_of
from liebig.search.systems import layouts_of as index_layouts
from liebig.search.token_windows import TextItem, Workers
from liebig.search.window_vectors import EncodingPlan
from liebig.stages import STAGES
from liebig.stages.encode import EncodeConfig, layout_of, load
from liebig.stages.evaluate import EvaluateConfig
from liebig.stages.finetune import starting_encoder
from liebig.stages.pretrain import use_length
from liebig.text.layout import Layout, RoleLayout
from liebig.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
WORDS = ["soil", "barley", "nutrient", "law", "of", "the", "minimum", "chemistry", "agriculture", "corpus"]
QUERY = Query("q", "which law " * 30)
PASSAGES = [
    Passage("short", "the law of the minimum", "Soil"),
    Passage("untitled", "barley [SEP] chemistry"),  # brackets and a word, never the special token
    Passage("long", "nutrient law of barley " * 300, "Agriculture and chemistry"),
    Passage("marked", "barley\x1elaw", "So\x1eil"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder of 512 positions, without a layout of its own."""
    folder = tmp_path_factory.mktemp("layout") / "model"
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 5, vocab_size=120)
    backbone = Backbone.create(
        layers=1, width=32, heads=2, vocab_size=tokenizer.vocab_size, max_positions=512
    )
    Encoder(backbone, tokenizer, pooling="mean").save(folder)
    (folder / "layout.json").unlink()
    return folder


def encoded_ids(config: EncodeConfig, records: list[Any], workers: int = 0) -> list[list[int]]:
    """The ids that `liebig encode` gives to its model."""
    items = [TextItem(str(i), record) for i, record in enumerate(records)]
    embedder = load(config, "cpu", "fp32")
    layout = layout_of(config, embedder)
    plan = EncodingPlan(frame_of(layout), 4096)
    groups = [items[:1], items[1:]] if len(items) > 1 else [items]  # one alone is never sent to a process
    with Workers(embedder.encoder.tokenizer, embedder.folder, workers) as pool:
        batches = list(pool.windows(groups, layout))
    return [ids for batch in batches for ids in row_ids(plan.packed(batch, plan.pieces(batch)))]


def row_ids(packed: Iterable[PackedRow]) -> list[list[int]]:
    """The ids of packed rows, in the order of the texts."""
    found: dict[int, list[int]] = {}
    for tokens, numbers in packed:
        found |= dict(zip(numbers.tolist(), tokens.to_lists()))
    return [found[i] for i in sorted(found)]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[list[int]]]:
    """The ids of every call that makes vectors, in whatever command."""
    calls: list[list[list[int]]] = []
    plain = TorchModel.start

    def spy(self: TorchModel, packed: Any, *rest: Any) -> Any:
        rows = list(packed)
        calls.append(row_ids(rows))
        return plain(self, rows, *rest)

    monkeypatch.setattr(TorchModel, "start", spy)
    return calls


def by_hand(tokenizer: Tokenizer, record: Passage, title: str, prompt: str, length: int) -> list[int]:
    text = record.text.replace("\x1e", "")
    name = record.title.replace("\x1e", "")
    if title == "separator" and name:
        ids = [*tokenizer.encode(prompt + name), tokenizer.sep, *tokenizer.encode(text)]
    else:
        ids = tokenizer.encode(prompt + (f"{name} {text}" if name and title == "space" else text))
    return tokenizer.wrap(ids[: length - len(tokenizer.wrap([]))])


@pytest.mark.parametrize("title", ["space", "separator", "no"])
@pytest.mark.parametrize("prompt", ["", "law: "])
def test_every_path_reads_the_same_ids(
    tmp_path: Path, model: Path, seen: list[list[list[int]]], title: Any, prompt: str
) -> None:
    config = FinetuneConfig(
        model=FolderBackbone(path=model),
        collection=tmp_path,
        title=title,
        query_length=12,
        passage_length=40,
        query_prompt=prompt,
        passage_prompt=prompt,
    )
    encoder = starting_encoder(config)
    query_layout, passage_layout = encoder.layout_for("query"), encoder.layout_for("passage")
    trained, asked = passage_layout.lists(PASSAGES), query_layout.lists([QUERY])
    expected = [by_hand(encoder.tokenizer, p, title, prompt, 40) for p in PASSAGES]
    assert trained == expected
    assert len(asked[0]) == 12
    encoder.save(tmp_path / "model")

    fields = {"source": tmp_path, "model": tmp_path / "model", "device": "cpu"}
    assert encoded_ids(EncodeConfig(**fields), PASSAGES) == trained
    assert encoded_ids(EncodeConfig(what="queries", **fields), [QUERY]) == asked

    evaluated = ModelScorer(tmp_path / "model", "cpu", 5)
    evaluated.embed(PASSAGES, "passage")
    evaluated.embed([QUERY], "query")
    assert seen == [trained, asked]

    about = {"prompt": "passage", "title": title, "max_length": 40}  # what encode writes beside the vectors
    encoder = Encoder.load(tmp_path / "model")
    passage, query = index_layouts(encoder, about)
    assert passage.lists(PASSAGES) == trained
    assert query.lists([QUERY]) == asked
    assert served_ids(encoder, passage, query, seen) == [trained, asked]
    assert examined_ids(encoder, about, seen) == trained


def served_ids(
    encoder: Encoder, passage: RoleLayout, query: RoleLayout, seen: list[list[list[int]]]
) -> list[list[list[int]]]:
    """The ids of the retriever and the server."""
    seen.clear()
    embedder = Embedder(encoder, passage, query, unit=False)
    embedder.vectors(PASSAGES, "passage")
    embedder.vectors([QUERY], "query")
    return list(seen)


def examined_ids(encoder: Encoder, about: dict[str, Any], seen: list[list[list[int]]]) -> list[list[int]]:
    from liebig.commands.doctor import StoredSample, compare

    seen.clear()
    compare(encoder, StoredSample(PASSAGES, np.zeros((len(PASSAGES), 32), np.float32), "fp32"), about)
    return seen[0]


def test_processes_that_tokenise_read_the_same_ids(model: Path, forked_helpers: None) -> None:
    config = EncodeConfig(source=model, model=model, title="separator", device="cpu")
    layout = layout_of(config, load(config, "cpu", "fp32"))
    assert encoded_ids(config, PASSAGES, workers=1) == layout.lists(PASSAGES)


def test_a_folder_without_a_layout_reads_a_space_and_the_models_length(model: Path) -> None:
    encoder = Encoder.load(model)
    assert encoder.layout == Layout()
    texts = [f"{p.title} {p.text}" if p.title else p.text for p in PASSAGES]
    assert encoder.tokenize(PASSAGES, "passage") == encoder.tokenize(texts, "passage")
    assert encoder.tokenize(texts) == [
        encoder.tokenizer.wrap(encoder.tokenizer.encode(t)[:510]) for t in texts
    ]


def test_documents_have_titles_and_queries_none(model: Path) -> None:
    layout = replace(Encoder.load(model).layout_for("passage"), title="separator")
    document = Document("d", "Soil", (Section("", ("the law of the minimum",)),))
    assert layout.lists([document]) == layout.lists(PASSAGES[:1])


def test_lengths_are_set_up_to_the_positions(model: Path) -> None:
    encoder = Encoder.load(model).use(max_length=20, query_length=30)
    lengths = [len(encoder.tokenize(["law " * 600], role)[0]) for role in ("query", "passage")]
    assert lengths == [30, 20]
    assert len(Encoder.load(model).use(max_length=512).tokenize(["law " * 600], "query")[0]) == 512
    with pytest.raises(RecipeError, match="512 positions"):
        encoder.use(max_length=513)


@pytest.mark.parametrize(
    "text", ["{", '{"title": "comma"}', '{"query_length": "9"}', '{"passage_length": 0}', "[]"]
)
def test_a_layout_that_is_none_is_named(model: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "layout.json").write_text(text)
    with pytest.raises(ModelError, match=r"layout.json: "):
        Layout.load(tmp_path)


def test_a_layout_survives_saving_and_other_tools(model: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = Encoder.load(model).use(title="separator", query_length=16)
    encoder.save(tmp_path / "out")
    assert Encoder.load(tmp_path / "out").layout == encoder.layout
    assert "{title} [SEP] {text}" in (tmp_path / "out" / "README.md").read_text()
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(["Soil [SEP] law"])
    np.testing.assert_allclose(
        theirs, encoder.encode_texts([Passage("p", "law", "Soil")], prompt="passage"), atol=1e-5
    )


def test_a_reranker_scores_what_it_was_trained_on(model: Path, tmp_path: Path) -> None:
    made = CrossEncoder.start(model, length=40, title="separator")
    made.save(tmp_path)
    loaded = CrossEncoder.load(tmp_path, device="cpu")
    (found,) = scorer([loaded])([(QUERY, PASSAGES)])
    query, passage = made.layouts()
    ids = passage.lists(PASSAGES)
    assert made.tokenizer.sep in ids[0]
    np.testing.assert_array_equal(found, made.eval().scores(query.lists([QUERY]) * len(PASSAGES), ids))


def test_texts_of_pairs_are_trained_with_the_prompt_they_are_used_with(tmp_path: Path, model: Path) -> None:
    from liebig.collection import Collection
    from liebig.methods.text_similarity import CosineRegression

    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.jsonl").write_text('{"a": "soil", "b": "barley", "score": 1}\n')
    config = FinetuneConfig(
        model=FolderBackbone(path=model),
        collection=tmp_path,
        objective=CosineRegression.Config(),
        passage_prompt="law: ",
    )
    encoder = starting_encoder(config)
    objective = CosineRegression(encoder, scale=1.0)
    read = objective.read(Collection(tmp_path), "train", encoder.layout_for(None), None, 0)
    assert read.texts[0].to_lists()[:1] == encoder.tokenize(["soil"]) == encoder.tokenize(["law: soil"], "")


def recipes() -> Iterator[tuple[str, str, str]]:
    """Every recipe's stages that train a retriever, each with a stage that reads texts with it."""
    for path in sorted((ROOT / "recipes").rglob("*.toml")):
        planned = {p.name: p.config for p in pipeline.plan(STAGES, path, [], Path("runs"))}
        for name, trained in planned.items():
            if isinstance(trained, FinetuneConfig) and trained.objective.roles:
                for other, used in planned.items():
                    uses = getattr(used, "model", None) if isinstance(used, EncodeConfig) else None
                    uses = used.system if isinstance(used, EvaluateConfig) else uses
                    if uses is not None and uses.parent == Path("runs") / name:
                        yield str(path.relative_to(ROOT)), name, other


RECIPES = list(recipes())


def test_recipes_that_train_and_index_are_found() -> None:
    assert len(RECIPES) > 10
    assert {"recipes/finetune/nq.toml", "recipes/finetune/msmarco-passage.toml"} <= {r[0] for r in RECIPES}


@pytest.mark.parametrize(("path", "train", "use"), RECIPES)
def test_a_recipe_indexes_the_ids_it_trains_on(
    path: str, train: str, use: str, model: Path, tmp_path: Path, seen: list[list[list[int]]]
) -> None:
    planned = {p.name: p.config for p in pipeline.plan(STAGES, ROOT / path, [], Path("runs"))}
    config = planned[train].model_copy(
        update={"model": FolderBackbone(path=model), "tokenizer": None, "untied": False}
    )
    encoder = starting_encoder(config)
    query, passage = encoder.layout_for("query"), encoder.layout_for("passage")
    encoder.save(tmp_path / "model")
    other = planned[use]
    if isinstance(other, EncodeConfig):
        used = other.model_copy(update={"compile": False, "model": tmp_path / "model"})
        queries = other.what == "queries"
        found = encoded_ids(used, [QUERY] if queries else PASSAGES)
        assert found == (query.lists([QUERY]) if queries else passage.lists(PASSAGES))
        return
    assert isinstance(other, EvaluateConfig)
    told = {"title": other.title, "max_length": other.max_length, "query_length": other.query_length}
    evaluated = ModelScorer(tmp_path / "model", "cpu", 5, **told)
    evaluated.embed(PASSAGES, "passage")
    evaluated.embed([QUERY], "query")
    assert seen == [passage.lists(PASSAGES), query.lists([QUERY])]


def test_layout_json_says_what_a_folder_was_trained_with(model: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(model)
    encoder.layout = Layout("separator", 32, 128, 130)
    encoder.save(tmp_path)
    assert json.loads((tmp_path / "layout.json").read_text()) == {
        "title": "separator", "query_length": 32, "passage_length": 128, "trained_length": 130
    }  # fmt: skip


def pretraining(model: Any, **values: Any) -> PretrainConfig:
    fields = {"stores": [{"path": "store"}], "max_length": 48, "model": model, **values}
    return PretrainConfig.model_validate(fields)


def test_a_pretrained_model_is_used_with_its_starts_length(model: Path, tmp_path: Path) -> None:
    backbone = Backbone.load(model)
    folder = {"kind": "folder", "path": str(model)}
    assert use_length(pretraining(folder), backbone) == 512
    assert use_length(pretraining(folder, use_length=256), backbone) == 256
    with pytest.raises(RecipeError, match="use_length = 600 is more than the model's 512 positions"):
        use_length(pretraining(folder, use_length=600), backbone)
    Encoder.load(model).use(max_length=64).save(tmp_path)
    folder = {"kind": "folder", "path": str(tmp_path)}
    assert use_length(pretraining(folder), backbone) == 64
    assert use_length(pretraining(folder, max_length=100), backbone) == 100


def test_a_new_model_is_used_with_the_positions_it_learns(model: Path) -> None:
    new = {"kind": "new", "layers": 1, "width": 32, "heads": 2, "max_positions": 512}
    assert use_length(pretraining(new), Backbone.load(model)) == 48


def test_pretraining_on_pairs_reads_passages_as_encoding_does(model: Path, tmp_path: Path) -> None:
    from liebig.collection import Collection
    from liebig.methods.sources.pairs import PairSource

    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in PASSAGES]
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"id": "q", "text": "which law"}) + "\n")
    (tmp_path / "judgements").mkdir()
    judged = "".join(f"q\t{p.id}\t1\n" for p in PASSAGES)
    (tmp_path / "judgements" / "train.tsv").write_text(judged)
    encoder = Encoder.load(model).use(title="separator", max_length=40)
    source = PairSource.read(
        Collection(tmp_path), "train", encoder.tokenizer, 38, anchor="passage", title="separator"
    )
    row = source.draw(np.arange(len(PASSAGES)), 0, 0)
    drawn = row.tokens.to_lists()
    assert drawn[1::2] == encoder.tokenize(PASSAGES, "passage")
    assert drawn[::2] == encoder.tokenize(["which law"], "query") * len(PASSAGES)
