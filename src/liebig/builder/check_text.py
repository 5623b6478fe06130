"""The check of a build in words: the result in a sentence, a table of the systems, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from liebig.builder.judge import (
    BASELINE,
    LABELS,
    START,
    TRAINED,
    Decision,
    Difference,
    SystemChoice,
    SystemJudge,
)
from liebig.builder.questions import MODEL, OWN

LONE = {"bm25": "words alone (BM25)", "dense": "meaning alone (vectors)"}


def headline(decision: Decision) -> str:
    choice, belief = decision.choice, decision.belief
    best = decision.choices.index(choice)
    served = {
        "hybrid": "Words and meaning together answer",
        "reranked": "Words and meaning together, reranked, answer",
        "bm25": "Words alone (BM25) answer",
    }[choice.system]
    others = {
        "the plain hybrid": BASELINE,
        LONE["bm25"]: SystemChoice(system="bm25"),
        LONE["dense"]: SystemChoice(choice.encoder, "dense"),
    }
    there = {
        name: decision.choices.index(one)
        for name, one in others.items()
        if one in decision.choices and one != choice
    }
    losses = {name: belief.difference(best, place)[0] for name, place in there.items()}
    rivals = [place for name, place in there.items() if name != LONE["dense"]]  # which is never served
    least, rival = min((belief.probability(best, place), place) for place in rivals)
    cost = belief.loss(best, rival) / max(1 - least, 1e-9)
    lost = ", ".join(
        f"{name} would {'lose' if loss >= 0 else 'gain'} about {abs(100 * loss):.1f} points"
        + (" and miss identifiers" if loss < 0 and name == LONE["dense"] else "")
        for name, loss in losses.items()
    )
    return (
        f"{served} best here, with {percent(least)} probability (if not, that costs about {100 * cost:.1f} points); "
        f"{lost}."
    )


def percent(probability: float) -> str:
    """As people read it: never quite certain."""
    return f"{min(99, max(1, round(100 * probability)))} %"


def why(decision: Decision, judge: SystemJudge) -> list[str]:
    """What was decided about other encoders, sentences and the reranker, as sentences."""
    choice, lines = decision.choice, []
    for encoder in (name for name in judge.encoders if name != START):
        label = {TRAINED: "Training", OWN: "Training on your questions"}.get(
            encoder, f"The encoder {LABELS.get(encoder, encoder)!r}"
        )
        if encoder in judge.display_only:
            difference = judge.difference(
                judge.values(SystemChoice(encoder).as_deployed), judge.values(BASELINE.as_deployed)
            )
            lines.append(
                f"The teacher is there to compare with: its hybrid has {formatted(difference)} to the untrained "
                "one on the questions. To search with it: --model."
            )
            continue
        mine, start = (
            max(
                (
                    n
                    for n, one in enumerate(decision.choices)
                    if one.encoder == name and one.system == "hybrid"
                ),
                key=lambda n: decision.belief.mean[n],
                default=0,
            )
            for name in (encoder, START)
        )
        kept = "is kept" if choice.encoder == encoder else "is not kept"
        lines.append(f"{label} {kept}: {_expects(decision, mine, start)} over the untrained encoder.")
    if choice.encoder in judge.sentences and choice.system in ("hybrid", "reranked"):
        used = "are used" if choice.sentences else "are not used"
        with_them, without = (
            max(
                (
                    n
                    for n, one in enumerate(decision.choices)
                    if (one.encoder, one.system, one.sentences) == (choice.encoder, "hybrid", sentences)
                ),
                key=lambda n: decision.belief.mean[n],
            )
            for sentences in (True, False)
        )
        lines.append(f"Vectors of sentences {used}: {_expects(decision, with_them, without)}.")
    for reranked in (n for n, one in enumerate(decision.choices) if one.system == "reranked"):
        hybrid = decision.choices.index(replace(decision.choices[reranked], system="hybrid"))
        used = "is used" if choice.system == "reranked" else "is kept but not used by default"
        lines.append(
            f"The reranker {used}: {_expects(decision, reranked, hybrid)} over the hybrid that it reranks."
        )
    return lines


def _expects(decision: Decision, a: int, b: int) -> str:
    mean, error = decision.belief.difference(a, b)
    better = percent(decision.belief.probability(a, b))
    return f"expected {mean:+.3f} ± {error:.3f} (better with {better} probability)"


def formatted(difference: Difference) -> str:
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def sentences(checks: Mapping[str, Any]) -> list[str]:
    """The check for people: the result in a sentence, a table of the systems, and the reasons."""
    made = ", ".join(f"{count} by {kind}" for kind, count in checks["questions"].items()) or "none"
    if not checks["rows"] and checks.get("headline"):
        return [checks["headline"]]
    if not checks["rows"]:
        return [f"Questions made from the documents: {made}. Too few to tell systems apart, or no system "
                "answers them: BM25 and the untrained encoder are used together, with equal weights."]  # fmt: skip
    lines = [checks["headline"], f"Asked: {made}; {checks['measure']} by {_asked(checks['questions'])}:"]
    return [*lines, *_table(checks), *checks["why"]]


def _asked(counts: Mapping[str, int]) -> str:
    """Whose questions the table is about."""
    if MODEL not in counts:
        return "your questions" if OWN in counts else "questions made from the documents"
    if OWN in counts:
        return "your questions, as people and a language model judged them"
    return "your questions, which a language model judged and nobody else: it may be wrong"


def _table(checks: Mapping[str, Any]) -> list[str]:
    """A line for each system: its value and interval, its expected gain, its speed, values by kind."""
    rows = checks["rows"]
    of_kinds = list(rows[0]["kinds"])
    width = max(len(row["name"]) for row in rows)
    head = "  ".join(f"{kind:>9}" for kind in of_kinds) if len(of_kinds) > 1 else ""
    lines = [
        f"  {'':<{width}}  value  95 %             expected gain  better  questions     latency  {head}".rstrip()
    ]
    for row in rows:
        line = f"  {row['name']:<{width}}  {row['value']:.3f}  [{row['low']:.3f}, {row['high']:.3f}]"
        if row["name"] == checks["baseline"]:
            line += "        baseline        "
        elif "expected" in row:
            line += f"  {row['expected']:+.3f} ± {row['error']:.3f}  {percent(row['better']):>6}"
        else:
            line += " " * 24
        line += f"{row['per_second']:>9,.0f}/s{1000 / row['per_second']:>9.1f} ms"
        if len(of_kinds) > 1:
            line += "   " + "  ".join(f"{row['kinds'][kind]:>9.3f}" for kind in of_kinds)
        lines.append(line + ("  <- chosen" if row["name"] == checks["chosen"] else ""))
    return lines
