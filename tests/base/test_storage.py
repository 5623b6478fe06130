"""Folders at addresses: what a stage writes there has the bytes of a local run, and nobody reads half of a folder."""

import json
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from liebig.base import pipeline, storage
from liebig.base.errors import LiebigError
from liebig.cli import make_app
from liebig.search.retriever import Retriever
from tests.base.test_parts import files, planned
from tests.search.conftest import make_folder, write_collection

fsspec = pytest.importorskip("fsspec")
DOCUMENTS = {"d": ("A title", "en", "One text.", "Two texts.", "Three texts.", "Four texts.")}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LIEBIG_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def put(memory, folder, address):
    whole = shutil.copytree(folder, folder.with_name(folder.name + " without links"))
    memory.put(str(whole), address.removeprefix("memory:/"), recursive=True)


def names(memory, address):
    root = address.removeprefix("memory:/")
    return {name.removeprefix(root + "/") for name in memory.find(root)}


def liebig(*words, code=0):
    done = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def encoded(tmp_path, model):
    """A collection, and its vectors of a local run."""
    source = write_collection(tmp_path / "collection", DOCUMENTS)
    item = planned("encode", {"source": str(source), "model": str(model), "shard": 1}, tmp_path / "local")
    pipeline.run_stage(item.stage, item.config, item.out)
    return source, item.out


def test_a_stage_reads_and_writes_addresses(cache, small_model, tmp_path):
    source, local = encoded(tmp_path, small_model)
    put(cache, source, "memory://bucket/collection")
    command = ("encode", "memory://bucket/collection", "--model", small_model, "--shard", "1")
    liebig(*command, "--out", "memory://bucket/vectors")
    assert names(cache, "memory://bucket/vectors") == {*files(local), "manifest.json"}
    assert files(storage.fetched(Path("memory://bucket/vectors"))) == files(local)
    manifest = json.loads(cache.cat("/bucket/vectors/manifest.json"))
    assert manifest["recipe"]["source"] == "memory:/bucket/collection", "which is the same on every machine"
    # On another machine, which has no copies; the vectors are read there.
    shutil.rmtree(tmp_path / "cache")
    liebig("index", "memory://bucket/vectors", "--out", tmp_path / "index")
    assert (tmp_path / "index" / "manifest.json").is_file()


def test_parts_at_addresses_are_merged_to_the_same_bytes(cache, small_model, tmp_path):
    source, local = encoded(tmp_path, small_model)
    parts = [f"memory://bucket/parts/{number}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        liebig(
            "encode", source, "--model", small_model, "--shard", "1", "--part", f"{number}/2", "--out", part
        )
    liebig("merge", *parts, "--out", "memory://bucket/whole")
    assert files(storage.fetched(Path("memory://bucket/whole"))) == files(local)
    said = liebig("merge", parts[0], "--out", "memory://bucket/other", code=2)
    assert "part 2/2 is missing" in said
    assert not cache.exists("/bucket/other")


def test_a_retriever_is_searched_at_its_address_and_what_changed_is_fetched(cache, small_model, tmp_path):
    folder = make_folder(tmp_path / "retriever", small_model)
    put(cache, folder, "memory://bucket/retriever")
    ours = Retriever.from_folder(folder).search("growth of barley")
    theirs = Retriever.from_folder("memory://bucket/retriever").search("growth of barley")
    assert [hit.id for hit in theirs] == [hit.id for hit in ours]
    said = json.loads(liebig("search", "memory://bucket/retriever", "growth of barley", "--json"))
    assert [row["id"] for row in said["results"]] == [hit.id for hit in ours][: len(said["results"])]
    copy, fetched = storage.place("memory://bucket/retriever"), []
    get = type(cache).get
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cache), "get", lambda self, rs, ls: (fetched.extend(rs), get(self, rs, ls)))
        storage.fetched(Path("memory://bucket/retriever"))
        assert fetched == []
        cache.pipe("/bucket/retriever/note.txt", b"new")
        cache.rm_file("/bucket/retriever/report.html") if cache.exists(
            "/bucket/retriever/report.html"
        ) else None
        storage.fetched(Path("memory://bucket/retriever"))
    assert fetched == ["/bucket/retriever/note.txt"]
    assert (copy / "note.txt").read_bytes() == b"new"


@pytest.mark.slow
def test_a_retriever_is_built_and_updated_from_an_address_at_an_address(cache, small_model, tmp_path):
    for number in range(4):
        cache.pipe(
            f"/bucket/notes/{number}.md",
            f"# Note {number}\n\nNote {number} is about item {number}.\n".encode(),
        )
    address = "memory://bucket/retriever"
    liebig("build", "memory://bucket/notes", "--minutes", "0", "--model", small_model, "--out", address)
    cache.pipe("/bucket/notes/rye.md", b"# Rye\n\nRye grows where wheat does not.\n")
    cache.rm_file("/bucket/notes/0.md")
    liebig("update", address)
    shutil.rmtree(tmp_path / "cache")
    said = json.loads(liebig("search", address, "rye", "--system", "bm25", "--json"))
    assert said["results"][0]["title"] == "Rye"
    said = json.loads(liebig("search", address, "item 0", "--system", "bm25", "--json"))
    assert "Note 0" not in {row["title"] for row in said["results"]}


