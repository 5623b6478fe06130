"""Encoding: the vectors of the encoder itself, whatever the windows, shards, interruptions and processes."""

import itertools
import json
import shutil
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from typer.testing import CliRunner

from liebig import encoders
from liebig.base import pipeline, workspace
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Passage
from liebig.cli import make_app
from liebig.indexes import open_index
from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder, TorchModel
from liebig.model.kernels import int8
from liebig.model.packed import Packed
from liebig.model.pooling import Normalize
from liebig.ragged import Ragged
from liebig.search import embed, pieces as cutting
from liebig.search.encode_texts import read_items, sentence_items
from liebig.search.pieces import Frame
from liebig.search.token_windows import TextItem, Workers, sentence_parts
from liebig.stages import encode as command
from liebig.stages.encode import EncodeConfig, precision_of, run
from liebig.text.layout import RoleLayout
from liebig.text.tokenizer import Tokenizer
from liebig.vectors import Vectors
from tests.worlds.processes import together

WORDS = (
    "soil barley nutrient law of the minimum chemistry agriculture corpus condenses retriever fox dog lazy"
)
WORDS = WORDS.split(" ")


def sentences(n, seed=0, longest=30):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, longest))) for _ in range(n)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny encoder with a query prompt, in a folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train(sentences(50), vocab_size=120, max_length=32)
    backbone = Backbone.create(
        layers=2, width=32, heads=4, vocab_size=tokenizer.vocab_size, max_positions=32, initializer_range=0.2
    )
    Encoder(backbone, tokenizer, pooling="mean", prompts={"query": "law: "}, max_length=24).save(folder)
    return folder


@pytest.fixture
def collection(tmp_path):
    folder = tmp_path / "collection"
    folder.mkdir()
    rows = [{"id": f"p{i}", "title": "soil" if i % 3 else "", "text": t} for i, t in enumerate(sentences(50))]
    (folder / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"id": f"q{i}", "text": text} for i, text in enumerate(sentences(7, seed=1, longest=5))]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    return folder


def encoded(out, **values):
    with workspace.stage(
        out, kind="encode", recipe={}, inputs={}, resume=values.pop("resume", False)
    ) as folder:
        run(EncodeConfig.model_validate({"device": "cpu", "type": "fp32", **values}), folder)
    return whole(out)


def whole(path):
    """Ids and vectors of a folder."""
    ids, parts = [], []
    for names, vectors in Vectors.open(path).chunks(1000):
        ids += names
        parts.append(vectors)
    return ids, np.concatenate(parts)


def texts_of(collection, what):
    return list(read_items(collection, what))


@pytest.mark.parametrize("what, prompt", [("passages", "passage"), ("queries", "query")])
def test_vectors_are_the_encoders_own(tmp_path, model, collection, what, prompt):
    ids, vectors = encoded(tmp_path / "v", source=collection, model=model, what=what)
    wanted = texts_of(collection, what)
    assert ids == [item.id for item in wanted]
    direct = Encoder.load(model).encode_texts([item.record for item in wanted], prompt=prompt)
    np.testing.assert_allclose(vectors, direct, atol=2e-6)


