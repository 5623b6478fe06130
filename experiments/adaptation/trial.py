"""Which training without labels adds to the hybrid of BM25 and the bundled encoder? Trials on development questions.

    python experiments/adaptation/trial.py DATA OUT --sets scifact medquad squad --arms recipe recipe-300
    python experiments/adaptation/trial.py DATA OUT --sets squad --arms question --generated FOLDER --expansion
    python experiments/adaptation/trial.py DATA OUT --sets squad --arms recipe,bonus=0.1,keep=10 --shares 0.5 0.75

DATA holds BEIR folders (`corpus.jsonl.xz`, `queries.jsonl.xz`, `qrels/`), and models under `DATA/models` for teachers
named `encoder:NAME`. FOLDER holds generated questions, `SET-KIND.jsonl` with lines {"passage": id, "queries": [...]}.
An arm cuts pseudo-queries out of the corpus, has a teacher score all passages for each, and trains the encoder to give
the best candidates the teacher's ranking. It is judged at several shares of the way from the old weights to the new
ones. Each system is a line of OUT/trials.jsonl, as nDCG@10 and as the gain over the untrained hybrid; the values of
all questions are in OUT/SET-ARM-SEED.npz. README.md has what came out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from corpus import Corpus, Encoder, Floats, State, Words, best_per_owner, hybrid
from pseudo_queries import Integers, Queries, draw, draw_titled, read_generated
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from liebig import encoders
from liebig.text.sentences import spans

Teacher = Callable[[list[str]], Tensor]  # the scores of all passages for each text

DEV = {"scifact": "train", "medquad": "dev", "squad": "dev", "cranfield": "test"}
LABELS = 100  # the most labels of an arm; where they are dev questions, no arm of the run is asked them
TRAINED_LENGTH = 256  # tokens of a passage in training
BM25_WEIGHTS = (0.6, 0.5, 0.45, 0.4, 0.3, 0.2)
SENTENCE_WEIGHTS = ((0.5, 0.35, 0.15), (0.45, 0.4, 0.15), (0.4, 0.4, 0.2), (0.35, 0.45, 0.2))
OLD_ENCODER_WEIGHTS = ((0.5, 0.25, 0.25), (0.4, 0.3, 0.3))
PROMPTS = {  # of queries and passages, for other encoders
    "bge-small": ("Represent this sentence for searching relevant passages: ", ""),
    "e5-small": ("query: ", "passage: "),
}


@dataclass(frozen=True)
class Arm:
    """A training: on which pseudo-queries, who teaches, how long. Mixtures are written "0.3 bm25 + 0.7 dense"."""

    kinds: (
        str  # title, span, keywords, sentence, titled, labels, or the KIND of a file of generated questions
    )
    teacher: str = "0.5 bm25 + 0.5 dense"  # bm25, dense, sentence, feedback, encoder:NAME
    bonus: float = 0.0  # added to the teacher's score of the passage that a query comes from
    keep: int = 0  # a query is dropped unless its passage is among the teacher's first `keep`; 0 keeps all
    margin: float = 0.0  # passages above this share of the own passage's score are no candidates; 0 for all
    contrast: float = 0.0  # weight of the contrastive loss against the candidates of other queries
    labels: int = 0  # judged questions for the kind `labels`
    after: str = ""  # the arm whose weights, half of the way, are the start
    steps: int = 150
    batch: int = 48
    candidates: int = 16
    lr: float = 2e-5
    sharp: float = 8.0  # factor of the teacher's scores before the softmax
    scale: float = 20.0  # factor of cosines before the softmax

    def changed(self, changes: Iterable[str]) -> Arm:
        """This arm with other values, each given as `field=value`."""
        values = dict(change.split("=", 1) for change in changes)
        return dataclasses.replace(self, **{k: type(getattr(self, k))(v) for k, v in values.items()})


SELF = Arm("0.5 span + 0.25 title + 0.25 keywords")
RECIPE = Arm("0.5 titled + 0.2 keywords + 0.3 sentence", bonus=0.3, keep=20)
QUESTION = Arm("1 question", bonus=0.3, keep=20)
TITLED = Arm("0.4 question + 0.4 titled + 0.2 sentence", bonus=0.3, keep=20)
LABELLED = Arm("1 labels", labels=100, bonus=1.0, contrast=0.2, margin=0.98, steps=50)
DENSER = "0.3 bm25 + 0.7 dense"
WITH_SENTENCES = "0.4 bm25 + 0.4 dense + 0.2 sentence"
change = dataclasses.replace
ARMS = {
    "recipe": RECIPE,
    "recipe-300": change(RECIPE, steps=300),
    "recipe-bonus-0.6": change(RECIPE, bonus=0.6),
    "recipe-no-keywords": change(RECIPE, kinds="0.6 titled + 0.4 sentence"),
    "recipe-titles": change(RECIPE, kinds="0.4 titled + 0.1 title + 0.3 sentence + 0.2 span"),
    "recipe-denser-teacher": change(RECIPE, teacher=DENSER),
    "recipe-sentence-teacher": change(RECIPE, teacher=WITH_SENTENCES),
    "recipe-labels-100": change(LABELLED, after="recipe"),
    "recipe-labels-20": change(LABELLED, after="recipe", labels=20, steps=15),
    "labels-100": LABELLED,
    "labels-question": Arm("0.5 labels + 0.5 question", labels=100, bonus=0.6, contrast=0.1, steps=100),
    "question": Arm("1 question"),
    "question-bonus": QUESTION,
    "question-contrast": change(QUESTION, bonus=1.0, keep=10, margin=0.95, contrast=0.2),
    "question-mix": change(QUESTION, kinds="0.5 question + 0.25 sentence + 0.25 keywords"),
    "question-titled-300": change(TITLED, steps=300),
    "question-titled-denser-teacher": change(TITLED, teacher=DENSER),
    "cloze": Arm("0.7 sentence + 0.3 title", bonus=0.5, keep=10),
    "cloze-contrast": Arm("0.5 sentence + 0.2 title + 0.3 keywords", bonus=0.25, keep=20, contrast=0.2),
    "self": SELF,
    "self-contrast": change(SELF, contrast=0.1),
    "self-dense": change(SELF, teacher="1 dense"),
    "bm25": change(SELF, teacher="1 bm25"),
    "sentence": change(SELF, teacher="1 sentence + 1 bm25 + 1 dense"),
    "feedback": change(SELF, teacher="1 feedback + 1 bm25 + 1 dense"),
}


def mixture(text: str) -> dict[str, float]:
    """The parts of "0.3 bm25 + 0.7 dense" with their shares, which sum to 1."""
    pairs = [part.split() for part in text.split("+")]
    total = sum(float(share) for share, _ in pairs)
    return {name: float(share) / total for share, name in pairs}


@dataclass(frozen=True)
class Lists:
    """The teacher's best passages for each query, with scores; below 0 are passages that do not count."""

    queries: Queries
    passages: Tensor
    scores: Tensor
    kept: float  # share of the pseudo-queries that passed `keep`