def test_a_writer_that_was_killed_leaves_an_unfinished_folder_and_the_same_command_completes_it(
    cache, small_model, tmp_path, monkeypatch
):
    source, local = encoded(tmp_path, small_model)
    command = ("encode", source, "--model", small_model, "--shard", "1", "--out", "memory://bucket/vectors")
    liebig(*command)
    command = (*command, "--type", "int8")
    put_all = type(cache).put

    def lose_connection(self, sources, targets):
        put_all(self, sources[:1], targets[:1])
        raise ConnectionError("connection lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cache), "put", lose_connection)
        said = liebig(*command, code=2)
    assert "memory://bucket/vectors: the storage does not answer: connection lost" in said
    with pytest.raises(LiebigError, match="memory://bucket/vectors: is not finished"):
        storage.fetched(Path("memory://bucket/vectors"))
    liebig(*command)
    again = planned(
        "encode", {"source": str(source), "model": str(small_model), "shard": 1, "type": "int8"}, local
    )
    pipeline.run_stage(again.stage, again.config, tmp_path / "int8")
    assert files(storage.fetched(Path("memory://bucket/vectors"))) == files(tmp_path / "int8")


def test_what_others_wrote_is_not_replaced(cache, small_model, tmp_path):
    source, _ = encoded(tmp_path, small_model)
    cache.pipe("/bucket/thesis/chapter.txt", b"mine")
    said = liebig("encode", source, "--model", small_model, "--out", "memory://bucket/thesis", code=2)
    assert "memory://bucket/thesis: already exists and was not created by Liebig" in said
    assert names(cache, "memory://bucket/thesis") == {"chapter.txt"}


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("memory://bucket/nothing", "memory://bucket/nothing: there is no such file or folder"),
        (
            "nowhere://bucket/vectors",
            "nowhere://bucket/vectors: the storage does not answer: Protocol not known",
        ),
        ("memory://bucket/../vectors", "an address cannot have .. in it"),
        ("ftp://ann:secret@host/vectors", "an address cannot have a password in it (ftp://…@host)"),
    ],
)
def test_a_wrong_address_is_one_sentence(address, sentence, tmp_path):
    said = liebig("index", address, "--out", tmp_path / "index", code=2)
    assert sentence in said
    assert "secret" not in said
    assert not (tmp_path / "index").exists()


def test_a_package_that_is_missing_is_named(monkeypatch, tmp_path):
    def refuse(name, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", refuse)
    said = liebig("index", "s3://bucket/vectors", "--out", tmp_path / "index", code=2)
    assert "s3://bucket/vectors: needs another package: Install s3fs to access S3" in said


def test_the_stages_of_a_recipe_are_added_to_a_run_at_an_address(cache, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"_id": "a", "text": "Some text."}\n')
    recipe = tmp_path / "recipe.toml"
    stage = f'[stages.NAME]\nkind = "init"\npaths = ["{(tmp_path / "texts.jsonl").as_posix()}"]\n'
    recipe.write_text(stage.replace("NAME", "first"))
    liebig("run", recipe, "--out", "memory://bucket/run")
    first = names(cache, "memory://bucket/run")
    assert "first/manifest.json" in first
    storage.fetched(Path("memory://bucket/run/first"))  # notes of this copy are no part of the run's
    recipe.write_text(stage.replace("NAME", "first") + stage.replace("NAME", "second"))
    liebig("run", recipe, "--out", "memory://bucket/run")
    second = {name.replace("first/", "second/", 1) for name in first if name.startswith("first/")}
    assert names(cache, "memory://bucket/run") == first | second


def test_names_that_leave_the_folder_are_refused(cache, monkeypatch):
    cache.pipe("/bucket/folder/name", b"")
    found = {"/bucket/folder/../../../escaped": {"size": 0}}
    monkeypatch.setattr(type(cache), "find", lambda self, root, detail: found)
    with pytest.raises(LiebigError, match="has a file of the name"):
        storage.fetched(Path("memory://bucket/folder"))


def test_names_that_are_other_files_on_windows_are_refused_there(cache, monkeypatch):
    cache.pipe("/bucket/folder/D:escaped", b"")
    monkeypatch.setattr(storage, "WINDOWS", True)
    with pytest.raises(LiebigError, match="has a file of the name 'D:escaped'"):
        storage.fetched(Path("memory://bucket/folder"))


def test_a_copy_lies_at_a_path_that_windows_allows(tmp_path):
    copy = storage.place("http://127.0.0.1:80/notes?version=1")
    assert copy == tmp_path / "cache" / "shared" / "http" / "127.0.0.1%3A80" / "notes%3Fversion=1"


def test_the_workers_of_a_cluster_read_and_write_addresses_by_themselves(cache, small_model, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "liebig.on_ray.run_on_ray", lambda stage, config, out, *more: calls.append((config, out))
    )
    address = "memory://bucket/texts.jsonl"
    cache.pipe("/bucket/texts.jsonl", b'{"_id": "a", "text": "Some text."}\n')
    command = ("encode", address, "--model", small_model, "--on", "ray", "--out", "memory://bucket/vectors")
    liebig(*command)
    [(config, out)] = calls
    assert (config.source, out) == (Path(address), Path("memory://bucket/vectors"))
    assert not storage.place(address).exists()


def test_processes_of_torchrun_do_not_write_an_address(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(LiebigError, match="several processes cannot write one address"),
        storage.published(Path("memory://bucket/vectors")),
    ):
        pass


def test_a_folder_of_this_machine_with_such_a_name_is_that_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s3:/bucket").mkdir(parents=True)
    assert storage.address("s3:/bucket") is None
    assert storage.address(Path("s3://bucket/other")) == "s3://bucket/other"
    assert storage.address("C:/folder") is None
    assert storage.address("http://127.0.0.1:1/folder") == "http://127.0.0.1:1/folder"


def test_a_file_is_read_from_a_web_server(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "texts.jsonl").write_text('{"_id": "a", "text": "Some text."}\n')
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "web"))
    handler.log_message = lambda *args: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        liebig("init", f"http://127.0.0.1:{server.server_port}/texts.jsonl", "--out", tmp_path / "collection")
        server.shutdown()
    assert "Some text." in (tmp_path / "collection" / "passages.jsonl").read_text()
