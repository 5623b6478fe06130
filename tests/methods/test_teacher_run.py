"""Whole runs of distillation: the folder gives the trained vectors everywhere, runs resume, mistakes are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from liebig.base import pipeline, workspace
from liebig.base.errors import DataError, RecipeError
from liebig.methods import pretraining as presets
from liebig.methods.cocondenser import CoCondenser
from liebig.methods.held_out import hold_out
from liebig.methods.mlm import MaskedLM
from liebig.methods.moco import MoCo
from liebig.methods.pretraining import PretrainConfig
from liebig.methods.simclr import SimCLR
from liebig.methods.sources.crops import CropSource
from liebig.methods.teacher import TeacherFolder, Teachers, TextSource
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.stages import STAGES
from liebig.stages.pretrain import Pretraining, start
from liebig.store import TokenStore
from liebig.text.tokenizer import Tokenizer
from liebig.train import loop as loops
from liebig.train.batch import Batch, Side, unweave
from liebig.train.distributed import ALONE
from liebig.vectors import SHARDS, Vectors, write_shard, write_summary
from tests.worlds.smoke import ROOT, run


@pytest.fixture(scope="module")
def world(smoke: Path) -> Path:
    """All stages of the smoke recipe, with few steps."""
    return run("vectors", smoke, "stages.model.loop.steps=2").parent


def recipe(world: Path, *overrides: str) -> PretrainConfig:
    planned = pipeline.plan(STAGES, ROOT / "recipes" / "smoke" / "vectors.toml", overrides, world)
    assert isinstance(planned[-1].config, PretrainConfig)
    return planned[-1].config


def test_an_example_is_a_text_with_its_own_vector(world):
    store, taught = TokenStore.open(world / "text_store"), Teachers.open([world / "teacher"])
    taught.check(store)
    source = TextSource(store, taught, 20)
    numbers = np.array([3, 700, 41])
    row = source.draw(numbers, 0, 0)
    for place, number in enumerate(numbers.tolist()):
        wanted = [store.tokenizer.cls, *store.document(number)[:20].tolist(), store.tokenizer.sep]
        assert row.tokens[place].tolist() == wanted
    # Stored in half precision, so of length 1 to a few thousandths only; a teacher's rows have it exactly.
    np.testing.assert_allclose(source.vectors(numbers), _every(world)[numbers][:, None], atol=1e-3)


def test_an_example_may_be_several_neighbours(world):
    store, taught = TokenStore.open(world / "text_store"), Teachers.open([world / "teacher"])
    alone, grouped = TextSource(store, taught, 20), TextSource(store, taught, 20, group=3)
    assert len(grouped) == len(store) // 3
    one, row = alone.draw(np.array([6, 7, 8, 0, 1, 2]), 0, 0), grouped.draw(np.array([2, 0]), 0, 0)
    assert one.tokens.to_lists() == row.tokens.to_lists()
    assert row.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(grouped.vectors(np.array([2]))[0], alone.vectors(np.array([6, 7, 8]))[:, 0])
    train, held = hold_out(grouped, 0.1)
    seen = {int(i) for part in (train, held) for i in part.examples(np.arange(len(part)))}
    assert seen == set(range(len(grouped)))


def _every(world: Path):
    from liebig.vectors import Vectors

    return np.concatenate([vectors for _, vectors in Vectors.open(world / "teacher").chunks(512)])


def test_the_cosine_of_several_teachers_is_the_weighted_mean_of_theirs(world):
    numbers = np.array([3, 700, 41])
    plain = TeacherFolder.open(world / "teacher")
    both = Teachers((plain, plain), (0.25, 0.75))
    expected = sum(w * one.rows(numbers) @ one.rows(numbers).T for w, one in zip(both.weights, both.each))
    assert both.width == 2 * plain.width
    # Sums of 768 float32 products: a few roundings of numbers below 1.
    np.testing.assert_allclose(both.rows(numbers) @ both.rows(numbers).T, expected, atol=1e-5)


def test_a_run_learns_from_several_teachers(world, tmp_path):
    teachers = f'["{world / "teacher"}", "{world / "teacher"}"]'
    source = f'stages.model.source={{kind="texts", vectors={teachers}, teacher_weights=[1, 3]}}'
    config = recipe(world, source, "stages.model.loop={steps=1, batch=4}")
    Pretraining(config, tmp_path, ALONE).run()
    assert Encoder.load(tmp_path / "model").width == 2 * Teachers.open([world / "teacher"]).width


def test_a_run_learns_its_teachers_rankings(world, tmp_path):
    ranking = (
        f'stages.model.objective={{kind="vectors", ranking_weight=0.5, candidates="{world / "teacher"}", '
    )
    config = recipe(
        world, ranking + "most_candidates=50}", "stages.model.loop={steps=2, batch=8, log_every=1}"
    )
    made = start(presets.resolve(config), Tokenizer.from_folder(world / "start" / "model"))
    every = _every(world)
    expected = every[np.unique(np.linspace(0, len(every) - 1, 50).astype(int))]
    # Stored in half precision, so of length 1 to a few thousandths only; candidates have it exactly.
    np.testing.assert_allclose(made.candidates.numpy(), expected, atol=1e-3)
    Pretraining(config, tmp_path, ALONE).run()
    assert not any("candidates" in name for name in load_file(tmp_path / "model" / "model.safetensors"))
    assert "ranking" in (tmp_path / "log.jsonl").read_text()


def test_candidates_of_several_teachers_are_the_same_passages(world, tmp_path):
    taught = Teachers.open([world / "teacher", world / "teacher"])
    rows = taught.others([world / "teacher", world / "teacher"], 5)
    assert rows.shape == (5, taught.width)
    (ids, vectors), *_ = Vectors.open(world / "teacher").chunks(100)
    folders = [tmp_path / "forward", tmp_path / "backward"]
    for folder, step in zip(folders, (1, -1)):
        with workspace.stage(folder, kind="encode", recipe={}, inputs={}) as made:
            write_shard(made.path / SHARDS / "0", ids[::step], vectors[::step], "fp16")
            write_summary(made.path, "fp16", vectors.shape[1], ["0"], {}, len(ids))
    with pytest.raises(DataError, match="not vectors of the same passages"):
        taught.others(folders, 5)


def test_the_first_teachers_space_without_similarities_or_rankings_is_refused(world):
    with pytest.raises(RecipeError, match="space = first: the other teachers take part"):
        recipe(world, 'stages.model.objective={kind="vectors", space="first"}')


@pytest.mark.parametrize("given", ["ranking_weight=0.5", 'candidates="@teacher"'])
def test_rankings_without_candidates_are_refused(world, given):
    with pytest.raises(RecipeError, match="both a ranking_weight and candidates"):
        recipe(world, f'stages.model.objective={{kind="vectors", {given}}}')


@pytest.mark.parametrize(
    ("weights", "message"), [("[1, 2]", "1 teachers and 2 weights"), ("[0]", "must be more than 0")]
)
def test_weights_that_do_not_fit_the_teachers_are_refused(world, weights, message):
    with pytest.raises(RecipeError, match=message):
        recipe(world, f"stages.model.source.teacher_weights={weights}")


def test_the_folder_gives_the_vectors_of_the_objective_here_and_in_sentence_transformers(world):
    from sentence_transformers import SentenceTransformer

    folder = world / "model" / "model"
    texts = ["where is the harbour", "a longer text about families that live by the sea"]
    ours = Encoder.load(folder)
    assert (ours.width, ours.similarity) == (384, "cosine")
    found = ours.encode_texts(texts)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(found, theirs, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_a_further_run_goes_on_with_the_projection_of_its_start(world):
    folder = world / "model" / "model"
    made = start(recipe(world, f"stages.model.model.path={folder}"), Tokenizer.from_folder(folder))
    kept = load_file(folder / "2_Dense" / "model.safetensors")
    assert torch.equal(made.saved().tail[0].linear.weight, kept["linear.weight"])


def test_an_objective_that_does_not_train_a_projection_says_so(world, tmp_path, capsys):
    folder = world / "model" / "model"
    kept = recipe(world, f"stages.model.model.path={folder}", "stages.model.loop={steps=1, batch=4}")
    Pretraining(kept, tmp_path / "same", ALONE).run()
    assert "is not used" not in capsys.readouterr().err
    other = kept.model_copy(
        update={"objective": SimCLR.Config(pooling="cls"), "source": CropSource.Config(window=16)}
    )
    Pretraining(other, tmp_path / "other", ALONE).run()
    assert "2_Dense of the starting model is not used" in capsys.readouterr().err
    assert not (tmp_path / "other" / "model" / "2_Dense").exists()


def test_a_masked_objective_warns_of_a_start_that_was_trained_for_its_vectors(world, tmp_path, capsys):
    for folder, warned in ((world / "model" / "model", True), (world / "start" / "model", False)):
        short = recipe(world, f"stages.model.model.path={folder}", "stages.model.loop={steps=1, batch=4}")
        config = short.model_copy(
            update={"objective": MaskedLM.Config(), "source": CropSource.Config(window=16)}
        )
        Pretraining(config, tmp_path / str(warned), ALONE).run()
        assert ("may no longer fit" in capsys.readouterr().err) == warned
    assert CoCondenser.Config().masks
    assert not CoCondenser.Config(mlm=False).masks


@pytest.mark.parametrize("wanted", [SimCLR.Config(similarity="cosine"), MoCo.Config(queue=8, momentum=0.5)])
def test_a_contrast_starts_from_the_encoders_own_vectors_and_trains_its_projection(
    world, tmp_path, capsys, wanted
):
    folder = world / "model" / "model"
    short = recipe(world, f"stages.model.model.path={folder}", "stages.model.loop={steps=2, batch=4}")
    config = short.model_copy(update={"objective": wanted, "source": CropSource.Config(window=16)})
    encoder = Encoder.load(folder)
    made = start(presets.resolve(config), encoder.tokenizer)
    row = Packed.from_lists(encoder.tokenize(["where is the harbour", "families live by the sea"]))
    batch = Batch({side: Side(row, torch.arange(2)) for side in ("query", "key")}, 2)
    with torch.no_grad():
        found = made.represent(batch).vectors
        queries = unweave(batch, found, ("query", "key"))["query"] if isinstance(made, SimCLR) else found
        torch.testing.assert_close(queries, encoder(row))
    Pretraining(config, tmp_path / "trained", ALONE).run()
    assert "is not used" not in capsys.readouterr().err
    before, after = (
        load_file(place / "2_Dense" / "model.safetensors")["linear.weight"]
        for place in (folder, tmp_path / "trained" / "model")
    )
    assert before.shape == after.shape
    assert not torch.equal(before, after)


class Interrupted(Exception):
    pass


def test_an_interrupted_run_ends_like_an_uninterrupted_one(world, tmp_path, monkeypatch):
    config = recipe(world, "stages.model.loop={steps=4, batch=32, checkpoint_every=2, workers=0}")
    Pretraining(config, tmp_path / "whole", ALONE).run()
    real = loops.Feed.get

    def broken(self, step, until):
        if step == 3:
            raise Interrupted
        return real(self, step, until)

    monkeypatch.setattr(loops.Feed, "get", broken)
    with pytest.raises(Interrupted):
        Pretraining(config, tmp_path / "parts", ALONE).run()
    monkeypatch.undo()
    Pretraining(config, tmp_path / "parts", ALONE).run()
    whole, parts = (
        load_file(tmp_path / name / "checkpoints" / "step-00000004" / "objective.safetensors")
        for name in ("whole", "parts")
    )
    assert all(torch.equal(parts[name], value) for name, value in whole.items())


def test_vectors_of_other_texts_are_refused(world, tmp_path):
    taught = TeacherFolder.open(world / "teacher")
    with pytest.raises(DataError, match="do not belong to the texts"):
        taught.check(TokenStore.open(world / "store"))
    shutil.copytree(world / "text_store", tmp_path / "store")
    ids = np.load(tmp_path / "store" / "ids.npy")
    ids[0] += 1
    np.save(tmp_path / "store" / "ids.npy", ids)
    with pytest.raises(DataError, match="do not belong to the texts"):
        taught.check(TokenStore.open(tmp_path / "store", hashes=False))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["stages.model.objective={kind='mlm'}"], "a teacher's vectors are learnt from its texts"),
        (["stages.model.source={kind='blocks'}"], "a teacher's vectors are learnt from its texts"),
        (["stages.model.loop={}", "stages.model.batch_tokens=500"], "their number must be fixed"),
    ],
)
def test_what_makes_no_sense_is_refused(world, overrides, said):
    with pytest.raises(RecipeError, match=said):
        recipe(world, *overrides)


def test_a_student_of_another_width_needs_the_projection(world, tmp_path):
    with pytest.raises(RecipeError, match="width 384, the student's 64"):
        Pretraining(
            recipe(world, "stages.model.objective={kind='vectors', dense=false}"), tmp_path, ALONE
        ).run()
