"""Means of students, and forms of their projection, chosen on dev; the chosen one and others on test, once.

python soup.py --home HOME
"""

import argparse, itertools, json, os, time
from pathlib import Path
import numpy as np
import torch
from judge import DEV, TEST, evaluate_encoder, ndcg, read_set, spearman, sts, sts_rows, table, unit
from student import Batches, Student, packaged, read_export, start_of
from teachers import teacher_encoder
from texts import PASSAGE, QUERY, Store, say, student_folder, tokens_again


class Fast:
    """nDCG@10 alone and with BM25 of a set's split, all queries at once."""

    def __init__(self, one, split, device):
        part = one.splits[split]
        n, count = len(part.queries), len(one.passages)
        self.grades = torch.zeros(n, count, device=device, dtype=torch.int8)
        for row, grades in enumerate(part.grades):
            for number, grade in grades.items():
                if number < count:
                    self.grades[row, number] = grade
        self.ideal = torch.tensor(
            [
                sum(g / np.log2(r + 2) for r, g in enumerate(sorted(gr.values(), reverse=True)[:10]))
                for gr in part.grades
            ],
            device=device,
            dtype=torch.float32,
        )
        self.depth = min(100, count)
        self.bm = torch.full((n, 100), count, dtype=torch.long, device=device)
        self.bm_scores = torch.zeros(n, 100, device=device)
        for row, (numbers, scores) in enumerate(part.bm25):
            keep = numbers < count
            numbers, scores = numbers[keep], scores[keep]
            if len(numbers):
                span = scores.max() - scores.min()
                mm = (scores - scores.min()) / span if span > 0 else np.ones(len(scores))
                self.bm[row, : len(numbers)] = torch.from_numpy(numbers).to(device)
                self.bm_scores[row, : len(numbers)] = torch.from_numpy(mm).float().to(device)
        self.gains = 1 / torch.log2(torch.arange(10, device=device) + 2.0)
        self.count = count

    def ndcg(self, numbers):
        g = (
            torch.nn.functional.pad(self.grades, (0, 1))
            .gather(1, numbers[:, :10].clamp(max=self.count))
            .float()
        )
        g = g * self.gains[: g.shape[1]]
        return torch.where(self.ideal > 0, g.sum(1) / self.ideal.clamp(min=1e-9), 0).mean().item()

    def __call__(self, queries, passages):
        scores, numbers = (queries @ passages.T).topk(self.depth)
        low, high = scores[:, -1:], scores[:, :1]
        mm = torch.where(high > low, (scores - low) / (high - low).clamp(min=1e-9), torch.ones_like(scores))
        same = numbers[:, :, None] == self.bm[:, None, :]
        dense_total = mm + (same * self.bm_scores[:, None, :]).sum(2)
        only = torch.where(same.any(1) | (self.bm == self.count), -1.0, self.bm_scores)
        both = torch.cat([dense_total, only], 1)
        order = both.topk(10).indices
        return self.ndcg(numbers), self.ndcg(torch.cat([numbers, self.bm], 1).gather(1, order))


