"""The engine on a CUDA device; run with `pytest -m gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from liebig import losses
from liebig.base.errors import TrainingError
from liebig.train.batch import Batch
from liebig.train.distributed import World
from liebig.train.log import read_log
from liebig.train.loop import LoopConfig, train
from liebig.train.objective import Represented
from liebig.train.optim import AdamWConfig
from liebig.train.step import step
from tests.worlds.toy import Local, Toy, TwoSided, assert_equal_gradients, gradients, groups, spans

pytestmark = pytest.mark.gpu
GPU = World(device=torch.device("cuda", 0))


@pytest.mark.parametrize("make", [Toy, Local, TwoSided])
def test_on_a_gpu_chunks_give_the_gradient_of_the_whole_and_of_the_cpu(make: type[Toy]) -> None:
    batch = groups() if make is TwoSided else spans()
    objective = make()
    step(objective, batch)
    expected = gradients(objective)
    objective.to(GPU.device)
    for budget in (None, 1, 27):
        step(objective, batch, GPU, chunk_tokens=budget)
        found = {name: g.cpu() for name, g in gradients(objective).items()}
        assert_equal_gradients(found, expected, 1e-10)


def test_on_a_gpu_dropout_is_repeated_in_the_second_pass() -> None:
    objective = Toy(dropout=0.3).to(GPU.device).float()
    result = step(objective, spans(), GPU, chunk_tokens=1, dtype=torch.bfloat16, diagnose=True)
    assert result.metrics["replay"] == 0


def test_on_a_gpu_the_scores_of_many_vectors_are_never_held_whole() -> None:
    n = 16384
    vectors = torch.randn(n, 64, device=GPU.device, requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    losses.cocondenser(vectors, vectors, 0, temperature=0.1).loss.backward()
    assert torch.cuda.max_memory_allocated() - before < n * n * 4 / 4


def test_on_a_gpu_a_run_finds_its_budget_and_resumes_with_it(tmp_path: Path) -> None:
    def batches(step: int) -> Batch:
        return spans(64, step=step)

    for _ in range(2):
        objective = Toy(dropout=0.1).float()
        loop = LoopConfig(steps=4, log_every=1, workers=1, checkpoint_every=2)
        train(objective, batches, tmp_path, loop=loop, optim=AdamWConfig(lr=0.01), world=GPU)
    assert read_log(tmp_path)[-1]["chunk_tokens"] >= 4096


def test_on_a_gpu_compile_is_asked_of_the_objective_once(tmp_path: Path) -> None:
    class Compiled(Toy):
        asked = 0

        def compile(self, *args: object, **kwargs: object) -> None:
            self.asked += 1

    objective = Compiled().float()
    loop = LoopConfig(steps=2, workers=0, chunk_tokens="whole", compile=True)
    train(objective, lambda step: spans(4, step=step), tmp_path, loop=loop, world=GPU)
    assert objective.asked == 1


def test_on_a_gpu_a_loss_that_is_not_finite_stops_the_run_at_its_step(tmp_path: Path) -> None:
    class Broken(Local):
        def represent(self, chunk: Batch) -> Represented:
            found = super().represent(chunk)
            bad = torch.inf if int(self.steps) == 3 else 1.0
            return Represented(found.vectors, {**found.terms, "mlm": found.terms["mlm"] * bad})

    loop = LoopConfig(steps=9, log_every=100, workers=0, chunk_tokens="whole", precision="fp32")
    with pytest.raises(TrainingError, match="mlm became infinite or NaN at step 4"):
        train(Broken(), lambda step: spans(4, step=step), tmp_path, loop=loop, world=GPU)
    assert (tmp_path / "bad-batch-step-4-rank-0.safetensors").is_file()
