"""mini-v3 on one GPU, in plain PyTorch: the student learns its teachers' vectors, and is measured.

    python texts.py --home HOME                                # texts and tokens, all processors
    python train.py train --home HOME --seconds 840            # goes on from HOME/start; --resume where it stopped
    python train.py evaluate --home HOME --split dev           # or test, once

`texts.py`, `teachers.py`, `student.py` and `judge.py` lie beside it. HOME/out has what is worth keeping.
Needs torch, tokenizers, safetensors and numpy.

The loss is the squared distance of the unit vectors plus the KL divergence of the softmax over a batch's cosines, at
two temperatures; a batch has texts with some of their nearest neighbours. Matrices are rounded to int8 rows in the
forward pass, and gradients go straight through. At the end the last weights and their average over the last part are
compared on the dev splits; the better is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import torch
from judge import DEV, TEST, Encode, evaluate_encoder, ndcg, read_set, sts, sts_rows, table, unit
from student import Batches, Student, fit_head, read_export, start_of
from teachers import ORDER, TEACHERS, neighbours_of, targets_of, teach, teacher_encoder
from texts import Store, say, student_folder

WEIGHTS = (4, 2, 3)  # of ORDER: `teachers.py` chose them on the dev splits


def losses(z: Any, t: Any, rows: Any, temperatures: Sequence[float], convex: float) -> Any:
    """Squared distance of unit vectors, and for each temperature the KL divergence of the softmax over cosines.

    A low temperature looks at a text's nearest ones, a high one at all of the batch, as graded similarity does.
    """
    z, t = unit(z), unit(t)
    same = rows[:, None] == rows[None, :]
    cosines, given = z @ z.T, t @ t.T
    out = [(2 - 2 * (z * t).sum(1)).mean()]
    for number, tau in enumerate(temperatures):
        steep = ((given / convex).exp() - 1) / (np.exp(1 / convex) - 1) if convex and not number else given
        ours, theirs = ((c / tau).masked_fill(same, -1e4).log_softmax(1) for c in (cosines, steep))
        out.append((theirs.exp() * (theirs - ours)).sum(1).mean())
    return torch.stack(out)


def seeds(count: int, size: int, seed: int) -> Iterator[Any]:
    """Numbers of texts, all of them in a new order again and again, `size` at a time."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    while True:
        while len(order) < size:
            order = np.concatenate([order, rng.permutation(count)])
        yield order[:size]
        order = order[size:]


def rate(done: float, warm: float, flat: float) -> float:
    """The share of the peak rate: up, flat for a while, then down to zero in a line."""
    return done / warm if done < warm else min(1.0, (1 - done) / (1 - flat))


def optimizer_of(student: Student, lr: float) -> Any:
    decayed = [value for value in student.parameters() if value.dim() == 2]
    others = [value for value in student.parameters() if value.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-6, fused=student.device.type == "cuda")


def targets_and_neighbours(args: argparse.Namespace, store: Store, device: Any) -> tuple[Any, Any]:
    """Targets on the device and neighbours on this side; HOME/targets keeps them for `--resume`."""
    kept = args.home / "targets"
    if args.resume and (kept / "done").exists():
        return torch.from_numpy(np.load(kept / "targets.npy")).to(device), np.load(kept / "near.npy")
    vectors = teach(args.home, store, args.budget, device)
    targets, about = targets_of(vectors, args.weights, store.roles, device)
    near = neighbours_of(targets, args.near).cpu().numpy()
    kept.mkdir(exist_ok=True)
    torch.save(about, kept / "about.pt")

    def keep(values: Any) -> None:
        np.save(kept / "targets.npy", values)
        np.save(kept / "near.npy", near)
        (kept / "done").write_text("")

    Thread(target=keep, args=(targets.cpu().numpy(),)).start()
    return targets, near


def faster(student: Student, batch: Callable[[], Any]) -> None:
    """Compile the student if that gives the same numbers sooner; what was seen is said."""

    def once() -> tuple[float, Any]:
        began = time.time()
        found = batch()
        torch.cuda.synchronize()
        return time.time() - began, found

    once()
    before, reference = once()
    try:
        student.compile()
        first, _ = once()
        after, found = min((once() for _ in range(2)), key=lambda pair: pair[0])
        off = (found - reference).abs().max().item()
    except Exception as error:  # a compiler that fails is a reason to go on without it
        say("not compiled:", type(error).__name__, str(error)[:300])
        student.plain()
        return
    say(
        f"plain {before * 1e3:.0f} ms, compiled {after * 1e3:.0f} ms (first {first:.1f} s), "
        f"largest difference {off:.4f}"
    )
    if after > before or off > 0.1 or off != off:
        student.plain()


