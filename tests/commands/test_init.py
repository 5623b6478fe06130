"""`liebig init` reads any format into a collection, looks at it, and leaves nothing behind when it fails."""

import gzip
import json
import lzma
import subprocess
import sys

import pytest
from rich.console import Console

from liebig.base.config import dump, inputs, parse
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Group, Judgement, Passage, Query
from liebig.base.workspace import stage, verify
from liebig.collection import Collection
from liebig.collection.show_summary import show
from liebig.stages.init import InitConfig, run


def init(out, *paths, **values):
    config = parse(InitConfig, {"paths": [str(path) for path in paths], **values})
    with stage(out, kind="init", recipe=config.model_dump(mode="json"), inputs=inputs(config)) as folder:
        run(config, folder)
    return Collection(out)


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def rows(*found):
    return "".join(json.dumps(row) + "\n" for row in found)


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    corpus = rows(
        {"_id": "d1", "title": "A", "text": "first"},
        {"_id": "d2", "title": "A", "text": "first"},
        {"_id": "1", "title": "", "text": " "},
    )
    queries = rows(
        {"_id": "1", "text": "Who  is it?"}, {"_id": "2", "text": "who is IT?"}, {"_id": "3", "text": "x"}
    )
    put(folder / "corpus.jsonl", corpus)
    put(folder / "queries.jsonl", queries)
    put(folder / "qrels/train.tsv", "query-id\tcorpus-id\tscore\n1\td1\t1\n1\td1\t1\n")
    put(folder / "qrels/test.tsv", "query-id\tcorpus-id\tscore\n2\td1\t1\n2\tnowhere\t1\n9\td2\t1\n")
    return folder


def warnings(collection):
    found = json.loads((collection.path / "summary.json").read_text())["warnings"]
    return {(one["check"], one["count"]): one["examples"] for one in found}


def test_a_collection_holds_what_the_folder_held(beir, tmp_path):
    collection = init(tmp_path / "out", beir)
    assert [p.id for p in collection.passages()] == ["d1", "d2", "1"]
    assert collection.query("2") == Query("2", "who is IT?")
    assert next(collection.judgements("test")) == Judgement("2", "d1", 1)
    assert collection.splits == ("test", "train")
    assert verify(tmp_path / "out").kind == "init"


def test_everything_suspicious_is_found(beir, tmp_path):
    assert warnings(init(tmp_path / "out", beir)) == {
        ("empty", 1): [],
        ("duplicate", 1): ["d1", "d2"],
        ("shared id", 1): ["1"],
        ("dangling", 1): ["9"],
        ("judged twice", 1): [],
        ("leak", 1): ["Who  is it?"],
    }


def test_judgements_that_point_nowhere_are_kept_and_named_on_both_sides(beir, tmp_path):
    collection = init(tmp_path / "out", beir)
    found = json.loads((collection.path / "summary.json").read_text())["warnings"]
    nowhere = [(one["sentence"], one["examples"]) for one in found if one["check"] == "dangling"]
    assert nowhere == [
        ("1 judgements of test name passages that are not in the collection", ["nowhere"]),
        ("1 judgements of test name queries that are not in the collection", ["9"]),
    ]
    assert len(list(collection.judgements("test"))) == 3


@pytest.mark.parametrize(("empty", "kind"), [("corpus.jsonl", "passages"), ("queries.jsonl", "queries")])
def test_judgements_beside_an_empty_file_of_texts_point_nowhere(beir, tmp_path, empty, kind):
    (beir / empty).write_text("")
    found = json.loads((init(tmp_path / "out", beir).path / "summary.json").read_text())["warnings"]
    assert f"3 judgements of test name {kind} that are not in the collection" in {
        one["sentence"] for one in found
    }


def test_judgements_alone_point_nowhere_without_being_a_mistake(tmp_path):
    assert warnings(init(tmp_path / "out", put(tmp_path / "qrels.test.txt", "1 0 7 1\n"), strict=True)) == {}


