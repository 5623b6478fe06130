"""A student packed for the package: the same cosines, vectors as short as can be, a card of what was measured."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from liebig import encoders
from liebig.model.encoder import Encoder

SCRIPTS = Path(__file__).parents[2] / "experiments" / "encoders" / "v3"
TEXTS = ["a question about fish", "fish live in water, and some in the sea", "barley needs nitrogen"]
RESULTS = {
    "results": {"bm25": {"set": [0.5, 0.5]}, "v3": {"set": [0.625, 0.75]}},
    "sts": {"bm25": "", "v3": "0.8"},
}


def script(name):
    sys.path.insert(0, str(SCRIPTS))  # the scripts import each other by bare names
    spec = importlib.util.spec_from_file_location(f"v3_{name}", SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    sys.path.remove(str(SCRIPTS))
    return module


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A small random student with a projection wider than itself, and its packed folder."""
    student_script, pack = script("student"), script("pack")
    home = tmp_path_factory.mktemp("packed")
    tokenizer = encoders.folder() / "tokenizer.json"
    vocabulary = len(json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"])
    draw = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=draw) * 0.2

    width, inner = 24, 32
    weights = {
        "embeddings.word_embeddings.weight": normal(vocabulary, width),
        "embeddings.position_embeddings.weight": normal(512, width),
        "embeddings.token_type_embeddings.weight": normal(2, width),
        "encoder.layer.0.intermediate.dense.weight": normal(inner, width),
        "encoder.layer.0.intermediate.dense.bias": normal(inner),
        "encoder.layer.0.output.dense.weight": normal(width, inner),
        "encoder.layer.0.output.dense.bias": normal(width),
        "2_Dense.linear.weight": normal(40, width),
        "2_Dense.linear.bias": normal(40),
    }
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        weights[f"encoder.layer.0.attention.{name}.weight"] = normal(width, width)
        weights[f"encoder.layer.0.attention.{name}.bias"] = normal(width)
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        weights |= {f"{name}.LayerNorm.weight": torch.ones(width), f"{name}.LayerNorm.bias": normal(width)}
    student = student_script.Student(weights, 12, torch.device("cpu"), tokenizer)
    student.export(home / "export", {})
    (home / "test.json").write_text(json.dumps(RESULTS))
    pack.pack(home / "export", tokenizer, home / "mini", home / "test.json")
    stored = student_script.read_export(home / "export")
    student = student_script.Student(stored, 12, torch.device("cpu"), tokenizer)
    return home / "mini", student.encoder()(TEXTS, 0).numpy()


def test_cosines_are_those_of_the_student(packed, tmp_path):
    folder, theirs = packed
    ours = Encoder.load(encoders.expanded(folder, tmp_path)).encode_texts(TEXTS)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=2e-3)  # half precision


def test_vectors_are_as_short_as_the_encoder_allows(packed, tmp_path):
    folder, theirs = packed
    assert theirs.shape[1] == 40
    encoder = Encoder.load(encoders.expanded(folder, tmp_path))
    assert encoder.width == 24  # that of the states


def test_a_direction_that_is_hardly_used_is_dropped():
    weight, bias = torch.eye(4)[:, :3], torch.tensor([0.1, 0.0, 0.0, 1e-4])
    shorter, constant = script("pack").narrow(weight, bias)
    assert (shorter.shape, constant.shape) == ((3, 3), (3,))
    torch.testing.assert_close(shorter.T @ shorter, torch.eye(3), atol=1e-6, rtol=0)


def test_the_card_says_what_was_measured(packed):
    card = (packed[0] / "README.md").read_text(encoding="utf-8")
    assert "| bm25 | 0.500 | **0.5000** |  |" in card
    assert "| mini | 0.625 | **0.6250** | 0.8 |" in card
    assert "| mini + bm25 | 0.750 | **0.7500** |  |" in card


def test_the_spectrum_of_a_projection_is_made_flatter():
    mean, draw = script("mean"), torch.Generator().manual_seed(0)

    class Projection:
        width, head, head_bias = 3, torch.randn(5, 3, generator=draw), torch.randn(5, generator=draw)

        def set_head(self, weight, bias):
            self.head, self.head_bias = weight, bias

    states = torch.randn(400, 3, generator=draw) * torch.tensor([3.0, 1.0, 0.3])
    projections = [Projection(), Projection()]
    vectors = states @ projections[0].head.T + projections[0].head_bias
    units = torch.nn.functional.normalize(vectors)
    for projection, power in zip(projections, (0.0, 0.25)):
        mean.flatten(projection, vectors, power)
    turned, flatter = (states @ projection.head.T + projection.head_bias for projection in projections)
    _, _, plane = torch.linalg.svd(units - units.mean(0), full_matrices=False)
    expected = vectors @ plane[:3].T
    torch.testing.assert_close(turned @ turned.T, expected @ expected.T, rtol=1e-4, atol=1e-4)
    ratios = [values.std(0)[0] / values.std(0)[2] for values in (turned, flatter)]
    assert ratios[1] < ratios[0]


def test_students_are_blended_by_their_shares():
    mean = script("mean")

    class Weights:
        def __init__(self, value):
            self.values = [torch.full((2,), value)]

        def parameters(self):
            return self.values

    mine = Weights(1.0)
    mean.blend(mine, Weights(4.0), 2 / 3)
    mean.blend(mine, Weights(11.0), 1 / 4)
    torch.testing.assert_close(mine.values[0], torch.full((2,), (11.0 + 1.0 + 2 * 4.0) / 4))
