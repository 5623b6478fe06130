"""A world for the engine's tests: a tiny packed encoder in float64 and objectives on it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from liebig import losses
from liebig.base.rng import integers, key
from liebig.model.packed import Packed
from liebig.ragged import Ragged
from liebig.train.batch import Batch, Side, unweave, weave
from liebig.train.distributed import World
from liebig.train.objective import Contrast, Objective, Represented

VOCABULARY, WIDTH = 23, 6


class Encoder(nn.Module):
    """Embeddings, a mean over the sequence mixed into each token, a small network; dropout in between."""

    def __init__(self, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(dropout)) for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.double()

    def forward(self, packed: Packed) -> Tensor:
        x = self.embed(packed.tokens)
        for layer in self.layers:
            x = x + layer(x + mean(x, packed)[packed.sequence])
        return self.norm(x)


def mean(x: Tensor, packed: Packed) -> Tensor:
    sums = x.new_zeros(len(packed), x.shape[1]).index_add(0, packed.sequence, x)
    return sums / packed.lengths[:, None].to(x.dtype)


class Toy(Objective):
    """Masked tokens (a local term) and spans of one example contrasted (Eq. 6): coCondenser in miniature."""

    def __init__(self, dropout: float = 0.0, temperature: float = 0.5, mlm_weight: float = 0.7) -> None:
        super().__init__()
        self.encoder = Encoder(dropout)
        self.head = nn.Linear(WIDTH, VOCABULARY).double()
        self.drop = nn.Dropout(dropout)
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.temperature: float | Tensor = temperature
        self.weights = {"mlm": mlm_weight, "correct": 0.0, "contrast": 1.3}
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def counts(self, batch: Batch) -> dict[str, int]:
        targets = batch.sides["text"].targets
        assert targets is not None
        return {"mlm": len(targets), "correct": len(targets)}

    def represent(self, chunk: Batch) -> Represented:
        side = chunk.sides["text"]
        states = self.encoder(side.packed)
        vectors = mean(states, side.packed)
        assert side.targets is not None
        assert side.labels is not None
        found = losses.mlm(self.head(self.drop(states[side.targets])), side.labels)
        return Represented(vectors, {"mlm": found.loss, "correct": found.correct.to(found.loss.dtype)})

    def vectors(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["text"].packed
        return mean(self.encoder(packed), packed)

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        everything, start = world.gather(vectors)
        found = losses.cocondenser(vectors, everything, start, temperature=self.temperature)
        return Contrast(found.loss, {"accuracy": found.accuracy, "alignment": found.alignment})

    def after_step(self) -> None:
        self.steps += 1


class Local(Toy):
    """The masked-token term alone: no contrast, one pass."""

    contrastive = False


class Learnt(Toy):
    """A temperature that is learnt: a parameter of the contrastive loss itself, outside the model."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        self.temperature = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))


class TwoSided(Toy):
    """Queries and any number of passages an example, keys without gradient, teacher scores as extras."""

    def represent(self, chunk: Batch) -> Represented:
        found = {name: mean(self.encoder(s.packed), s.packed) for name, s in chunk.sides.items()}
        scores = (found["query"] ** 2).sum(dim=1) * chunk.extras["teacher"]
        return Represented(weave(chunk, found), {"teacher": scores.sum()})

    vectors = Objective.vectors

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"teacher": batch.n}

    def constants(self, chunk: Batch) -> Tensor:
        packed = chunk.sides["query"].packed
        return mean(self.encoder(packed), packed) * 0.9

    def contrast(self, vectors: Tensor, constants: Tensor | None, batch: Batch, world: World) -> Contrast:
        parts = unweave(batch, vectors, ("query", "passage"))
        owner = batch.sides["passage"].owner
        first = torch.searchsorted(owner, torch.arange(batch.n, device=owner.device))
        passages, start = world.gather(parts["passage"])
        total = int(world.total(torch.tensor(batch.n)))
        found = losses.info_nce(parts["query"], passages, start + first, temperature=0.05, total=total)
        assert constants is not None
        pull = (parts["query"] - constants).square().sum() / total
        return Contrast(found.loss + pull, {"accuracy": found.accuracy})


def sequences(n: int, seed: int, step: int) -> tuple[Packed, np.ndarray]:
    lengths = 2 + integers(key(seed, step, 0), np.arange(n), 6)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = integers(key(seed, step, 1), np.arange(offsets[-1]), VOCABULARY)
    return Packed.from_ragged(Ragged(tokens, offsets)), offsets


def spans(n: int = 8, seed: int = 0, step: int = 0) -> Batch:
    """n examples of two sequences each, some positions masked."""
    packed, _ = sequences(2 * n, seed, step)
    targets = torch.from_numpy(np.flatnonzero(integers(key(seed, step, 2), np.arange(packed.total), 3) == 0))
    side = Side(packed, torch.arange(n).repeat_interleave(2), targets, packed.tokens[targets])
    return Batch({"text": side}, n)


def groups(n: int = 7, seed: int = 0) -> Batch:
    """n examples of one query and one to three passages each, with a teacher's score."""
    sizes = torch.from_numpy(1 + integers(key(seed, 3), np.arange(n), 3))
    query = Side(sequences(n, seed, 10)[0], torch.arange(n))
    passage = Side(sequences(int(sizes.sum()), seed, 11)[0], torch.arange(n).repeat_interleave(sizes))
    return Batch({"query": query, "passage": passage}, n, {"teacher": torch.linspace(0.1, 1, n).double()})


def gradients(objective: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None}


def assert_equal_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=tolerance, atol=tolerance, msg=name)
