"""What goes wrong outside of our code ends in one sentence and exit code 2: full disks, recipes, damaged files."""

import errno
import json
import os

import pytest
import torch
import typer
from typer.testing import CliRunner

from liebig.base import npy, pipeline
from liebig.base.config import load
from liebig.base.errors import CorruptError, LiebigError, ModelError, RecipeError
from liebig.base.json_file import read_json
from liebig.base.progress import say, visible
from liebig.builder import questions, user_questions
from liebig.builder.build import BuildConfig
from liebig.cli import make_app, reported
from liebig.evaluation.results import read_results
from liebig.queries.labelled_pairs import labels_of
from liebig.stages import STAGES
from liebig.train.checkpoint import Checkpoints, read
from liebig.train.log import read_log
from liebig.train.loop import StepPlan


class LibraryError(Exception):
    """Stands for safetensors' and ONNX' own errors, which know no error numbers."""


def wrapped():
    try:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")
    except OSError as error:
        raise LibraryError("the writer failed") from error


FULL = [
    lambda: (_ for _ in ()).throw(LibraryError("I/O error: No space left on device (os error 28)")),
    lambda: (_ for _ in ()).throw(RuntimeError("Error in write: 0 != 100 (No space left on device)")),
    lambda: (_ for _ in ()).throw(OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))),
    lambda: (_ for _ in ()).throw(OSError("512 requested and 496 written")),
    wrapped,
]


@pytest.mark.parametrize("fail", FULL)
def test_a_full_disk_is_one_sentence_whoever_notices_it(fail, capsys):
    with pytest.raises(typer.Exit) as caught, reported():
        fail()
    assert caught.value.exit_code == 2
    said = capsys.readouterr().err
    assert "free some space and run the same command again" in said
    assert len(said.splitlines()) == 1


def test_a_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(LibraryError), reported():
        raise LibraryError("nothing that a user could fix")


@pytest.mark.parametrize(
    ("error", "what"),
    [(MemoryError(), "not enough memory. To fix it"),
     (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory. To fix it"),
     (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "not enough memory on the GPU"),
     (RuntimeError("CUDA error: out of memory\nSearch for `cudaError'"), "not enough memory on the GPU"),
     (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "not enough memory on the GPU")],
)  # fmt: skip
def test_too_little_memory_is_one_sentence(error, what, capsys):
    with pytest.raises(typer.Exit) as caught, reported():
        raise error
    assert caught.value.exit_code == 2
    said = capsys.readouterr().err
    assert what in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", ".", "", ".hidden", "a\\b", "a\0b"])
def test_a_stage_writes_nowhere_but_in_out(tmp_path, name):
    with pytest.raises(RecipeError, match="is not a plain name"):
        pipeline.plan_stages(STAGES, {name: {"kind": "bm25", "collection": "x"}}, tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    ["[" + ".".join("a" * 3000) + "]\nb = 1\n", "a = " + "[" * 400 + "]" * 400, 'sources = ["a\\u0000b"]\n'],
    ids=["tables", "lists", "NUL"],
)
def test_a_recipe_that_no_step_can_handle_is_one_sentence(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"nested too deeply|NUL character"):
        load(BuildConfig, tmp_path / "r.toml")


@pytest.mark.parametrize("override", [".".join("a" * 3000) + "=1", "language=a\0b"])
def test_an_override_that_no_step_can_handle_is_one_sentence(override):
    with pytest.raises(RecipeError, match=r"nested too deeply|NUL character"):
        load(BuildConfig, None, [override], {"sources": ["x"]})


def test_a_negative_seed_is_refused_by_every_stage():
    for stage in STAGES.values():
        field = stage.config.model_fields.get("seed")
        if field is not None:
            assert any(getattr(rule, "ge", None) == 0 for rule in field.metadata), stage.name
    result = CliRunner().invoke(make_app(), ["build", "x", "--out", "y", "--seed", "-1"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_text_cannot_steer_the_terminal(capsys):
    hostile = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\x7f\r"
    assert "\x1b" not in visible(hostile)
    assert visible("plain\ttext\nand ümlaut") == "plain\ttext\nand ümlaut"
    say(hostile)
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(capsys.readouterr().err)


def test_a_search_prints_no_terminal_escapes():
    from liebig.bm25.analysis import Analyzer
    from liebig.commands.search import document_cell
    from liebig.search.answer import Result, by_document

    hit = Result(
        id="id\x1b[1m", rank=1, score=0.5, title="title\x1b[2J", text="a comet\x1b]0;gotcha\x07 passes", doc="d\x1b",
        metadata={"path": "p\x1b", "line": "1"}, ranks={},
    )  # fmt: skip
    assert "\x1b" not in document_cell(by_document([hit])[0], "comet", Analyzer()).plain


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b"null", b"{}", b'{"digest": 1}', b"[" * 100_000, b"\xff\xfe", b'{"step": "x"}']
)
def test_a_damaged_checkpoint_is_a_sentence(tmp_path, damage):
    folder = tmp_path / "checkpoints" / "step-00000001"
    folder.mkdir(parents=True)
    (folder.parent / "step-of-mine").mkdir()
    (folder / "state.json").write_bytes(damage)
    (folder.parent / "best.json").write_bytes(damage)
    with pytest.raises(CorruptError, match="damaged"):
        read(folder)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.steps() == [1]
    assert checkpoints.best() is None
    with pytest.raises(CorruptError):
        checkpoints.newest(lambda line: None)


@pytest.mark.parametrize("damage", [b"{\n", b"null\n", b'{"loss": 1}\n', b"\xff\n", b"[" * 100_000 + b"\n"])
def test_a_damaged_log_is_a_sentence(tmp_path, damage):
    (tmp_path / "log.jsonl").write_bytes(json.dumps({"step": 1}).encode() + b"\n" + damage)
    with pytest.raises(CorruptError, match=r"log\.jsonl: is damaged"):
        read_log(tmp_path)
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n{"ste')
    assert read_log(tmp_path) == [{"step": 1}]


def test_a_graph_that_is_none_is_a_sentence(tmp_path):
    pytest.importorskip("onnxruntime")
    from liebig.model.onnx_graph import GRAPH, OnnxModel

    (tmp_path / GRAPH).write_bytes(b"no graph")
    with pytest.raises(ModelError, match="the graph cannot be loaded"):
        OnnxModel(tmp_path, None)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4L,), }",  # numpy's reader accepts it, with a warning
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1, }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (4,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,), }",
        "{'descr': [], 'fortran_order': False, 'shape': 4, }",
        "{'descr': ((),), 'fortran_order': False, 'shape': (4,), }",
        "[" * 5000,
        "",
    ],
)
def test_an_array_with_another_header_is_refused_without_a_warning(tmp_path, recwarn, header):
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(16)
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(CorruptError, match=r"x\.npy: cannot be mapped"):
        npy.load(tmp_path / "x.npy")
    assert not recwarn.list


READERS = {
    "notes.json": user_questions.notes_of,
    "questions.jsonl": questions.read,
    "generation.json": labels_of,
    "results.json": read_results,
    "plan.json": lambda folder: read_json(folder / "plan.json", StepPlan),
}


@pytest.mark.parametrize("text", ["false", "[1]", '{"a": ', '{"labels": 3, "total": "x"}', "[" * 9999])
@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_stage_with_other_contents_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text + "\n")
    with pytest.raises(LiebigError, match=name):
        READERS[name](tmp_path)