def teach(teacher: Teacher, queries: Queries, arm: Arm, device: str) -> Lists:
    passages, scores, kept = list[Tensor](), list[Tensor](), list[Tensor]()
    for at in range(0, len(queries.texts), 512):
        every = teacher(queries.texts[at : at + 512])
        source = torch.from_numpy(queries.sources[at : at + 512]).to(device)
        row = torch.arange(len(source), device=device)
        own = every[row, source]
        rank = (every > own[:, None]).sum(dim=1)
        kept.append(rank < (arm.keep or every.shape[1]))
        every[row, source] += arm.bonus
        if arm.margin:
            # What the teacher ranks near or above the own passage may well answer the query too.
            rivals = every > own[:, None] * arm.margin
            rivals[row, source] = False
            every = every.masked_fill(rivals, -1)
        best = every.topk(arm.candidates, dim=1)
        passages.append(best.indices)
        scores.append(best.values)
    places = torch.where(torch.cat(kept))[0].cpu().numpy()
    share = len(places) / len(queries.texts)
    places = places[: arm.steps * arm.batch]
    return Lists(queries.pick(places), torch.cat(passages)[places], torch.cat(scores)[places], share)


def list_loss(queries: Tensor, members: Tensor, scores: Tensor, arm: Arm) -> Tensor:
    """Cross-entropy between the softmaxes of the teacher's scores and of cosines over a query's candidates."""
    cosines = (queries[:, None] * members).sum(dim=2) * arm.scale
    target = (scores * arm.sharp).masked_fill(scores < 0, -1e4).softmax(dim=1)
    return -(target * cosines.masked_fill(scores < 0, -1e4).log_softmax(dim=1)).sum(dim=1).mean()


