"""Parts of a stage, put together, are the files of one run; a wrong or missing part is one sentence."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from liebig.base import pipeline, workspace
from liebig.base.errors import LiebigError
from liebig.base.parts import merge
from liebig.base.workspace import StagePart
from liebig.cli import make_app
from liebig.model.cross_encoder import CrossEncoder
from liebig.stages import STAGES
from tests.search.conftest import DOCUMENTS, make_folder, write_collection

QUESTIONS = {
    "q0": "growth of barley", "q1": "Watt's condenser", "q2": "tail of a comet", "q3": "strings", "q4": "the harvest"
}  # fmt: skip
SMALL = {  # of a piece, so that there are several
    "liebig.store.prepare.PIECE": 120,
    "liebig.stages.passages.BLOCK": 1,
    "liebig.stages.retrieve.BATCH": 2,
    "liebig.stages.mine.BLOCK": 1,
    "liebig.stages.rerank_score.AT_ONCE": 2,
}


@pytest.fixture(scope="module")
def world(small_model, tmp_path_factory):
    """A retriever, judged questions, documents alone, a cross-encoder and generated queries."""
    home = tmp_path_factory.mktemp("parts")
    make_folder(home / "retriever", small_model)
    collection = shutil.copytree(home / "retriever" / "collection", home / "judged")
    rows = [json.dumps({"id": id, "text": text}) for id, text in QUESTIONS.items()]
    (collection / "queries.jsonl").write_text("\n".join(rows) + "\n")
    for folder in ("judgements", "splits"):
        (collection / folder).mkdir()
    (collection / "splits" / "test.txt").write_text("\n".join(QUESTIONS) + "\n")
    pairs = zip(QUESTIONS, ("barley-0", "steam-1", "comet-0", "violin-0", "barley-1"))
    (collection / "judgements" / "test.tsv").write_text("".join(f"{q}\t{p}\t1\n" for q, p in pairs))
    write_collection(home / "documents", DOCUMENTS)
    (home / "documents" / "passages.jsonl").unlink()
    CrossEncoder.start(small_model).save(home / "cross")
    lines = [{"passage": f"{id}-{i}", "queries": [f"what is {id}", id]} for id in DOCUMENTS for i in range(2)]
    (home / "generated.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = {
        "kind": "retrieve",
        "collection": str(collection),
        "bm25": str(home / "retriever" / "bm25"),
        "k": 4,
    }
    pipeline.run(pipeline.plan_stages(STAGES, {"run": run}, home), lambda line: None)
    return home


def recipes(home, model):
    judged, run = str(home / "judged"), str(home / "run" / "bm25.trec")
    return {
        "prepare": {"collection": str(home / "documents"), "tokenizer": str(model)},
        "passages": {"collection": str(home / "documents"), "tokenizer": str(model), "length": 8},
        "encode": {"source": judged, "model": str(model), "shard": 3, "type": "int8"},
        "retrieve": {"collection": judged, "retriever": str(home / "retriever"), "k": 3},
        "mine": {"collection": judged, "split": "test", "sources": [{"run": run}]},
        "queries generate": {
            "collection": judged, "source": {"kind": "file", "path": str(home / "generated.jsonl")}, "shard": 3
        },
        "rerank score": {"collection": judged, "models": [str(home / "cross")], "run": run, "depth": 2},
    }  # fmt: skip


def files(folder):
    """The contents of every file but the manifest, which has times."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != workspace.MANIFEST)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def planned(name, recipe, out):
    (item,) = pipeline.plan_stages(STAGES, {out.name: {"kind": name, **recipe}}, out.parent)
    return item


@pytest.mark.parametrize(
    "name", ["prepare", "passages", "encode", "retrieve", "mine", "queries generate", "rerank score"]
)
def test_merged_parts_have_the_bytes_of_one_run(name, world, small_model, tmp_path, monkeypatch):
    for place, size in SMALL.items():
        monkeypatch.setattr(place, size)
    whole = planned(name, recipes(world, small_model)[name], tmp_path / "whole")
    pipeline.run_stage(whole.stage, whole.config, whole.out)
    parts = []
    for place in range(3):
        parts.append(tmp_path / f"part-{place}")
        pipeline.run_stage(whole.stage, whole.config, parts[-1], StagePart(place, 3))
    pieces = [set(files(part)) for part in parts]
    assert all(pieces), "every part made something"
    assert not (pieces[0] & pieces[1]) - {"parts/precision.txt"}
    merge(STAGES, [parts[2], parts[0], parts[1]], tmp_path / "merged")
    assert files(tmp_path / "merged") == files(whole.out)
    assert whole.up_to_date
    merged = planned(name, recipes(world, small_model)[name], tmp_path / "merged")
    assert merged.up_to_date, "it is what the recipe would make"
    assert not planned(name, recipes(world, small_model)[name], parts[0]).up_to_date


