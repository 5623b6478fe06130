"""Folders whose manifest was rewritten to match crafted files: one sentence or finite scores (see `make torture`)."""

import json
import math
import shutil

import numpy as np
import pytest

from liebig.base import npy
from liebig.base.errors import CorruptError, LiebigError
from liebig.search.retriever import Retriever
from liebig.search.retriever_folder import NAME
from liebig.vectors import Vectors
from tests.worlds import crafted, faults


@pytest.fixture(scope="module")
def retriever(tmp_path_factory):
    home = tmp_path_factory.mktemp("crafted")
    source = faults.write_documents(home / "source", faults.TOPICS)
    faults.build_retriever(source, faults.write_model(home / "model"), home / "out")
    return home / "out"


def test_a_crafted_folder_is_refused_in_a_sentence_or_answers_with_numbers(retriever):
    outcomes = crafted.craft(retriever, count=1, seed="31")
    assert {how: cases for how, cases in outcomes.items() if how not in ("refused", "answered")} == {}
    assert len(outcomes["refused"]) > 20


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_stored_vectors_that_are_not_numbers_are_refused(retriever, tmp_path, bad):
    folder = tmp_path / "out"
    shutil.copytree(retriever, folder)
    (path,) = folder.glob("index-1/shards/*/vectors.npy")
    vectors = np.array(npy.load(path))
    vectors[1, 2] = bad
    npy.save(path, vectors)
    crafted.rewrite_manifest(path)
    with pytest.raises(CorruptError, match=r"vectors\.npy: has a vector with NaN or infinity"):
        Retriever.from_folder(folder)
    with pytest.raises(CorruptError, match=r"vectors\.npy: has a vector with NaN or infinity"):
        Vectors.open(folder / "index-1")


@pytest.mark.parametrize("value", [False, None, [], "x", 3, {}])
@pytest.mark.parametrize("name", ["index-1/vectors.json", "index-1/index.json", "bm25-1/bm25.json", NAME])
def test_a_file_of_another_type_is_refused_by_its_name(retriever, tmp_path, name, value):
    folder = tmp_path / "out"
    shutil.copytree(retriever, folder)
    path = folder / name
    path.write_text(json.dumps(value))
    if name != NAME:
        crafted.rewrite_manifest(path)
    with pytest.raises(LiebigError, match=path.name):
        Retriever.from_folder(folder)


@pytest.mark.parametrize("part", ["collection", "bm25", "index", "model"])
@pytest.mark.parametrize("place", ["..", "../out", "{home}/bm25-1", "a/../../b", "", "a\0b", 3, ["x"]])
def test_parts_of_a_retriever_lie_below_its_folder(retriever, tmp_path, part, place):
    folder = tmp_path / "out"
    folder.mkdir()
    row = json.loads((retriever / NAME).read_text())
    row[part] = place.format(home=retriever) if isinstance(place, str) else place
    (folder / NAME).write_text(json.dumps(row))
    with pytest.raises(LiebigError, match=rf"{NAME}: {part}"):
        Retriever.from_folder(folder)


@pytest.mark.parametrize("part", ["collection", "bm25", "index"])
def test_a_part_that_is_a_link_out_of_the_folder_is_refused(retriever, tmp_path, part):
    folder = tmp_path / "out"
    shutil.copytree(retriever, folder)
    name = json.loads((folder / NAME).read_text())[part]
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LiebigError, match="link that leads out of the folder"):
        Retriever.from_folder(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd"])
def test_a_manifest_names_no_file_outside(retriever, tmp_path, name):
    folder = tmp_path / "out"
    shutil.copytree(retriever, folder)
    path = folder / "bm25-1" / "manifest.json"
    row = json.loads(path.read_text())
    row["outputs"][name], row["sizes"][name] = "0", 0
    path.write_text(json.dumps(row))
    with pytest.raises(CorruptError, match="not a path below the folder"):
        Retriever.from_folder(folder)


@pytest.mark.parametrize("place", ["../secret.bin", "{home}/secret.bin", "link.bin"])
def test_a_graph_reads_no_weights_outside_its_folder(tmp_path, place):
    onnx = pytest.importorskip("onnx")
    from liebig.model.onnx_graph import GRAPH, session

    np.arange(4, dtype=np.float32).tofile(tmp_path / "secret.bin")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    weights = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=place.format(home=tmp_path))
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (folder / GRAPH).write_bytes(model.SerializeToString())
    with pytest.raises(LiebigError, match="the graph cannot be loaded"):
        session(folder)