def contrastive_loss(
    queries: Tensor, vectors: Tensor, numbers: Integers, columns: Tensor, sources: Integers, arm: Arm
) -> Tensor:
    """The own passage against candidates of other queries: a query's own candidates may be right too."""
    place = {int(number): column for column, number in enumerate(numbers)}
    present = [row for row, source in enumerate(sources) if int(source) in place]
    if not present:
        return queries.new_zeros(())
    target = torch.tensor([place[int(sources[row])] for row in present], device=queries.device)
    cosines = queries[present] @ vectors.T * arm.scale
    mask = torch.zeros_like(cosines, dtype=torch.bool).scatter(1, columns[present], True)
    mask[torch.arange(len(present), device=mask.device), target] = False
    return cross_entropy(cosines.masked_fill(mask, -torch.inf), target)


def train(encoder: Encoder, passages: list[list[int]], lists: Lists, arm: Arm) -> None:
    """Steps of AdamW over the lists, with a short rise and a linear fall of the learning rate."""
    steps = len(lists.queries.texts) // arm.batch
    tokens = encoder.tokens(lists.queries.texts)
    parameters = list(encoder.model.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=arm.lr, weight_decay=0.01, fused=encoder.device == "cuda")
    warm = max(1, steps // 10)
    encoder.model.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = arm.lr * min((step + 1) / warm, (steps - step) / max(1, steps - warm))
        batch = slice(step * arm.batch, (step + 1) * arm.batch)
        best = lists.passages[batch]
        numbers, inverse = np.unique(best.cpu().numpy(), return_inverse=True)
        columns = torch.from_numpy(inverse.reshape(best.shape)).to(best.device)
        vectors = encoder.forward([passages[number] for number in numbers])
        queries = encoder.forward(tokens[batch])
        loss = list_loss(queries, vectors[columns], lists.scores[batch], arm)
        if arm.contrast:
            sources = lists.queries.sources[batch]
            loss = loss + arm.contrast * contrastive_loss(queries, vectors, numbers, columns, sources, arm)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    encoder.model.eval()


def between(start: State, end: State, share: float) -> State:
    """Weights at a share of the way."""
    return {k: v + share * (end[k] - v) if v.is_floating_point() else v for k, v in start.items()}


class Trial:
    """All arms on one set."""

    def __init__(self, args: argparse.Namespace, corpus: Corpus, arms: dict[str, Arm]) -> None:
        self.args, self.corpus, self.arms = args, corpus, arms
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.encoder = Encoder(encoders.folder(), self.device, args.length)
        self.untrained = Encoder(encoders.folder(), self.device, args.length)
        self.start = self.encoder.state()
        self.pairs = read_generated(args.generated, corpus) if args.generated else {}
        self.labelled = Queries([], np.zeros(0, np.int64))
        if any(arm.labels for arm in arms.values()):
            self.labelled = self.set_labels_apart()
        self.passages = self.encoder.tokens(corpus.whole)
        self.short = [
            t if len(t) <= TRAINED_LENGTH else t[: TRAINED_LENGTH - 1] + t[-1:] for t in self.passages
        ]
        self.questions = self.encoder.tokens(corpus.questions)
        self.bm25 = self.lexical(corpus.questions)
        self.old = self.encoder.encode(self.passages)
        old_questions = self.encoder.encode(self.questions)
        self.old_dense = old_questions @ self.old.T
        self.old_sentences = self.by_sentence(old_questions, self.sentences)
        self.base = corpus.ndcg(hybrid((0.5, 0.5), self.bm25, self.old_dense))

    def set_labels_apart(self) -> Queries:
        """Labels of the train split: a hundred at random, or the first of those that would be asked."""
        corpus = self.corpus
        if DEV[corpus.name] == "train":
            texts, relevant = corpus.questions[:LABELS], corpus.relevant[:LABELS]
            corpus.questions, corpus.relevant = corpus.questions[LABELS:], corpus.relevant[LABELS:]
        else:
            train = Corpus.read(self.args.data, corpus.name, "train")
            places = np.random.default_rng(5).permutation(len(train.questions))[:LABELS]
            texts, relevant = [train.questions[i] for i in places], [train.relevant[i] for i in places]
        return Queries(texts, np.array([next(iter(grades)) for grades in relevant]))

    def run(self) -> None:
        alone = {"bm25": self.bm25} | self.systems(self.start)
        self.report("start", 0, 0.0, {name: self.corpus.ndcg(scores) for name, scores in alone.items()})
        for name, arm in self.arms.items():
            for seed in self.args.seeds:
                self.run_arm(name, arm, seed)

    def run_arm(self, name: str, arm: Arm, seed: int) -> None:
        started = time.time()
        start, end, kept = self.fit(arm, seed)
        seconds = round(time.time() - started)
        arrays = {"base": self.base}
        for share in self.args.shares:
            systems = self.systems(between(start, end, share))
            values = {system: self.corpus.ndcg(scores) for system, scores in systems.items()}
            self.report(name, seed, share, values, kept=kept, seconds=seconds)
            arrays |= {f"{share} {system}": value for system, value in values.items()}
        file = f"{self.corpus.name}-{name}-{seed}.npz".replace("/", "_").replace(":", "_")
        np.savez_compressed(self.args.out / file, **arrays)  # type: ignore[arg-type]

    def report(self, arm: str, seed: int, share: float, values: dict[str, Floats], **more: float) -> None:
        with (self.args.out / "trials.jsonl").open("a", encoding="utf-8") as file:
            for system, value in values.items():
                gain = value - self.base
                error = float(gain.std() / len(gain) ** 0.5)
                row = {"set": self.corpus.name, "arm": arm, "seed": seed, "share": share, "system": system}
                row |= {"ndcg": float(value.mean()), "gain": float(gain.mean()), "error": error}
                file.write(json.dumps({**row, "questions": len(value), **more}) + "\n")
                place = f"{self.corpus.name:8s} {arm} {seed} @{share} {system}"
                print(f"{place:72s} {value.mean():.4f} {gain.mean():+.4f} ± {1.96 * error:.4f}", flush=True)

    def fit(self, arm: Arm, seed: int) -> tuple[State, State, float]:
        """Weights before and after training, and the share of pseudo-queries that were kept."""
        start = self.start
        if arm.after:
            start = between(*self.fit(ARMS[arm.after], seed)[:2], 0.5)
        torch.manual_seed(seed)
        self.encoder.model.load_state_dict(start)
        queries = self.pseudo_queries(arm, int(arm.steps * arm.batch * (1.6 if arm.keep else 1)), seed)
        lists = teach(self.teacher(arm.teacher), queries, arm, self.device)
        train(self.encoder, self.short, lists, arm)
        return start, self.encoder.state(), lists.kept

    def pseudo_queries(self, arm: Arm, count: int, seed: int) -> Queries:
        """The arm's mixture in random order, none of them (labels excepted) from a passage that is held out."""
        random = np.random.default_rng(seed)
        texts, sources = list[str](), list[int]()
        for kind, share in mixture(arm.kinds).items():
            wanted = round(count * share)
            if kind == "labels" or kind in self.pairs:
                pool = self.labelled if kind == "labels" else self.pairs[kind]
                once = random.permutation(np.arange(arm.labels) if kind == "labels" else pool.trainable())
                places = once
                while len(places) < wanted:
                    places = np.concatenate([places, random.permutation(once)])
            else:
                more = int(wanted * 1.3) + 20  # a tenth of them come from held-out passages
                if kind == "titled":
                    pool = draw_titled(self.corpus, more, seed)
                else:
                    pool = draw(self.corpus, {kind: 1}, more, seed)[0]
                places = pool.trainable()
            queries = pool.pick(places[:wanted])
            texts += queries.texts
            sources += queries.sources.tolist()
        return Queries(texts, np.array(sources)).pick(random.permutation(len(texts)))

    def teacher(self, text: str) -> Teacher:
        """A mixture of untrained scores, each in [0, 1] by min-max over the best hundred."""
        parts = mixture(text)
        known = {
            "bm25": self.lexical,
            "dense": self.dense,
            "sentence": self.sentence,
            "feedback": self.feedback,
        }
        others = {name: self.other(name.removeprefix("encoder:")) for name in parts if name not in known}
        scorers = [(known | others)[name] for name in parts]
        return lambda texts: hybrid(parts.values(), *(scorer(texts) for scorer in scorers))

    def lexical(self, texts: list[str], words: Words | None = None) -> Tensor:
        return torch.from_numpy((words or self.corpus.words).scores(texts)).to(self.device)

    def vectors(self, texts: list[str]) -> Tensor:
        return self.untrained.encode(self.untrained.tokens(texts))

    def dense(self, texts: list[str]) -> Tensor:
        return self.vectors(texts) @ self.old.T

    def sentence(self, texts: list[str]) -> Tensor:
        return self.by_sentence(self.vectors(texts), self.sentences)

    def feedback(self, texts: list[str]) -> Tensor:
        """The query moved towards the five best passages of the hybrid."""
        queries = self.vectors(texts)
        top = hybrid((0.5, 0.5), self.lexical(texts), queries @ self.old.T).topk(5, dim=1).indices
        return normalize(0.6 * queries + 0.4 * self.old[top].mean(dim=1), dim=1) @ self.old.T

    def other(self, name: str) -> Teacher:
        """Another encoder of DATA/models."""
        of_queries, of_passages = PROMPTS.get(name, ("", ""))
        model = Encoder(self.args.data / "models" / name, self.device, self.args.length)
        passages = model.encode(model.tokens([of_passages + text for text in self.corpus.whole]))
        return lambda texts: model.encode(model.tokens([of_queries + text for text in texts])) @ passages.T

    @cached_property
    def sentence_tokens(self) -> tuple[list[list[int]], Tensor]:
        """The tokens of all sentences, and the passage of each."""
        texts, owners = list[str](), list[int]()
        for number, text in enumerate(self.corpus.texts):
            places = spans(text) or [(0, len(text))]
            texts += [text[a:b] or "-" for a, b in places]
            owners += [number] * len(places)
        return self.encoder.tokens(texts), torch.tensor(owners, device=self.device)

    @cached_property
    def sentences(self) -> Tensor:
        return self.untrained.encode(self.sentence_tokens[0])

    def by_sentence(self, queries: Tensor, sentences: Tensor) -> Tensor:
        """A passage's best sentence."""
        return best_per_owner(queries, sentences, self.sentence_tokens[1], len(self.corpus.texts))

    def systems(self, state: State) -> dict[str, Tensor]:
        """What an encoder is judged as: alone, with BM25, with its sentences, and beside the untrained encoder."""
        self.encoder.model.load_state_dict(state)
        passages, queries = self.encoder.encode(self.passages), self.encoder.encode(self.questions)
        dense = queries @ passages.T
        sentences = self.by_sentence(queries, self.encoder.encode(self.sentence_tokens[0]))
        systems = {"dense": dense}
        for weight in BM25_WEIGHTS:
            systems[f"bm25 {weight}"] = hybrid((weight, 1 - weight), self.bm25, dense)
        for weights in SENTENCE_WEIGHTS:
            name = "bm25 {} passages {} sentences {}".format(*weights)
            systems[name] = hybrid(weights, self.bm25, dense, sentences)
            systems[name + " untrained"] = hybrid(weights, self.bm25, dense, self.old_sentences)
        for weights in OLD_ENCODER_WEIGHTS:
            name = "bm25 {} untrained {} trained {}".format(*weights)
            systems[name] = hybrid(weights, self.bm25, self.old_dense, dense)
        if self.args.expansion:
            for kind, generated in self.pairs.items():
                systems |= self.expansions(kind, generated, passages, queries)
        return systems

    @cached_property
    def expanded_bm25(self) -> dict[str, Tensor]:
        """BM25 over passages with their generated questions, by kind."""
        scores = {}
        for kind, generated in self.pairs.items():
            texts = [[whole] for whole in self.corpus.whole]
            for text, source in zip(generated.texts, generated.sources):
                texts[source].append(text)
            scores[kind] = self.lexical(self.corpus.questions, Words([" ".join(parts) for parts in texts]))
        return scores

    def expansions(
        self, kind: str, generated: Queries, passages: Tensor, queries: Tensor
    ) -> dict[str, Tensor]:
        """Generated questions as parts of passages: in BM25, in the mean of vectors, as the best of vectors."""
        expanded, dense, even = self.expanded_bm25[kind], queries @ passages.T, partial(hybrid, (0.5, 0.5))
        owners = torch.from_numpy(generated.sources).to(self.device)
        vectors = self.encoder.encode(self.encoder.tokens(generated.texts))
        means = normalize(torch.zeros_like(passages).index_add_(0, owners, vectors), dim=1)
        best = best_per_owner(queries, vectors, owners, len(passages))
        systems = {f"{kind} in bm25, alone": expanded, f"{kind} in bm25": even(expanded, dense)}
        for share in (0.15, 0.3, 0.5):
            moved = queries @ normalize((1 - share) * passages + share * means, dim=1).T
            raised = (1 - share) * dense + share * best
            for way, scores in {"mean": moved, "best": raised}.items():
                systems[f"{kind} as {way} {share}"] = even(self.bm25, scores)
                systems[f"{kind} as {way} {share}, in bm25"] = even(expanded, scores)
        return systems


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", default=["scifact", "medquad", "squad"])
    parser.add_argument(
        "--arms", nargs="*", default=["recipe"], help=f"NAME[,field=value...]: {', '.join(ARMS)}"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--shares", nargs="+", type=float, default=[0.5, 1.0], help="of the way to new weights"
    )
    parser.add_argument("--generated", type=Path, help="folder of generated questions, SET-KIND.jsonl")
    parser.add_argument(
        "--expansion", action="store_true", help="judge generated questions inside passages too"
    )
    parser.add_argument("--length", type=int, default=512, help="tokens of a text at most")
    args = parser.parse_args()
    arms = {text: ARMS[text.split(",")[0]].changed(text.split(",")[1:]) for text in args.arms}
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        Trial(args, Corpus.read(args.data, name, DEV[name]), arms).run()


if __name__ == "__main__":
    main()
