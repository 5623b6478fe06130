"""Learning from a teacher's scores in the groups file: KL over the batch or the group, and margin-MSE.

KL(teacher‖student); coCondenser's Eq. 16 is written the other way, which is infinite where the teacher gives zero.
The teacher's softmax runs over the query's own group; the student's over all passages of the batch, as Tevatron v1,
or over the group. Any teacher works: `liebig rerank score` writes such scores, and so may any other program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn.functional import normalize

from liebig import losses
from liebig.losses.contrastive import Similarity
from liebig.methods.contrastive import MEMBERS, TEACHER, Meeting
from liebig.train.objective import Contrast


@dataclass(frozen=True)
class SoftLabels:
    """KL from the teacher's distribution over the group to the student's over batch or group."""

    over: Literal["batch", "group"] = "batch"
    temperature: float = 1.0
    teacher_temperature: float = 1.0
    similarity: Similarity = "dot"

    def __call__(self, meeting: Meeting) -> Contrast:
        members, teacher = _marks(meeting)
        if self.over == "batch":
            loss = losses.kl_batch(
                meeting.queries,
                meeting.passages,
                members,
                teacher,
                mask=members >= 0,
                temperature=self.temperature,
                teacher_temperature=self.teacher_temperature,
                similarity=self.similarity,
                exclude=_without_own(meeting),
                total=meeting.total,
            )
        else:
            loss = losses.kl(
                group_scores(meeting, self.similarity),
                teacher,
                mask=members >= 0,
                temperature=self.temperature,
                teacher_temperature=self.teacher_temperature,
                total=meeting.total,
            )
        return Contrast(loss, {"kl": loss.detach()})


@dataclass(frozen=True)
class MarginMSE:
    """The student's margin between the first positive and each negative against the teacher's."""

    similarity: Similarity = "dot"

    def __call__(self, meeting: Meeting) -> Contrast:
        _, teacher = _marks(meeting)
        scores = group_scores(meeting, self.similarity)
        there = _members(meeting)[:, 1:] >= 0
        rows, places = (x.to(scores.device) for x in there.nonzero(as_tuple=True))
        per_query = there.sum(dim=1).clamp(min=1).to(scores)[rows].sqrt()
        error = losses.margin_mse(
            scores[rows, 0] / per_query,
            scores[rows, places + 1] / per_query,
            teacher[rows, 0] / per_query,
            teacher[rows, places + 1] / per_query,
            total=meeting.total,
        )
        return Contrast(error, {"margin_mse": error.detach()})


def group_scores(meeting: Meeting, similarity: Similarity) -> Tensor:
    """Scores of each query with the members of its own group, n × g; places past a group's end hold anything."""
    q, p = meeting.queries, meeting.passages
    if similarity == "cosine":
        q, p = normalize(q, dim=1), normalize(p, dim=1)
    members = meeting.batch.extras[MEMBERS].clamp(min=0).to(q.device)
    return (q[:, None] * p[members]).sum(dim=2)


def _marks(meeting: Meeting) -> tuple[Tensor, Tensor]:
    queries, extras = meeting.queries, meeting.batch.extras
    return extras[MEMBERS].to(queries.device), extras[TEACHER].to(queries)


def _members(meeting: Meeting) -> Tensor:
    """The same columns in host memory, where asking for them waits for nothing."""
    found = meeting.batch.on_host(MEMBERS)
    assert found is not None, "a batch names the members of its groups"
    return found


def _without_own(meeting: Meeting) -> Tensor | None:
    """Entries to exclude that are not of the query's own group: the teacher has an opinion of those."""
    exclude = meeting.exclude()
    if exclude is None:
        return None
    own = _members(meeting)[exclude[:, 0]] == exclude[:, 1, None]
    return exclude[~own.any(dim=1)]