def test_windows_shards_and_budgets_change_nothing(tmp_path, model, collection):
    one = encoded(tmp_path / "a", source=collection, model=model)
    for number, (shard, window, budget) in enumerate([(7, 3, 40), (10, 100, 1), (16, 8, 4096)]):
        other = encoded(
            tmp_path / f"b{number}", source=collection, model=model, shard=shard, window=window, budget=budget
        )
        assert other[0] == one[0]
        np.testing.assert_allclose(other[1], one[1], atol=2e-6)
        assert len(list((tmp_path / f"b{number}" / "shards").iterdir())) == -(-50 // shard)


@pytest.mark.parametrize("kind, error", [("fp16", 1e-3), ("int8", 1e-2)])
def test_types_round_within_their_error(tmp_path, model, collection, kind, error):
    exact = encoded(tmp_path / "a", source=collection, model=model, unit=True)[1]
    assert (
        np.abs(encoded(tmp_path / "b", source=collection, model=model, unit=True, type=kind)[1] - exact).max()
        < error
    )
    np.testing.assert_allclose(np.linalg.norm(exact, axis=1), 1, rtol=1e-5)


def test_an_interrupted_run_goes_on_and_equals_an_uninterrupted_one(tmp_path, model, collection, monkeypatch):
    from liebig.search import encode_shards as module

    wanted = encoded(tmp_path / "whole", source=collection, model=model, shard=10)
    written = []

    def stop(path, *rest):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        write(path, *rest)

    write = module.write_shard
    monkeypatch.setattr(module, "write_shard", stop)
    with pytest.raises(KeyboardInterrupt):
        encoded(tmp_path / "v", source=collection, model=model, shard=10)
    assert len(written) == 3
    monkeypatch.setattr(module, "write_shard", lambda path, *rest: (written.append(path), write(path, *rest)))
    got = encoded(tmp_path / "v", source=collection, model=model, shard=10, resume=True)
    assert len(written) == 5
    assert got[0] == wanted[0]
    np.testing.assert_allclose(got[1], wanted[1], atol=1e-6)


def encode_shared(world, out, collection, model):
    config = EncodeConfig(source=collection, model=model, device="cpu", type="fp32", shard=8)
    if world.rank == 0:
        with workspace.stage(out, kind="encode", recipe={}, inputs={}, resume=False) as folder:
            run(config, folder)
    else:
        run(config, workspace.Folder(out.with_name(out.name + ".partial"), out, False))


def test_two_processes_equal_one(tmp_path, model, collection):
    wanted = encoded(tmp_path / "one", source=collection, model=model, shard=8)
    together(encode_shared, 2, tmp_path / "processes", tmp_path / "two", collection, model)
    ids, vectors = whole(tmp_path / "two")
    assert ids == wanted[0]
    np.testing.assert_allclose(vectors, wanted[1], atol=1e-6)


def test_workers_tokenise_the_same(tmp_path, model, collection, forked_helpers):
    one = encoded(tmp_path / "a", source=collection, model=model, window=8)
    two = encoded(tmp_path / "b", source=collection, model=model, window=8, workers=1)
    assert one[0] == two[0]
    np.testing.assert_allclose(one[1], two[1], atol=1e-6)


def test_long_texts_become_pieces_that_fold(tmp_path, model, collection):
    ids, vectors = encoded(
        tmp_path / "v", source=collection, model=model, long="max", max_length=12, overlap=2
    )
    assert len(ids) > 50
    assert {id.rpartition("#")[0] for id in ids} == {f"p{i}" for i in range(50)}
    first = encoded(tmp_path / "f", source=collection, model=model, long="first", max_length=12)[1]
    firsts = [i for i, id in enumerate(ids) if id.endswith("#0")]
    np.testing.assert_allclose(vectors[firsts], first, atol=2e-6)
    assert open_index(tmp_path / "v").about["pieces"] is True


FRAME = Frame(np.array([101], np.int32), np.array([102], np.int32), np.array([7], np.int32), 8)


def test_pieces_cover_every_token_with_the_overlap_asked_for():
    window = Ragged(np.arange(30, dtype=np.int32), np.array([0, 5, 25, 25, 30]))
    pieces = cutting.all_pieces(window, FRAME, overlap=2, most=None)
    assert pieces.text.tolist() == [0, 1, 1, 1, 1, 1, 1, 2, 3]
    of_long = [(int(s), int(s + n)) for t, s, n in zip(pieces.text, pieces.start, pieces.size) if t == 1]
    assert of_long == [(5, 11), (9, 14), (12, 17), (15, 20), (18, 23), (21, 25)]
    assert cutting.lengths(pieces, FRAME).max() <= FRAME.length
    assert cutting.all_pieces(window, FRAME, 2, most=2).text.tolist() == [0, 1, 1, 2, 3]


def test_rows_hold_special_tokens_and_the_prompt_of_later_pieces():
    window = Ragged(np.arange(1, 11, dtype=np.int32), np.array([0, 10]))
    pieces = cutting.all_pieces(window, FRAME, overlap=0, most=None)
    ((tokens, numbers),) = cutting.packed_rows(window, pieces, FRAME, 100)
    assert tokens.to_lists() == [[101, 1, 2, 3, 4, 5, 6, 102], [101, 7, 7, 8, 9, 10, 102]]
    assert numbers.tolist() == [0, 1]


def test_any_file_is_read(tmp_path, model):
    (tmp_path / "corpus.jsonl").write_text('{"_id": "x", "title": "Soil", "text": "law"}\n')
    (found,) = read_items(tmp_path / "corpus.jsonl", "passages")
    assert (found.id, found.record) == ("x", Passage("x", "law", "Soil"))


def test_an_id_that_occurs_twice_is_refused(tmp_path, model):
    (tmp_path / "c.jsonl").write_text('{"_id": "x", "text": "law"}\n' * 1 + '{"_id": "y", "text": "soil"}\n')
    folder = tmp_path / "collection"
    folder.mkdir()
    (folder / "passages.jsonl").write_text('{"id": "x", "text": "law"}\n{"id": "x", "text": "soil"}\n')
    with pytest.raises(DataError, match="twice"):
        encoded(tmp_path / "v", source=folder, model=model, shard=1)


def test_a_model_for_cosine_gives_unit_vectors(tmp_path, collection):
    tokenizer = Tokenizer.train(sentences(50), vocab_size=120, max_length=32)
    backbone = Backbone.create(layers=1, width=32, heads=4, vocab_size=tokenizer.vocab_size, max_positions=32)
    Encoder(backbone, tokenizer, tail=[Normalize()], similarity="cosine").save(tmp_path / "m")
    vectors = encoded(tmp_path / "v", source=collection, model=tmp_path / "m")[1]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "xlm-roberta"])