def test_a_part_reads_its_own_texts_only(small_model, tmp_path):
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"_id": f"p{n}", "text": f"Text {n}."}) + "\n" for n in range(4)))
    made = planned("init", {"paths": [str(texts)]}, tmp_path / "collection")
    pipeline.run_stage(made.stage, made.config, made.out)
    path = made.out / "passages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    (made.out / "manifest.json").unlink()  # so that the line is found, not the hash
    path.write_bytes(b"".join([lines[0], b"x" * (len(lines[1]) - 1) + b"\n", *lines[2:]]))
    recipe = {"source": str(made.out), "model": str(small_model), "shard": 1, "precision": "fp32"}
    item = planned("encode", recipe, tmp_path / "out")
    with pytest.raises(LiebigError, match=r"passages.jsonl, line 2"):
        pipeline.run_stage(item.stage, item.config, tmp_path / "part-1", StagePart(1, 2))
    pipeline.run_stage(item.stage, item.config, tmp_path / "part-0", StagePart(0, 2))
    assert [shard.name for shard in sorted((tmp_path / "part-0" / "shards").iterdir())] == ["00000", "00002"]


@pytest.fixture
def parts(world, small_model, tmp_path):
    """Two parts of vectors."""
    item = planned("encode", recipes(world, small_model)["encode"], tmp_path / "part-0")
    for place in range(2):
        pipeline.run_stage(item.stage, item.config, tmp_path / f"part-{place}", StagePart(place, 2))
    return [tmp_path / "part-0", tmp_path / "part-1"]


def test_wrong_parts_are_one_sentence(parts, world, small_model, tmp_path):
    def refused(folders, match):
        with pytest.raises(LiebigError, match=match):
            merge(STAGES, folders, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    refused(parts[:1], "part 2/2 is missing")
    refused([parts[0], parts[0]], "part 2/2 is missing")
    again = shutil.copytree(parts[0], tmp_path / "again")
    refused([*parts, again], "is part 1/2, as .*part-0 is")
    refused([world / "run", *parts], "is not a part")
    refused([*parts, tmp_path / "nowhere"], "there is no such folder")
    recipe = recipes(world, small_model)["encode"] | {"shard": 4}
    other = planned("encode", recipe, tmp_path / "other")
    pipeline.run_stage(other.stage, other.config, other.out, StagePart(1, 2))
    refused([parts[0], other.out], "is a part of something else")
    third = planned("encode", recipes(world, small_model)["encode"], tmp_path / "third")
    pipeline.run_stage(third.stage, third.config, third.out, StagePart(1, 3))
    refused([parts[0], third.out], r"is part 2/3, .*part-0 is part 1/2")
    few = planned("encode", recipes(world, small_model)["encode"], tmp_path / "few")
    pipeline.run_stage(few.stage, few.config, few.out, StagePart(0, 10**8))
    refused([few.out], r"part 2/100000000, .* and 99,999,991 more are missing")
    (parts[1] / "shards" / "00001" / "vectors.npy").write_bytes(b"")
    refused(parts, "does not match the manifest")


def test_what_changed_since_the_parts_were_made_is_not_merged(small_model, tmp_path):
    source = write_collection(tmp_path / "collection")
    item = planned("encode", {"source": str(source), "model": str(small_model)}, tmp_path / "part")
    pipeline.run_stage(item.stage, item.config, item.out, StagePart(0, 2))
    other = tmp_path / "other"
    pipeline.run_stage(item.stage, item.config, other, StagePart(1, 2))
    with (source / "passages.jsonl").open("a") as file:
        file.write('{"id": "x", "title": "", "text": "new", "doc": ""}\n')
    with pytest.raises(LiebigError, match="source has changed since the parts were made"):
        merge(STAGES, [item.out, other], tmp_path / "out")


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(LiebigError, match="is not a part"):
        StagePart.parse(text)


def test_the_command_line_makes_and_merges_parts(world, small_model, tmp_path):
    words = ["encode", str(world / "judged"), "--model", str(small_model), "--shard", "3"]
    for number in ("1", "2"):
        made = [*words, "--part", f"{number}/2", "--out", str(tmp_path / number)]
        assert CliRunner().invoke(make_app(), made).exit_code == 0
    merged = ["merge", str(tmp_path / "1"), str(tmp_path / "2"), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(make_app(), merged).exit_code == 0
    assert CliRunner().invoke(make_app(), [*words, "--out", str(tmp_path / "whole")]).exit_code == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")
