"""`liebig finetune` end to end on a small collection: what it learns, keeps, refuses and takes up again."""

import json
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Literal

import numpy as np
import pytest
import torch

from liebig.base import extensions, workspace
from liebig.base.config import dump, load, parse
from liebig.base.errors import DataError, RecipeError
from liebig.base.records import Passage, Query
from liebig.collection import Collection
from liebig.methods import methods, retrieval
from liebig.methods.abs.schedule import schedule, written
from liebig.methods.contrastive import Contrastive, InfoNCE
from liebig.methods.dev_evaluation import DevConfig, too_small
from liebig.methods.distill import MarginMSE, SoftLabels
from liebig.methods.finetuning import BATCHINGS, OBJECTIVES, FinetuneConfig, batchings, objectives
from liebig.methods.samplers import GroupChoice, RandomBatching
from liebig.model.encoder import Encoder
from liebig.model.packed import Packed
from liebig.stages.finetune import run, starting_encoder
from liebig.text.layout import RoleLayout
from liebig.train.distributed import ALONE
from tests.worlds.finetuning import write_collection

LOOP = {"epochs": 2, "batch": 6, "log_every": 1, "eval_every": 4, "workers": 0}


def config_of(model, collection, **fields):
    tree = {
        "model": {"kind": "folder", "path": str(model)},
        "collection": str(collection),
        "negatives": 2,
        "query_length": 16,
        "passage_length": 24,
        "optim": {"lr": 1e-3},
        "loop": LOOP,
        "evaluation": {"split": "dev"},
    }
    return parse(FinetuneConfig, tree | fields)


def finetuned(config, out):
    with workspace.stage(out, kind="finetune", recipe=config.model_dump(mode="json"), inputs={}) as folder:
        run(config, folder)
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_a_retriever_learns_and_its_best_checkpoint_is_what_is_saved(model, collection, tmp_path):
    log = finetuned(config_of(model, collection), tmp_path / "out")
    measured = [row["RR@10"] for row in map(flat, log) if "RR@10" in row]
    assert len(measured) == 2
    assert max(measured) > 0.2
    encoder = Encoder.load(tmp_path / "out" / "model")
    assert (encoder.max_length, encoder.similarity) == (24, "dot")
    assert not (tmp_path / "out" / "cache").exists()


def flat(row):
    return {**row, **{k: v for part in row.values() if isinstance(part, dict) for k, v in part.items()}}


