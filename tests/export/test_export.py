"""Exports read back: the same passages, the same vectors, in every form."""

import json

import numpy as np
import pytest

from liebig.base.errors import DataError, ModelError, RecipeError
from liebig.builder.build import BuildConfig, build
from liebig.commands.export import export
from liebig.export import Target
from liebig.export.models import difference
from liebig.model.encoder import Encoder
from liebig.search.retriever import Retriever

TEXTS = ["what limits growth", "Watt's condenser", "größer als die Sonne"]


def rows_of(built):
    return {id: (passage, vector) for id, passage, vector in Target.of(built).rows()}


def test_rows_are_the_passages_with_the_vectors_of_the_index(built):
    retriever, rows = Retriever.from_folder(built), rows_of(built)
    assert {passage.id for passage, _ in rows.values()} == {r.id for r in retriever.search("a", 10, "dense")}
    barley, vector = next(row for row in rows.values() if row[0].doc == "barley")
    assert barley.metadata == {"year": "1840", "language": "en"}
    expected = retriever.encode([f"{barley.title} {barley.text}"])[0]
    np.testing.assert_allclose(vector, expected, atol=5e-3 * np.abs(expected).max())


def test_rows_have_what_is_known_of_a_passage_as_its_line(small_model, tmp_path):
    (tmp_path / "notes.md").write_text("# Barley\n\nIt grows by its scarcest nutrient.\n")
    config = BuildConfig(sources=(str(tmp_path / "notes.md"),), model=str(small_model), minutes=0)
    build(config, tmp_path / "out", lambda line: None)
    ((row, _),) = rows_of(tmp_path / "out").values()
    (result,) = Retriever.from_folder(tmp_path / "out").search("barley", 1)
    assert row.metadata == result.metadata
    assert row.metadata["line"]


def test_a_graph_that_differs_from_torch_is_not_exported(small_model, tmp_path, monkeypatch):
    monkeypatch.setattr("liebig.export.models.export", lambda encoder, path, int8: encoder.save(path))
    monkeypatch.setattr("liebig.export.models.difference", lambda *given: 2e-4)
    with pytest.raises(ModelError, match=r"differ from torch's by 2\.0e-04"):
        export(small_model, "onnx", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_parquet_is_read_by_pandas_and_duckdb(built, tmp_path, monkeypatch):
    import duckdb
    import pandas
    from pyarrow import parquet

    monkeypatch.setattr("liebig.export.parquet.ROW_GROUP", 2)
    said = export(built, "parquet", tmp_path / "out", name="articles")
    file = tmp_path / "out" / "articles.parquet"
    assert said.startswith("3 rows in articles.parquet")
    expected, width = rows_of(built), Target.of(built).vectors.width
    assert parquet.ParquetFile(file).num_row_groups == 2
    about = json.loads(parquet.read_schema(file).metadata[b"liebig"])
    assert (about["width"], "model" in about) == (width, True)
    for _, row in pandas.read_parquet(file).iterrows():
        ours, vector = expected.pop(row["id"])
        assert (row["passage"], row["title"], row["text"], row["doc"]) == (
            ours.id,
            ours.title,
            ours.text,
            ours.doc,
        )
        assert json.loads(row["metadata"]) == ours.metadata
        np.testing.assert_array_equal(row["vector"], vector)
    assert expected == {}
    retriever = Retriever.from_folder(built)
    question = retriever.encode(["what limits growth"], "query")[0].tolist()
    nearest = f"SELECT passage FROM '{file}' ORDER BY list_inner_product(vector, ?::FLOAT[]) DESC"
    ours = [(result.id,) for result in retriever.search("what limits growth", 3, "dense")]
    assert duckdb.execute(nearest, [question]).fetchall() == ours


def test_sentence_transformers_gives_our_vectors(built, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    export(built, "sentence-transformers", tmp_path / "st")
    theirs = library.SentenceTransformer(str(tmp_path / "st"), device="cpu").encode(TEXTS)
    ours = Encoder.load(tmp_path / "st").encode_texts(TEXTS)
    np.testing.assert_allclose(theirs, ours, atol=1e-4 * np.abs(ours).max())


def test_onnx_equals_torch(built, tmp_path):
    pytest.importorskip("onnxruntime")
    export(built, "onnx", tmp_path / "onnx")
    assert difference(Encoder.load(Target.of(built).model), tmp_path / "onnx") < 1e-4


def test_a_model_alone_has_no_rows(built, tmp_path):
    model = Target.of(built).model
    export(model, "sentence-transformers", tmp_path / "st")
    assert (tmp_path / "st" / "model.safetensors").is_file()
    with pytest.raises(DataError, match="a model alone"):
        export(model, "parquet", tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_an_option_that_an_export_does_not_take_is_refused(built, tmp_path):
    with pytest.raises(RecipeError, match="int8 is for onnx"):
        export(built, "parquet", tmp_path / "x", int8=True)
    assert not (tmp_path / "x").exists()


def test_wrong_names_are_refused(built, tmp_path):
    with pytest.raises(RecipeError, match="no export to 'parquett'"):
        export(built, "parquett", tmp_path / "x")
    with pytest.raises(RecipeError, match="not a valid name for a table"):
        export(built, "parquet", tmp_path / "x", name="docs; drop table docs")
    with pytest.raises(DataError, match="neither"):
        export(tmp_path, "onnx", tmp_path / "x")