def test_the_lean_forward_computes_what_the_backbone_computes(family):
    import torch

    from liebig.model.kernels.lean_forward import LeanForward, supports
    from liebig.model.packed import Packed

    backbone = Backbone.create(
        layers=3, width=32, heads=4, vocab_size=90, max_positions=40, family=family, initializer_range=0.2
    ).eval()
    for name, parameter in backbone.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)  # they are zero at first, and would not be missed
    random = np.random.default_rng(0)
    packed = Packed.from_lists([random.integers(5, 90, n).tolist() for n in (9, 1, 17, 9, 30)])
    assert supports(backbone)
    with torch.inference_mode():
        forward = LeanForward(backbone)
        for _ in range(2):
            torch.testing.assert_close(forward(packed), backbone(packed).last, atol=2e-5, rtol=1e-5)


def test_other_families_and_activations_keep_their_own_forward():
    from liebig.model.kernels.lean_forward import supports

    small = {"layers": 1, "width": 32, "heads": 4, "vocab_size": 90, "max_positions": 40}
    assert not supports(Backbone.create(family="modernbert", **small))
    other = Backbone.create(family="bert", **small)
    other.config.hidden_act = "relu"
    assert not supports(other)


def test_a_device_that_is_not_there_is_a_recipe_error(tmp_path, model, collection):
    with pytest.raises(RecipeError, match="no such device"):
        encoded(tmp_path / "v", source=collection, model=model, device="banana")
    assert not (tmp_path / "v.partial").exists()


def test_an_overlap_as_long_as_a_piece_is_refused(tmp_path, model, collection):
    with pytest.raises(RecipeError, match="room for 10 tokens"):
        encoded(tmp_path / "v", source=collection, model=model, long="max", max_length=12, overlap=10)


def test_a_file_of_another_kind_says_what_it_holds(tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "what is barley?"}\n')
    with pytest.raises(DataError, match="--what queries"):
        list(read_items(tmp_path / "queries.jsonl", "documents"))


@pytest.mark.parametrize("count", [0, 1])
def test_workers_are_gone_when_they_are_left(tmp_path, count):
    tokenizer = Tokenizer.train(["stone river bread"], "wordpiece", 100, True)
    tokenizer.save(tmp_path)
    groups = [[TextItem(str(i), "stone " * i)] for i in range(1, 4)]
    with Workers(tokenizer, tmp_path, count) as workers:
        found = list(workers.windows(groups, RoleLayout(tokenizer, 512)))
    assert [batch.ids for batch in found] == [["1"], ["2"], ["3"]]
    assert [batch.window.values.tolist() for batch in found] == [
        tokenizer.encode(g[0].record) for g in groups
    ]
    with pytest.raises(RuntimeError, match="after shutdown"):
        list(workers.windows(groups, RoleLayout(tokenizer, 512)))