def passes(student: Student, several: Sequence[Any]) -> Any:
    """Forward and backward of some batches."""
    found = []
    for given in several:
        found.append(student.pooled(*given, student.used()))
        found[-1].square().mean().backward()
    for value in student.parameters():
        value.grad = None
    return torch.cat(found).detach()


def save_state(
    student: Student, optimizer: Any, mean: list[Any] | None, counts: dict[str, Any], path: Path
) -> None:
    state = {
        "p": student.p, "head": student.head, "head_bias": student.head_bias, "optimizer": optimizer.state_dict(),
        "mean": mean, **counts,
    }  # fmt: skip
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    temporary.rename(path)


def put(student: Student, values: Sequence[Any]) -> None:
    with torch.no_grad():
        for value, new in zip(student.parameters(), values):
            value.copy_(new)


def train(args: argparse.Namespace) -> None:
    """All arms, one after the other, each from where the one before ended."""
    home, device, began = args.home, args.device, time.time()
    store = Store.open(home)
    student_folder(home)
    targets, near = targets_and_neighbours(args, store, device)
    student = start_of(home, device)
    batches = Batches(store.own, store.own_lengths, device)
    sets, pairs = [read_set(home, name, "dev", args.few) for name in DEV], sts_rows(home, "dev", args.few)
    fit_head(student, batches, targets, args.fit)  # the package's reaches other directions
    student.export(home / "out" / "m", {})
    say("projection fitted")
    checkpoint = home / "checkpoint.pt"
    state = None
    if args.resume and checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        put(student, [*(state["p"][name] for name in student.names), state["head"], state["head_bias"]])
        say(f"goes on in arm {state['arm']} at step {state['step']}")
    elif args.resume:
        for number, _ in enumerate(args.names):
            done = home / "out" / args.names[number]
            if (done / "about.json").exists():
                put(student, list(Student(read_export(done), 12, device, student.tokenizer).parameters()))
    log = (home / "out" / "log.jsonl").open("a" if args.resume else "w")
    values = evaluate_encoder(student.encoder(), sets, "dev"), sts(pairs, student.encoder())
    say("dev before", np.mean(list(values[0].values()), axis=0).round(4), round(values[1], 4))
    rng = np.random.default_rng(args.seed)

    def rows_of(drawn: Any) -> Any:
        own = next(drawn)
        picks = rng.integers(0, near.shape[1], (len(own), args.group - 1))
        return np.concatenate([own[:, None], near[own[:, None], picks]], 1).ravel().astype(np.int64)

    if device.type == "cuda" and not args.no_compile:
        drawn = seeds(len(store), args.batch // args.group, 99)
        several = [batches.get(rows_of(drawn)) for _ in range(3)]
        faster(student, lambda: passes(student, several))
    until = float((home / "until").read_text()) if (home / "until").exists() else began + args.seconds
    left = until - time.time() - args.reserve
    say(f"{time.time() - began:.0f} s until the first step; training for {left:.0f} s")
    for number, name in enumerate(args.names):
        if state is not None and number < state["arm"]:
            continue
        if (
            state is None
            and args.resume
            and (home / "out" / name / "about.json").exists()
            and json.loads((home / "out" / name / "about.json").read_text()).get("chosen")
        ):
            continue
        rest = until - time.time() - args.reserve
        share = args.shares[number] / sum(args.shares[number:])
        arm(
            args,
            number,
            name,
            rest * share,
            state,
            student,
            store,
            batches,
            targets,
            near,
            rows_of,
            sets,
            pairs,
            log,
        )
        state = None
        checkpoint.unlink(missing_ok=True)


def arm(
    args: Any,
    number: int,
    name: str,
    seconds: float,
    state: Any,
    student: Any,
    store: Any,
    batches: Any,
    targets: Any,
    near: Any,
    rows_of: Any,
    sets: Any,
    pairs: Any,
    log: Any,
) -> None:
    home, device = args.home, args.device
    convex, seed, lr = args.convex[number], args.seed + 10 * number, args.lrs[number]
    mean: list[Any] | None = None
    checkpoint = home / "checkpoint.pt"
    step, texts, spent = 0, 0, 0.0
    optimizer = optimizer_of(student, lr)
    if state is not None:
        step, texts, spent, mean = state["step"], state["texts"], state["spent"], state["mean"]
        optimizer.load_state_dict(state["optimizer"])
    out = home / "out" / name
    out.mkdir(parents=True, exist_ok=True)

    def record(**values: Any) -> None:
        log.write(
            json.dumps({"arm": name, "step": step, "texts": texts, "seconds": round(spent), **values}) + "\n"
        )
        log.flush()

    def look(tag: str) -> float:
        values, alike = evaluate_encoder(student.encoder(), sets, "dev"), sts(pairs, student.encoder())
        dense, hybrid = np.mean(list(values.values()), axis=0)
        say(
            f"dev, {name} {tag}, at {texts / 1e6:.2f} M texts: dense {dense:.4f}, hybrid {hybrid:.4f}, STS {alike:.4f}"
        )
        record(tag=tag, dev=values, sts=alike)
        return float(np.mean([dense, hybrid, alike]))

    drawn = seeds(len(store), args.batch // args.group, seed + step)
    total = spent + seconds - 4
    say(f"arm {name}: {seconds:.0f} s, rate {lr}, convex {convex}")
    last = said = saved = looked = first_time = time.time()
    scales = torch.tensor([1.0, *args.divergence], device=device)
    sums, counted, tokens, first_texts = torch.zeros(len(scales), device=device), 0, 0, texts
    # The rate follows the time, so it reaches zero when time is up.
    while spent < total and not (args.steps and step >= args.steps):
        done = spent / total if not args.steps else step / args.steps
        for one in optimizer.param_groups:
            one["lr"] = lr * max(1e-3, rate(done, args.warm, args.flat))
        rows = rows_of(drawn)
        index = torch.from_numpy(rows).to(device)
        z = student.project(student.pooled(*batches.get(rows), student.used()))
        parts = losses(z, targets[index], index, args.tau, convex)
        optimizer.zero_grad(set_to_none=True)
        (parts * scales).sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        if done > args.average_from:
            values = [value.detach() for value in student.parameters()]
            if mean is None:
                mean = [value.clone() for value in values]
            torch._foreach_lerp_(mean, values, 1 - args.keep)
        step, texts, counted = step + 1, texts + len(rows), counted + 1
        tokens += int(batches.lengths[rows].sum()) + 2 * len(rows)
        sums += parts.detach()
        if step % 20 == 0 and device.type == "cuda":
            torch.cuda.synchronize()
        now = time.time()
        spent, last = spent + now - last, now
        if now - said > args.every:
            distance, *apart = (sums / counted).tolist()
            speed = (texts - first_texts) / (now - first_time)
            if not np.isfinite(distance + sum(apart)):
                raise SystemExit("the loss is not a number; the last export stands")
            say(f"step {step}, {texts / 1e6:.2f} M texts, distance {distance:.4f}, "
                f"divergence {' '.join(f'{one:.4f}' for one in apart)}, "
                f"norm {norm:.3f}, "
                f"{speed / 1e3:.1f} k texts/s, {tokens / (now - first_time) / 1e6:.2f} M tokens/s")  # fmt: skip
            record(distance=distance, divergence=apart, lr=optimizer.param_groups[0]["lr"])
            sums.zero_()
            counted, said = 0, now
        if now - saved > args.save_every:
            save_state(
                student,
                optimizer,
                mean,
                {"arm": number, "step": step, "texts": texts, "spent": spent},
                checkpoint,
            )
            student.export(out, {"step": step, "texts": texts, "seconds": spent, "whole": False})
            saved = time.time()
        if now - looked > args.look_every:
            look("during")
            looked = time.time()
    student.export(out, {"step": step, "texts": texts, "seconds": spent, "whole": True})
    say(f"trained: {step} steps, {texts:,} texts in {spent:.0f} s")
    chosen = choose(student, mean, look)
    student.export(out, {
        "step": step, "texts": texts, "seconds": spent, "whole": True, "chosen": chosen,
        "arguments": {k: str(v) for k, v in vars(args).items()},
    })  # fmt: skip


def choose(student: Student, mean: list[Any] | None, look: Callable[[str], float]) -> str:
    """Put the better of the last weights and their average into the student."""
    candidates = {"last": [value.detach().clone() for value in student.parameters()]}
    if mean is not None:
        candidates["average"] = mean
    values = {}
    for name, weights in candidates.items():
        put(student, weights)
        values[name] = look(name)
    chosen = max(values, key=values.__getitem__)
    put(student, candidates[chosen])
    say(
        "chosen by the mean of dense, hybrid and STS:",
        chosen,
        {name: round(v, 5) for name, v in values.items()},
    )
    return chosen


def evaluate(args: argparse.Namespace) -> None:
    home, device = args.home, args.device
    tokenizer = student_folder(home) / "tokenizer.json"
    names = DEV if args.split == "dev" else TEST
    sets, pairs = (
        [read_set(home, name, args.split, args.few) for name in names],
        sts_rows(home, args.split, args.few),
    )
    lexical = {}
    for one in sets:
        split = one.splits[args.split]
        value = float(np.mean([ndcg(hits, grades) for (hits, _), grades in zip(split.bm25, split.grades)]))
        lexical[one.name] = (value, value)
    results, more = {"bm25": lexical}, {"bm25": ""}
    models: dict[str, Encode] = {
        "start": start_of(home, device).encoder(),
        args.name: Student(read_export(home / "out" / args.name), 12, device, tokenizer).encoder(),
    }
    for name in args.teachers:
        models[name] = teacher_encoder(home, name, device)
    for name, encode in models.items():
        began = time.time()
        results[name] = evaluate_encoder(encode, sets, args.split)
        more[name] = f"{sts(pairs, encode):.4f}"
        say(f"{name}: {time.time() - began:.1f} s")
    (home / "out" / f"{args.split}.json").write_text(json.dumps({"results": results, "sts": more}, indent=1))
    print(table(results, names, more))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("train", "evaluate"))
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--device", type=torch.device, default="cuda")
    parser.add_argument("--name", default="v3", help="the folder in HOME/out")
    parser.add_argument(
        "--few", type=int, default=0, help="so many questions, and twice as many passages, for a trial"
    )
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument(
        "--teachers", nargs="+", default=["minilm"], choices=TEACHERS, help="measured beside the student"
    )
    parser.add_argument("--budget", type=int, default=1 << 18, help="tokens of a teacher's batch")
    parser.add_argument("--weights", type=int, nargs=3, default=WEIGHTS, help="of " + ", ".join(ORDER))
    parser.add_argument("--seconds", type=float, default=840)
    parser.add_argument("--reserve", type=float, default=5)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many, for a trial")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--group", type=int, default=8, help="a text and its neighbours")
    parser.add_argument("--near", type=int, default=24, help="neighbours they are drawn from")
    parser.add_argument("--fit", type=int, default=131072, help="texts the projection is fitted on")
    parser.add_argument("--names", nargs="+", default=["a", "b"], help="of the arms")
    parser.add_argument("--shares", type=float, nargs="+", default=[55, 45], help="of the time")
    parser.add_argument("--lrs", type=float, nargs="+", default=[5e-4, 4e-4])
    parser.add_argument("--convex", type=float, nargs="+", default=[0, 0.5], help="0: none")
    parser.add_argument("--warm", type=float, default=0.02, help="share of the time in which the rate rises")
    parser.add_argument("--flat", type=float, default=0.15, help="share of the time until it falls")
    parser.add_argument(
        "--average-from", type=float, default=0.6, help="share of the time after which weights are averaged"
    )
    parser.add_argument("--keep", type=float, default=0.9995, help="what a step leaves of that average")
    parser.add_argument(
        "--tau", type=float, nargs="+", default=[0.05, 0.2], help="temperatures of the divergence"
    )
    parser.add_argument(
        "--divergence", type=float, nargs="+", default=[1.0, 4.0], help="weight of each temperature"
    )
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--save-every", type=float, default=150)
    parser.add_argument("--look-every", type=float, default=200)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    torch.set_float32_matmul_precision("high")
    globals()[args.command](args)


if __name__ == "__main__":
    main()