def states(student, batches, rows=None, budget=1 << 18):
    lengths = batches.lengths
    rows = np.arange(len(lengths)) if rows is None else rows
    order = rows[np.argsort(lengths[rows], kind="stable")]
    place = np.argsort(np.argsort(lengths[rows], kind="stable"))
    sizes = np.cumsum(lengths[order] + 2)
    out, begin = [], 0
    with torch.no_grad():
        w = student.used(torch.float16 if student.device.type == "cuda" else None)
        while begin < len(order):
            before = sizes[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(sizes, before + budget, side="right")))
            out.append(student.pooled(*batches.get(order[begin:end]), w))
            begin = end
    return torch.cat(out)[torch.from_numpy(place).to(student.device)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--device", type=torch.device, default="cuda")
    parser.add_argument("--few", type=int, default=0)
    parser.add_argument("--names", nargs="+", default=["a", "b"])
    parser.add_argument("--sample", type=int, default=24000)
    parser.add_argument("--test", type=int, default=1)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    torch.set_float32_matmul_precision("highest")
    home, device = args.home, args.device
    tokenizer = student_folder(home) / "tokenizer.json"
    sets, pairs = [read_set(home, n, "dev", args.few) for n in DEV], sts_rows(home, "dev", args.few)
    fast = [Fast(one, "dev", device) for one in sets]
    store = Store.open(home)
    kinds = store.kinds
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.permutation(np.flatnonzero(kinds == k))[: args.sample // 8] for k in range(9)])
    long = torch.from_numpy(store.own_lengths[rows] > 60).to(device)
    flat = Batches(store.own, store.own_lengths, device)
    passages = [Batches(*tokens_again(tokenizer, one.passages), device) for one in sets]
    queries = [Batches(*tokens_again(tokenizer, one.splits["dev"].queries), device) for one in sets]
    pair = [Batches(*tokens_again(tokenizer, side), device) for side in pairs[:2]]
    members = {"m": read_export(home / "out" / "m")}
    for name in args.names:
        if (home / "out" / name / "about.json").exists():
            members[name] = read_export(home / "out" / name)
    names = list(members)
    few = (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1), (0, 1, 2), (1, 1, 2)
    shares = sorted({one[: len(names)] for one in few if any(one[: len(names)])})
    results = []

    def score(head, bias, pooled):
        with torch.no_grad():
            vec = [unit(x @ head.T + bias) for x in pooled]
        n = len(sets)
        values = [f(q, p) for f, q, p in zip(fast, vec[n : 2 * n], vec[:n])]
        alike = spearman((vec[-2] * vec[-1]).sum(1).cpu().numpy(), pairs[2])
        return values, alike

    best = None
    for given in shares:
        total = sum(given)
        weights = {}
        for name in members["m"]:
            weights[name] = sum(g / total * members[n][name].float() for g, n in zip(given, names))
        student = Student(weights, 12, device, tokenizer)
        pooled = [states(student, b) for b in (*passages, *queries, *pair)]
        some = states(student, flat, rows)
        label = "+".join(f"{g}{n}" for g, n in zip(given, names) if g)
        head, bias = student.head.detach(), student.head_bias.detach()
        vectors = some @ head.T + bias
        units, norm = unit(vectors), vectors.norm(dim=1).median()
        forms = [("plain", head, bias)]
        for which, mask in (("all", slice(None)), ("long", long)):
            if mask is long and not long.any():
                continue
            mean = units[mask].mean(0)
            centred = units[mask] - mean
            variance, directions = torch.linalg.eigh((centred.T @ centred / len(centred)).double())
            variance, directions = variance.flip(0)[:384].float(), directions.flip(1)[:, :384].float()
            for strength, power in itertools.product((0, 1, 1.5, 2), (0, 0.03, 0.06, 0.1)):
                if strength == power == 0 and which == "long":
                    continue
                turn = directions * (variance / variance[0] + 1e-3) ** -power
                shift = bias - strength * norm * mean
                forms.append((f"{which} {strength} {power}", turn.T @ head, turn.T @ shift))
        top = None
        for form, h, b in forms:
            values, alike = score(h, b, pooled)
            dense, hybrid = np.mean(values, axis=0)
            whole = float(np.mean([dense, hybrid, alike]))
            results.append(
                {
                    "soup": label,
                    "form": form,
                    "dense": dense,
                    "hybrid": hybrid,
                    "sts": alike,
                    "mean": whole,
                    "sets": values,
                }
            )
            if form in ("plain", "all 1 0.06"):
                say(f"{label} {form}: {dense:.4f} {hybrid:.4f} {alike:.4f} {whole:.5f}")
            if top is None or whole > top[0]:
                top = whole, form, dense, hybrid, alike
            if best is None or whole > best[0]:
                best = whole, label, form, {k: v.cpu() for k, v in weights.items()}, h.cpu(), b.cpu()
        say(f"{label} best: {top[1]}: {top[2]:.4f} {top[3]:.4f} {top[4]:.4f} {top[0]:.5f}")
    (home / "out" / "soup.json").write_text(json.dumps(results))
    whole, label, form, weights, head, bias = best
    chosen = Student(weights, 12, device, tokenizer)
    chosen.set_head(head, bias)
    chosen.export(home / "out" / "best", {"soup": label, "form": form, "mean": whole})
    say("chosen:", label, form, round(whole, 5))
    models = {
        "mini-v3": start_of(home, device).encoder(),
        "best": Student(read_export(home / "out" / "best"), 12, device, tokenizer).encoder(),
        "minilm": teacher_encoder(home, "minilm", device),
    }
    for split in ("dev", *(["test"] if args.test else [])):
        names = DEV if split == "dev" else TEST
        sets, pairs = [read_set(home, n, split, args.few) for n in names], sts_rows(home, split, args.few)
        found = {
            n: evaluate_encoder(e, sets, split) for n, e in models.items() if n != "minilm" or split == "test"
        }
        more = {n: f"{sts(pairs, models[n]):.4f}" for n in found}
        (home / "out" / f"{split}.json").write_text(json.dumps({"results": found, "sts": more}, indent=1))
        print(split, "\n" + table(found, names, more), flush=True)


if __name__ == "__main__":
    main()