@pytest.mark.parametrize(
    ("most", "told", "threads"), [(12, None, True), (12, "false", False), (3, None, False), (0, None, False)]
)
def test_many_free_cores_tokenise_by_the_librarys_threads(tmp_path, most, told, threads, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if told is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", told)
    tokenizer = Tokenizer.train(["stone river bread, and </s> stones!"], "bpe", 300, True)
    texts = [f"river {'stone ' * (i % 7)}</s> breaded\u00a0{i}" for i in range(23)]
    used, real = [], Tokenizer.encode_packed
    monkeypatch.setattr(
        Tokenizer, "encode_packed", lambda self, texts: used.append(self) or real(self, texts)
    )
    groups = [[TextItem(str(i), text) for i, text in enumerate(texts[n : n + 8])] for n in range(0, 23, 8)]
    with Workers(tokenizer, tmp_path, most=most) as workers:
        found = list(workers.windows(groups, RoleLayout(tokenizer, 512)))
    assert used == [tokenizer.threaded if threads else tokenizer] * 3
    assert tokenizer.threaded is not tokenizer
    assert [row.tolist() for batch in found for row in batch.window] == tokenizer.encode_batch(texts)
    assert {batch.window.values.dtype for batch in found} == {np.dtype(np.int32)}


def test_a_compiled_tokenizer_takes_several_windows_at_once(tmp_path, monkeypatch):
    tokenizer = Tokenizer.train(["stone river bread"], "wordpiece", 100, True)
    together, real = threading.Barrier(3, timeout=60), Tokenizer.encode_packed

    def wait_for_the_others(self, texts):
        together.wait()
        return real(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_packed", wait_for_the_others)
    groups = [[TextItem(str(i), "stone " * i)] for i in range(1, 4)]
    with Workers(tokenizer, tmp_path, most=3) as workers:
        batches = list(workers.windows(groups, RoleLayout(tokenizer, 512)))
    expected = [real(tokenizer, [group[0].record]).to_lists() for group in groups]
    assert [batch.ids for batch in batches] == [["1"], ["2"], ["3"]]
    assert [batch.window.to_lists() for batch in batches] == expected


def test_a_window_is_tokenised_while_the_next_is_read(tmp_path, monkeypatch):
    tokenizer = Tokenizer.train(["stone river bread"], "wordpiece", 100, True)
    began, real = threading.Event(), Tokenizer.encode_packed
    monkeypatch.setattr(Tokenizer, "encode_packed", lambda self, texts: began.set() or real(self, texts))

    def groups():
        yield [TextItem("1", "stone")]
        assert began.wait(60)
        yield [TextItem("2", "river")]

    with Workers(tokenizer, tmp_path) as workers:
        found = list(workers.windows(groups(), RoleLayout(tokenizer, 512)))
    assert [batch.ids for batch in found] == [["1"], ["2"]]


def test_the_model_gets_a_window_that_is_ready_once_there_is_another(tmp_path, monkeypatch):
    def at_once(work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future

    tokenizer = Tokenizer.train(["stone river bread"], "wordpiece", 100, True)
    groups = ([TextItem(str(i), "stone")] for i in range(5))
    with Workers(tokenizer, tmp_path) as workers:
        monkeypatch.setattr(workers._thread_pool, "submit", at_once)
        first = next(iter(workers.windows(groups, RoleLayout(tokenizer, 512))))
    assert first.ids == ["0"]
    assert [group[0].id for group in groups] == ["2", "3", "4"]


def test_windows_grow_up_to_the_largest(monkeypatch):
    monkeypatch.setattr(embed, "WINDOW", 30)
    assert list(itertools.islice(embed.window_sizes(10), 5)) == [10, 15, 22, 30, 30]
    assert list(itertools.islice(embed.window_sizes(1000), 3)) == [30, 30, 30]


def test_work_within_a_shard_is_kept_and_changes_no_byte(tmp_path, model, collection, monkeypatch):
    from liebig.search import encode_shards as module

    fields = {"source": collection, "model": model, "shard": 30, "window": 5, "type": "int8"}
    encoded(tmp_path / "whole", **fields)
    monkeypatch.setattr(module, "PART_SECONDS", -1.0)
    written, plain = [], module.write_shard

    def stop(path, *rest):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)
        plain(path, *rest)

    monkeypatch.setattr(module, "write_shard", stop)
    with pytest.raises(KeyboardInterrupt):
        encoded(tmp_path / "v", **fields)
    assert [path.parent.parent.name for path in written] == ["parts"] * 3
    monkeypatch.setattr(module, "write_shard", plain)
    texts, windows = [], Workers.windows
    monkeypatch.setattr(
        Workers,
        "windows",
        lambda self, groups, layout, **how: windows(
            self, (texts.extend(g) or g for g in groups), layout, **how
        ),
    )
    encoded(tmp_path / "v", resume=True, **fields)
    assert [item.id for item in texts] == [f"p{i}" for i in range(15, 50)]
    assert not (tmp_path / "v" / "parts").exists()
    for name in ("00000/vectors.npy", "00000/scales.npy", "00000/shard.json", "00001/vectors.npy"):
        paths = [tmp_path / run / "shards" / name for run in ("whole", "v")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_texts_that_were_cut_are_counted_and_the_way_out_is_named(tmp_path, model, collection, capsys):
    encoded(tmp_path / "a", source=collection, model=model, max_length=12, shard=7)
    lengths = [
        len(Tokenizer.from_folder(model).encode(_joined_text(i))) for i in texts_of(collection, "passages")
    ]
    lost = [n - 10 for n in lengths if n > 10]
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"{len(lost)} of 50 texts")
    assert f"{sum(lost) / len(lost):,.0f} tokens on average, {max(lost)} at most" in said
    assert "max_length=32 (now 12), or long=max" in said
    encoded(tmp_path / "b", source=collection, model=model, max_length=32)
    assert "cut off" not in capsys.readouterr().err
    encoded(tmp_path / "c", source=collection, model=model, max_length=12, overlap=2, long="max")
    assert "cut off" not in capsys.readouterr().err
    encoded(
        tmp_path / "d", source=collection, model=model, max_length=12, overlap=2, long="max", most_pieces=1
    )
    assert "most_pieces above 1" in capsys.readouterr().err


def _joined_text(item):
    return f"{item.record.title} {item.record.text}".strip()


def test_a_length_past_the_positions_is_refused(tmp_path, model, collection):
    with pytest.raises(RecipeError, match="max_length = 33 is more than the model's 32 positions"):
        encoded(tmp_path / "v", source=collection, model=model, max_length=33)


def test_the_total_is_known_from_the_start(tmp_path, model, collection, capsys):
    encoded(tmp_path / "v", source=collection, model=model)
    assert "encode: 50/50 texts" in capsys.readouterr().err


def test_int8_is_for_many_tokens_unless_it_is_named(collection, model, monkeypatch):
    config = {"model": model, "source": collection}
    letters = sum(len(item.record.text) for item in read_items(collection, "passages"))
    monkeypatch.setattr(int8, "pays_from", lambda: letters // 2)
    assert precision_of(EncodeConfig(**config)) == "fp32"
    assert precision_of(EncodeConfig(**config, precision="int8")) == "int8"
    monkeypatch.setattr(int8, "pays_from", lambda: letters // 8)
    assert precision_of(EncodeConfig(**config)) == "auto"
    assert precision_of(EncodeConfig(**config, what="sentences")) == "auto"
    assert precision_of(EncodeConfig(**config, max_length=8)) == "fp32"  # the rest is cut off
    assert precision_of(EncodeConfig(**config, what="queries")) == "fp32"


def test_few_long_texts_have_many_tokens_and_the_part_that_is_cut_off_does_not_count(
    tmp_path, model, monkeypatch
):
    (tmp_path / "long.jsonl").write_text(
        "".join(json.dumps({"_id": str(i), "text": "barley " * 4000}) + "\n" for i in range(40))
    )
    config = {"model": model, "source": tmp_path / "long.jsonl"}
    monkeypatch.setattr(int8, "pays_from", lambda: 20_000)
    assert precision_of(EncodeConfig(**config)) == "auto"  # 40 x 512
    monkeypatch.setattr(int8, "pays_from", lambda: 30_000)
    assert precision_of(EncodeConfig(**config)) == "fp32"
    assert precision_of(EncodeConfig(**config, long="max")) == "auto"


def test_a_resumed_run_computes_in_the_precision_in_which_it_began(tmp_path, model, collection, monkeypatch):
    precisions = []
    monkeypatch.setattr(
        command, "_encode", lambda embedder, *rest: precisions.append(embedder._precision) or 1 / 0
    )
    for kept in ("fp32", "auto"):
        monkeypatch.setattr(command, "precision_of", lambda config, kept=kept: kept)
        with pytest.raises(ZeroDivisionError):
            encoded(tmp_path / "v", source=collection, model=model, resume=True)
    assert precisions == ["fp32", "fp32"]


def staged(out, **values):
    """As `encoded`, with the manifest of a stage."""
    config = EncodeConfig.model_validate({"device": "cpu", "type": "fp32", **values})
    pipeline.run_stage(command.STAGE, config, out)
    return whole(out)


@pytest.fixture
def computed(monkeypatch):
    """The tokens of the pieces that the model computes."""
    pieces, row = [], TorchModel._row

    def spy(self, tokens, *rest):
        pieces.extend(map(tuple, tokens.to_lists()))
        return row(self, tokens, *rest)

    monkeypatch.setattr(TorchModel, "_row", spy)
    return pieces


def test_texts_that_were_encoded_before_are_taken_over(tmp_path, model, collection, computed):
    lines = (collection / "passages.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "passages.jsonl").write_text("".join(lines[7:27]))
    pool = tmp_path / "pool"
    vectors = dict(zip(*staged(pool, source=tmp_path / "some", model=model)))
    before = set(computed)
    expected = staged(tmp_path / "plain", source=collection, model=model)
    every = set(computed)
    assert len(before) < len(every)
    copy = tmp_path / "copy"  # as a build copies the model that it chose
    with workspace.stage(copy, kind="model", recipe={}, inputs={"model": model}) as folder:
        shutil.copytree(model, folder.path, dirs_exist_ok=True)
    for name, by in {"again": model, "by-copy": copy}.items():
        computed.clear()
        ids, found = staged(tmp_path / name, source=collection, model=by, reuse=(pool,))
        assert set(computed) == every - before
        assert ids == expected[0]
        np.testing.assert_allclose(found, expected[1], atol=1e-5)
        assert all((found[ids.index(id)] == vectors[id]).all() for id in vectors)


def test_pieces_of_long_texts_are_taken_over(tmp_path, model, collection, computed):
    values = {"source": collection, "model": model, "long": "max", "overlap": 4}
    expected = staged(tmp_path / "pool", **values)
    computed.clear()
    found = staged(tmp_path / "again", **values, reuse=(tmp_path / "pool",))
    assert computed == []
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("changes", [{"title": "no"}, {"unit": True}, {"max_length": 12}, {"prompt": ""}])
def test_vectors_made_in_another_way_are_not_taken_over(tmp_path, model, collection, computed, changes):
    staged(tmp_path / "pool", source=collection, model=model)
    computed.clear()
    staged(tmp_path / "other", source=collection, model=model, reuse=(tmp_path / "pool",), **changes)
    assert len(computed) == 50


def test_vectors_of_another_model_are_not_taken_over(tmp_path, model, collection, small_model, computed):
    staged(tmp_path / "pool", source=collection, model=model)
    computed.clear()
    staged(tmp_path / "other", source=collection, model=small_model, reuse=(tmp_path / "pool",))
    assert len(computed) == 50


def test_vectors_say_what_they_were_computed_in(collection, model, tmp_path):
    encoded(tmp_path / "v", model=model, source=collection)
    assert Vectors.open(tmp_path / "v").about["precision"] == "fp32"


def test_the_bundled_encoder_is_the_default(tmp_path, collection):
    assert EncodeConfig(source=collection).model == encoders.folder()
    done = CliRunner().invoke(
        make_app(), ["encode", str(collection), "--out", str(tmp_path / "v"), "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    assert Vectors.open(tmp_path / "v").width == Encoder.load(encoders.folder()).width


TALES = [
    "The fox condenses the corpus. A lazy dog of the law! Barley soil nutrient.",
    "Chemistry of agriculture.",
    "",
    " ".join(f"The law of the minimum {word} soil barley. Nutrient {word}." for word in WORDS[:6]),
]


@pytest.fixture
def tales(tmp_path):
    """Passages of several sentences: one without a title, one without a text, one longer than the model reads."""
    (tmp_path / "tales").mkdir()
    rows = [{"id": f"p{i}", "title": "soil law" if i else "", "text": text} for i, text in enumerate(TALES)]
    path = tmp_path / "tales" / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.parent


@pytest.mark.parametrize("long", ["first", "max"])
def test_sentences_of_passages_leave_the_passages_as_they_are(tmp_path, model, tales, long):
    alone = encoded(tmp_path / "a", source=tales, model=model, long=long, overlap=4)
    both = encoded(tmp_path / "b", source=tales, model=model, long=long, overlap=4, sentences=True)
    assert both[0] == alone[0]
    np.testing.assert_allclose(both[1], alone[1], atol=2e-6)
    ids, _ = whole(tmp_path / "b" / "sentences")
    assert ids == [item.id for item in sentence_items(texts_of(tales, "passages"))]


def test_a_sentence_is_the_mean_of_its_states_in_the_passage(tmp_path, model, tales):
    encoded(tmp_path / "v", source=tales, model=model, sentences=True)
    vectors = dict(zip(*whole(tmp_path / "v" / "sentences")))
    encoder = Encoder.load(model)
    for item in texts_of(tales, "passages")[:3]:
        ids = encoder.layout_for("passage").lists([item.record])[0]
        states = encoder.backbone(Packed.from_lists([ids])).last.detach().numpy()
        parts = [len(encoder.tokenizer.encode(part)) for part in sentence_parts(item.record.text)]
        end = len(ids) - 1  # the last is a special token
        for number, size in reversed(list(enumerate(parts))):
            expected = states[end - size : end].mean(0) if size else states[1:-1].mean(0)
            np.testing.assert_allclose(vectors[f"{item.id}#{number}"], expected, atol=2e-6)
            end -= size


def test_sentences_behind_the_end_of_the_model_have_vectors_of_their_own(tmp_path, model, tales):
    encoded(tmp_path / "v", source=tales, model=model, overlap=4, sentences=True)
    ids, vectors = whole(tmp_path / "v" / "sentences")
    own = vectors[[id.startswith("p3#") for id in ids]]
    assert len(own) == 12
    assert len(np.unique(own.round(4), axis=0)) == 12
    assert Vectors.open(tmp_path / "v" / "sentences").about["in_context"]


def test_windows_and_interruptions_change_no_sentence(tmp_path, model, tales, monkeypatch):
    from liebig.search import encode_shards as module

    options = {"source": tales, "model": model, "sentences": True, "shard": 3, "window": 1}
    encoded(tmp_path / "whole", **options)
    monkeypatch.setattr(module, "PART_SECONDS", -1.0)
    written, write = [], module.write_shard

    def stop(path, *rest):
        write(path, *rest)
        written.append(path)
        if len(written) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "write_shard", stop)
    with pytest.raises(KeyboardInterrupt):
        encoded(tmp_path / "v", **options)
    assert "parts" in {path.parent.parent.name for path in written}
    monkeypatch.setattr(module, "write_shard", write)
    encoded(tmp_path / "v", **options, resume=True)
    for inner in ("", "sentences"):
        (ids, vectors), (others, rows) = whole(tmp_path / "whole" / inner), whole(tmp_path / "v" / inner)
        assert ids == others
        np.testing.assert_array_equal(vectors, rows)


def test_sentences_need_a_model_whose_vector_is_a_mean(tmp_path, model, tales):
    encoder = Encoder.load(model, pooling="cls")
    encoder.save(tmp_path / "cls")
    with pytest.raises(RecipeError, match="does not pool by the mean"):
        encoded(tmp_path / "v", source=tales, model=tmp_path / "cls", sentences=True)
    with pytest.raises(ValueError, match="needs what = passages"):
        EncodeConfig(source=tales, model=model, what="sentences", sentences=True)


def test_sentences_that_are_known_are_not_computed_again(tmp_path, model, tales, monkeypatch):
    options = {"source": tales, "model": model, "overlap": 4, "sentences": True}
    sizes, row = [], TorchModel._row

    def spy(self, tokens, *rest):
        sizes.append(len(tokens))
        return row(self, tokens, *rest)

    def made(name, recipe, **more):
        config = EncodeConfig.model_validate({"device": "cpu", "type": "fp32", **options, **more})
        inputs = {"source": tales, "model": model}
        with workspace.stage(tmp_path / name, kind="encode", recipe=recipe(config), inputs=inputs) as folder:
            run(config, folder)

    made("a", lambda config: config.model_dump(mode="json", exclude={"reuse"}))
    monkeypatch.setattr(TorchModel, "_row", spy)
    made("b", lambda config: {}, reuse=[tmp_path / "a"])
    for inner in ("", "sentences"):
        (ids, vectors), (others, rows) = whole(tmp_path / "a" / inner), whole(tmp_path / "b" / inner)
        assert ids == others
        np.testing.assert_allclose(vectors, rows, atol=2e-6)
    assert 0 < sum(sizes) < len(TALES) + 3, "only the later pieces of the text that is too long"