def test_groups_that_point_nowhere_are_named(tmp_path):
    put(tmp_path / "in" / "collection.tsv", "1\tone\n2\ttwo\n")
    put(tmp_path / "in" / "queries.train.tsv", "7\twho\n")
    put(tmp_path / "in" / "qidpidtriples.train.tsv", "7\t1\t2\n7\t1\t3\n")
    collection = init(tmp_path / "out", tmp_path / "in")
    assert list(collection.groups("train")) == [Group("7", ("1",), ("2", "3"))]
    assert ("dangling", 1) in warnings(collection)


def test_strict_turns_warnings_into_an_error_and_leaves_nothing(beir, tmp_path):
    with pytest.raises(DataError, match="7 warnings, the first: 1 passage without any text"):
        init(tmp_path / "out", beir, strict=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beir"]


def test_bad_files_are_skipped_counted_and_listed(tmp_path, capsys):
    put(tmp_path / "in" / "a.md", "# A\n\nText.\n")
    (tmp_path / "in" / "link.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in" / "old.md").write_bytes("caf\u00e9".encode("latin1"))
    (tmp_path / "in" / "paper.pdf").write_bytes(b"%PDF-1.4 rubbish")
    collection = init(tmp_path / "out", tmp_path / "in")
    assert [document.id for document in collection.documents()] == ["a.md", "old.md"]
    listed = (tmp_path / "out" / "skipped.txt").read_text().splitlines()
    assert listed[0] == "4 files seen = 2 read + 2 not read"
    assert [line.partition(": ")[0].rpartition("/")[2] for line in listed[4:]] == ["link.md", "paper.pdf"]
    assert {check for check, _ in warnings(collection)} == {"skipped", "encoding"}
    shown = capsys.readouterr().out
    assert "2 files were skipped; skipped.txt says why" in shown
    assert "1 file is not UTF-8; the encoding was guessed (e.g. old.md (cp1252))" in shown
    with pytest.raises(DataError, match=r"link\.md: the symlink is broken"):
        init(tmp_path / "strict", tmp_path / "in", strict=True)


def test_where_nothing_can_be_read_the_reason_is_the_error(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.pdf", "b.pdf"):
        (tmp_path / "in" / name).write_bytes(b"%PDF-1.4 rubbish")
    with pytest.raises(DataError, match=r"none of the files can be read; 2 were tried, the first: .*a\.pdf"):
        init(tmp_path / "out", tmp_path / "in")
    with pytest.raises(DataError, match=r"^[^ ]*b\.pdf: cannot be read"):
        init(tmp_path / "out", tmp_path / "in" / "b.pdf")


def test_a_bad_file_among_those_named_is_skipped_but_a_missing_one_is_refused(tmp_path):
    good, bad = put(tmp_path / "a.md", "# A\n"), put(tmp_path / "b.jsonl", "")
    assert [document.id for document in init(tmp_path / "out", good, bad).documents()] == ["a.md"]
    with pytest.raises(DataError, match="no such file"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("liebig.base.workspace.digest", lambda path: "")
        init(tmp_path / "missing", good, tmp_path / "c.md")


def test_strict_has_nothing_against_clean_data(tmp_path):
    put(tmp_path / "collection.tsv", "1\tone\n2\ttwo\n")
    assert init(tmp_path / "out", tmp_path / "collection.tsv", strict=True).count("passages") == 2


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        (
            "corpus.jsonl",
            b'{"_id": "1", "text": "x"}\n{"_id": "1", "text": "y"}\n',
            "line 2: the id '1' was used before",
        ),
        (
            "corpus.jsonl",
            b'{"_id": "1", "text": "x"}\n{"_id": "2", "text": "\\ud800"}\n',
            "line 2: .* half of a character",
        ),
        ("corpus.jsonl", b'{"_id": "\\ud800", "text": "x"}\n', "line 1: .* half of a character"),
        (
            "corpus.jsonl",
            b'{"_id": "1", "text": "x"}\n{"_id": "2", "te\0xt": "x"}\n',
            "line 2: the line contains a NUL",
        ),
        ("collection.tsv", b"1\tx\n2\ty\tz\n", "line 2: the line has 3 tab-separated columns"),
        ("corpus.jsonl.gz", gzip.compress(b'{"_id": "1", "text": "x"}\n' * 1, mtime=0)[:-4], "truncated"),
        ("corpus.jsonl.xz", lzma.compress(b'{"_id": "1", "text": "x"}\n')[:-4], "truncated"),
        ("collection.tsv", b"", "the file is empty"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(tmp_path, name, data, match):
    (tmp_path / name).write_bytes(data)
    fmt = "passages" if name.startswith("corpus") else None
    with pytest.raises(DataError, match=match) as error:
        init(tmp_path / "out", tmp_path / name, format=fmt)
    assert name in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_several_paths_make_one_collection(tmp_path):
    put(tmp_path / "a.jsonl", rows({"id": "1", "title": "", "sections": []}))
    put(tmp_path / "b.jsonl", rows({"id": "2", "title": "", "sections": [{"h": "", "p": ["x"]}]}))
    put(tmp_path / "qrels.dev.txt", "7 0 1 1\n")
    collection = init(
        tmp_path / "out", tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "qrels.dev.txt"
    )
    assert [document.id for document in collection.documents()] == ["1", "2"]
    assert list(collection.judgements("dev")) == [Judgement("7", "1", 1)]


def test_the_same_passage_under_several_questions_is_kept_once(tmp_path):
    context = {"title": "T", "text": "x", "psg_id": "7"}
    row = {"question": "who", "answers": ["x"], "positive_ctxs": [context], "hard_negative_ctxs": []}
    (tmp_path / "train.json").write_text(json.dumps([row, row | {"question": "what"}]))
    collection = init(tmp_path / "out", tmp_path / "train.json")
    assert list(collection.passages()) == [Passage("7", "x", "T")]
    assert [g.positives for g in collection.groups("train")] == [("7",), ("7",)]


def test_questions_of_several_files_keep_their_splits(tmp_path):
    for split in ("train", "dev"):
        put(tmp_path / "nq" / f"{split}.jsonl", rows({"_id": f"{split}-0", "text": split, "answers": ["x"]}))
    collection = init(tmp_path / "out", tmp_path / "nq")
    assert [q.id for q in collection.queries("dev")] == ["dev-0"]


def test_the_limit_keeps_so_many_passages_and_every_query(tmp_path, beir):
    collection = init(tmp_path / "out", beir, limit=2)
    assert (collection.count("passages"), collection.count("queries")) == (2, 3)
    put(tmp_path / "collection.tsv", "".join(f"{n}\ttext {n}\n" for n in range(50)))
    assert init(tmp_path / "b", tmp_path / "collection.tsv", limit=7).count("passages") == 7


def test_the_standard_library_is_a_collection(tmp_path):
    collection = init(tmp_path / "out", "stdlib:heapq,json")
    assert collection.document("heapq.merge").title == "heapq.merge"


def test_a_run_is_refused(tmp_path):
    put(tmp_path / "run.trec", "1 Q0 a 1 2.5 t\n")
    with pytest.raises(DataError, match="this is a run"):
        init(tmp_path / "out", tmp_path / "run.trec")
    assert not (tmp_path / "out").exists()


def test_the_same_input_gives_the_same_bytes(beir, tmp_path):
    for name in ("a", "b"):
        init(tmp_path / name, beir)
    assert verify(tmp_path / "a").outputs == verify(tmp_path / "b").outputs


def test_an_interrupted_init_starts_anew(beir, tmp_path):
    config = parse(InitConfig, {"paths": [str(beir)]})
    arguments = {"kind": "init", "recipe": config.model_dump(mode="json"), "inputs": inputs(config)}
    with pytest.raises(KeyboardInterrupt), stage(tmp_path / "out", **arguments) as folder:
        put(folder.path / "judgements" / "stale.tsv", "a\tb\t1\n")
        raise KeyboardInterrupt
    assert init(tmp_path / "out", beir).splits == ("test", "train")


def test_the_summary_shows_counts_lengths_samples_and_warnings(beir, tmp_path, capsys):
    init(tmp_path / "out", beir)
    shown = capsys.readouterr().out
    for part in ("beir", "passages", "Length of passages", "median", "Samples of queries", "look at:"):
        assert part in shown


def test_texts_with_brackets_and_colons_are_shown_as_they_are(tmp_path, capsys):
    put(tmp_path / "collection.tsv", "1\t[bold]not markup[/bold] :smile: \x1b[31m\n")
    init(tmp_path / "out", tmp_path / "collection.tsv")
    shown = capsys.readouterr().out
    assert "[bold]not markup[/bold] :smile:" in shown
    assert "\x1b" not in shown


def test_show_lists_a_few_sources_only():
    summary = {"sources": [{"path": f"file{n}", "format": "lines", "because": "x"} for n in range(9)]}
    summary |= {"counts": {}, "repeated": {}, "lengths": {}, "samples": {}, "warnings": []}
    with Console(file=open("/dev/null", "w"), record=True) as console:
        show(summary, console)
    assert "and 3 more files" in console.export_text()


def test_a_format_that_is_unknown_is_explained_with_the_nearest(tmp_path):
    with pytest.raises(RecipeError, match=r"format = 'biere': is none of the choices.*write 'beir'"):
        parse(InitConfig, {"paths": [str(tmp_path)], "format": "biere"})


def test_paths_that_are_names_are_no_inputs_and_the_rest_are(tmp_path):
    config = parse(InitConfig, {"paths": ["-", "stdlib:", "hf:org/name", str(tmp_path)]})
    assert list(inputs(config).values()) == [tmp_path]
    assert config.paths[:3] == ("-", "stdlib:", "hf:org/name")


def test_the_recipe_comes_back_from_its_dump(tmp_path):
    config = parse(InitConfig, {"paths": "stdlib:", "limit": 5})
    path = put(tmp_path / "r.toml", dump(config))
    from liebig.base.config import load

    assert load(InitConfig, path) == config


def test_no_paths_are_refused():
    with pytest.raises(RecipeError):
        parse(InitConfig, {"paths": []})


@pytest.mark.slow
def test_memory_stays_small_however_long_the_corpus(tmp_path):
    """40 MB of passages must not add 40 MB."""
    with gzip.open(tmp_path / "collection.tsv.gz", "wt", compresslevel=1) as file:
        for n in range(40_000):
            file.write(f"{n}\t{'word ' * 200}{n}\n")
    code = (
        "import sys, resource\nfrom pathlib import Path\nfrom liebig.stages.init import run\n"
        "from liebig.stages.init import InitConfig\nfrom liebig.base.workspace import Folder\n"
        "out = Path(sys.argv[2]); out.mkdir()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "run(InitConfig(paths=[sys.argv[1]]), Folder(out, out, False))\n"
        "print('GROWN', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "collection.tsv.gz"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = int(done.stdout.split("GROWN")[1])
    unit = 1 if sys.platform == "darwin" else 1024
    assert grown * unit < 25 << 20


def test_a_collection_is_not_written_into_the_folder_it_is_read_from(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("One sentence of text.")
    with pytest.raises(DataError, match="is inside this input folder"):
        init(tmp_path / "texts" / "collection", tmp_path / "texts")
    assert [p.name for p in (tmp_path / "texts").iterdir()] == ["a.txt"]


def test_a_piped_summary_has_a_line_for_every_line(tmp_path, capsys):
    init(
        tmp_path / "c",
        put(tmp_path / "in.jsonl", rows({"_id": "1", "title": "", "text": "many words " * 30})),
    )
    assert "many words " * 20 in capsys.readouterr().out