@pytest.mark.parametrize(
    "fields",
    [
        {"untied": True, "pooling": "mean", "objective": {"temperature": 0.05, "similarity": "cosine"}},
        {"objective": {"kind": "distill", "hard": 0.2}},
        {"objective": {"kind": "distill", "loss": "margin-mse"}, "optim": {"kind": "asam", "lr": 1e-3}},
        {"objective": {"kind": "ltr"}, "evaluation": {"split": "dev", "over": "candidates", "candidates": 3}},
        {"objective": {"kind": "ltr"}, "batching": {"kind": "adaptive"}, "negatives": 0, "evaluation": {}},
        {"evaluation": {"split": "dev", "over": "candidates", "measures": ["RR@100"]}, "hard": 0.5},
        {"batching": {"kind": "sequential"}, "evaluation": {"split": "dev", "passages": 4}},
        {"batching": {"kind": "adaptive", "preset": "paper", "search": "beam", "lists": 2}},
        {"batching": {"kind": "adaptive"}, "query_prompt": "query: ", "title": "separator"},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_every_choice_trains(model, tmp_path, fields):
    folder = write_collection(tmp_path / "c", scores=True)
    finetuned(config_of(model, folder, **fields), tmp_path / "out")
    saved = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert "model" in saved
    assert ("query" in saved) == bool(fields.get("untied"))


def test_pairs_and_triplets_train(model, tmp_path):
    for kind, row in (("pairs", {"a": "stone river", "b": "bread", "score": 4.0}), ("tuples", None)):
        (tmp_path / "c" / kind).mkdir(parents=True)
        row = row or {"anchor": "stone", "positive": "stone river", "negatives": ["bread cloud"]}
        for split in ("train", "dev"):
            lines = [
                row | {"a": "stone river"[: 4 + i], "score": float(i % 6)} if kind == "pairs" else row
                for i in range(12)
            ]
            (tmp_path / "c" / kind / f"{split}.jsonl").write_text(
                "".join(json.dumps(x) + "\n" for x in lines)
            )
    for objective in ("cosine", "triplet"):
        config = config_of(model, tmp_path / "c", objective={"kind": objective})
        log = finetuned(config, tmp_path / objective)
        assert any({"Spearman", "Accuracy"} & flat(row).keys() for row in log)


def test_adaptive_epochs_are_files_and_a_second_run_is_the_same(model, collection, tmp_path):
    run_file = tmp_path / "bm25.trec"
    run_file.write_text(
        "".join(f"q{i} Q0 p{j} 1 {20 - abs(i - j)} t\n" for i in range(24) for j in range(24))
    )
    batching = {"kind": "adaptive", "run": str(run_file)}
    logs = [finetuned(config_of(model, collection, batching=batching), tmp_path / name) for name in "ab"]
    for epoch in range(2):
        orders = [np.load(tmp_path / n / "schedule" / f"epoch-{epoch:03d}.npy") for n in "ab"]
        assert sorted(orders[0].tolist()) == list(range(24))
        assert orders[0].tolist() == orders[1].tolist()
        facts = json.loads((tmp_path / "a" / "schedule" / f"epoch-{epoch:03d}.json").read_text())
        assert facts["hardness"] > facts["random"]
    assert len(logs[0]) == len(logs[1])


def test_the_preset_decides_how_batches_are_made_and_in_which_order_they_come(model, collection):
    def made(**fields):
        choice = config_of(model, collection, batching={"kind": "adaptive"} | fields).batching
        return choice.scheduler, choice.batch_order

    assert made(preset="paper") == (written, "made")
    way, order = made(preset="paper", search="beam", order="shuffled")
    assert (way.func, way.keywords, order) == (written, {"k": 3, "lists": 100}, "shuffled")
    way, order = made()
    assert (way.func, order) == (schedule, "shuffled")


def test_a_limit_trains_on_so_many_queries_and_its_seed_draws_others(model, collection, tmp_path, capsys):
    orders = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = config_of(model, collection, limit=8, limit_seed=seed, loop={**LOOP, "epochs": 1})
        orders.append([row.get("loss") for row in map(flat, finetuned(config, tmp_path / name))])
        assert "8 queries, " in capsys.readouterr().err
    assert orders[0] == orders[1] != orders[2]


def test_few_dev_queries_are_warned_of_before_training(model, collection, tmp_path, capsys):
    for name, over in (("a", "all"), ("b", "candidates")):
        dev = {"split": "dev", "over": over}
        finetuned(config_of(model, collection, evaluation=dev, loop={**LOOP, "epochs": 0.2}), tmp_path / name)
        assert "WARNING" in capsys.readouterr().err


def test_patience_needs_a_dev_split(model, collection):
    with pytest.raises(RecipeError, match="needs an evaluation"):
        config_of(model, collection, evaluation={}, loop={**LOOP, "patience": 2})


def candidates_of(collection, shape, temperature=1.0):
    config = DevConfig(split="train", over="candidates", candidates=3, measures=())
    return config.read(Collection(collection), (shape, shape), collection, ALONE, "dot", temperature)


def test_a_query_ranks_its_positives_among_as_many_candidates_as_asked_for(model, collection):
    shape = RoleLayout(Encoder.load(model).tokenizer, 16)
    found = candidates_of(collection, shape)
    assert {len(group) for group in found.groups} == {4}


def test_the_loss_over_candidates_is_that_of_training_among_them(model, collection):
    """The ABS paper's Dev Set Loss: cross-entropy of the positive, at the temperature of training."""
    encoder = Encoder.load(model)
    shape = RoleLayout(encoder.tokenizer, 16)
    found = candidates_of(collection, shape, temperature=0.5)

    class Tied:
        def tower(self, side):
            return encoder

        def scores(self, query, passages):
            return passages @ query

    queries, passages = (encoder.encode_rows(texts) for texts in (found.queries, found.passages))
    scores = np.stack([passages[group] @ query for query, group in zip(queries, found.groups)])
    expected = torch.nn.functional.cross_entropy(
        torch.as_tensor(scores, dtype=torch.float64) / 0.5, torch.zeros(len(scores), dtype=torch.long)
    )
    assert found(Tied())["loss"] == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize(
    ("objective", "losses"),
    [
        ({"temperature": 0.05, "similarity": "cosine"}, ((1.0, InfoNCE(0.05, "cosine")),)),
        ({"kind": "distill", "loss": "margin-mse", "similarity": "cosine"}, ((1.0, MarginMSE("cosine")),)),
        (
            {"kind": "distill", "over": "group", "temperature": 0.5, "teacher_temperature": 2, "hard": 0.3},
            ((1.0, SoftLabels("group", 0.5, 2.0)), (0.3, InfoNCE(0.5))),
        ),
    ],
)
def test_the_objective_is_that_of_the_recipe(model, collection, objective, losses):
    config = config_of(model, collection, objective={"kind": "contrastive"} | objective)
    made = objectives()[config.objective.kind].build(config.objective, Encoder.load(model), None)
    assert made.loss == losses


def test_positives_negatives_and_mask_are_those_of_the_recipe(model, collection, tmp_path, monkeypatch):
    class Seen(Exception):
        pass

    def maker(examples, queries, passages, sampler, choice, world, mask, random):
        raise Seen(choice, mask, random.collection.path)

    monkeypatch.setattr(retrieval, "RetrievalBatches", maker)
    wish = {"negatives": 3, "positives": 2, "rotate": False, "hard": 0.5, "objective": {"mask": False}}
    with pytest.raises(Seen) as caught:
        finetuned(config_of(model, collection, loop={**LOOP, "seed": 7}, **wish), tmp_path / "out")
    assert caught.value.args == (GroupChoice(3, 2, False, 0.5, 7, 28), False, collection)


def test_distilling_needs_scores(model, collection, tmp_path):
    with pytest.raises(DataError, match="'q0' has no teacher's scores") as caught:
        finetuned(config_of(model, collection, objective={"kind": "distill"}), tmp_path / "out")
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective": {"kind": "ltr"}}, "cannot search"),
        *(
            (
                {"objective": objective, "batching": {"kind": "adaptive"}},
                f"{name} looks at each example alone",
            )
            for objective, name in (
                ({"kind": "cosine"}, "cosine"),
                ({"kind": "triplet"}, "triplet"),
                ({"kind": "distill", "loss": "margin-mse"}, "margin-mse"),
                ({"kind": "distill", "over": "group"}, "the KL divergence over a group"),
            )
        ),
        (
            {"objective": {"kind": "ltr"}, "evaluation": {}, "negatives": 0, "loop": {"batch": 1}},
            "nothing to",
        ),
        ({"negatives": 0, "loop": {"batch": 1}}, "nothing to contrast"),
        (
            {"batching": {"kind": "adaptive", "preset": "paper", "candidates": 50}},
            "leave candidates out",
        ),
        ({"objective": {"kind": "distill"}, "hard": 0.5}, "no teacher score"),
        ({"tokenizer": "x"}, "other models have their own"),
        ({"evaluation": {"split": "dev", "measures": ["nonsense"]}}, "nonsense"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(model, collection, fields, message):
    with pytest.raises((RecipeError, DataError), match=message):
        config_of(model, collection, **fields)


@pytest.mark.parametrize(
    "objective",
    [
        {"kind": "ltr"},
        {"kind": "distill"},
        {"kind": "distill", "over": "group", "hard": 0.1},
        {"kind": "distill", "loss": "margin-mse", "hard": 0.1},
    ],
)
def test_what_looks_at_the_whole_batch_can_be_scheduled(model, collection, objective):
    fields = {"objective": objective, "batching": {"kind": "adaptive"}, "evaluation": {}, "negatives": 0}
    assert config_of(model, collection, **fields).batching.kind == "adaptive"


def test_a_recipe_survives_being_written_down(model, collection, tmp_path):
    config = config_of(model, collection, batching={"kind": "adaptive"}, objective={"temperature": 0.5})
    (tmp_path / "recipe.toml").write_text(dump(config))
    assert load(FinetuneConfig, tmp_path / "recipe.toml") == config


def test_a_small_dev_split_is_warned_of():
    assert "±0.10" in too_small(100)
    assert too_small(400) is None


@pytest.mark.parametrize("given", [{}, {"query_prompt": "asked: "}])
def test_training_reads_texts_with_the_prompts_the_saved_model_will_use(model, collection, tmp_path, given):
    own = Encoder.load(model)
    own.prompts, own.default_prompt = {"query": "river: ", "document": "stone: "}, "document"
    own.pooling, own.pool_prompt = "mean", False
    own.save(tmp_path / "prompted")
    config = config_of(tmp_path / "prompted", collection, **given)
    encoder = starting_encoder(config)
    encoder.save(tmp_path / "out")
    saved = Encoder.load(tmp_path / "out")
    records = {"query": Query("q", "winter salt"), "passage": Passage("p", "copper wheel")}
    for (kind, record), layout in zip(records.items(), map(encoder.layout_for, records)):
        rows = layout.lists([record])
        assert rows == saved.tokenize([record.text], kind)
        trained = encoder(Packed.from_lists(rows)).detach().numpy()
        np.testing.assert_allclose(trained, saved.encode_texts([record.text], prompt=kind), atol=1e-6)
    assert saved.default_prompt is None or saved.default_prompt in saved.prompts


def test_another_package_adds_an_objective_and_a_way_of_batching(monkeypatch):
    module = ModuleType("added")

    class Quiet(Contrastive):
        class Config(Contrastive.Config):
            kind: Literal["quiet"] = "quiet"

    class Shuffled(RandomBatching):
        kind: Literal["shuffled"] = "shuffled"

    module.Quiet, module.Shuffled = Quiet, Shuffled
    monkeypatch.setitem(sys.modules, "added", module)
    points = [
        EntryPoint(c.__name__.lower(), f"added:{c.__name__}", "liebig.methods") for c in (Quiet, Shuffled)
    ]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    assert [*objectives.__wrapped__()] == [*OBJECTIVES, "quiet"]
    assert [*batchings.__wrapped__()] == [*BATCHINGS, "shuffled"]
    assert "quiet" not in methods.__wrapped__()
    monkeypatch.setattr(
        extensions, "entry_points", lambda group: [EntryPoint("loud", "added:Quiet", "liebig.methods")]
    )
    with pytest.raises(RecipeError, match="added:Quiet is installed as 'loud'"):
        objectives.__wrapped__()
