"""Writes the little collection of the smoke recipes: invented places, each with a few facts, in BEIR layout.

The texts are put together from templates under a fixed seed, so they are free of anybody's rights and the same
everywhere. Run it here to make them again: `python make.py`.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
SYLLABLES = "bar dan el fen gor hal is kor lun mor nes or pel ros sten tal ul ven wes yor".split()
TOPICS = {
    "harbour": ("boats", "nets", "the tide", "the lighthouse", "herring", "salt", "the pier", "sailors"),
    "mill": ("flour", "the wheel", "grain", "the stream", "sacks", "the miller", "bread", "stones"),
    "mine": ("copper", "the shaft", "lamps", "ore", "miners", "the lift", "carts", "tunnels"),
    "school": ("pupils", "the bell", "lessons", "books", "the teacher", "slates", "the yard", "maps"),
    "farm": ("barley", "cattle", "the barn", "ploughs", "the harvest", "milk", "hedges", "geese"),
    "forest": ("oaks", "deer", "the clearing", "moss", "foresters", "timber", "owls", "the brook"),
    "market": ("stalls", "apples", "cloth", "traders", "prices", "baskets", "the square", "coins"),
    "station": ("trains", "the platform", "signals", "tickets", "the clock", "porters", "rails", "steam"),
    "garden": ("roses", "bees", "the fountain", "paths", "gardeners", "seeds", "herbs", "the wall"),
    "workshop": ("hammers", "the forge", "iron", "apprentices", "tools", "the anvil", "wheels", "sparks"),
}
OPENINGS = (
    "{name} is a {topic} in the {side} of the country.",
    "The {topic} of {name} lies in the {side}.",
    "In the {side} there is a {topic} called {name}.",
)
FACTS = (
    "Most visitors of {name} come to see {a} and {b}.",
    "In {season} {a} are brought to {name}, and {b} with them.",
    "People say that {a} made {name} known far beyond its borders.",
    "Every {season} the people of {name} count {a} and mend {b}.",
    "Without {a} the {topic} would not have lasted a single year.",
    "An old picture shows {a} next to {b}, just as they are today.",
    "{count} families live from {a}, the others from {b}.",
    "When it rains, {a} are kept under a roof near {b}.",
    "The {topic} was rebuilt {count} years ago, and {a} came back.",
    "Nobody remembers who first brought {a} to {name}.",
)
QUESTIONS = (
    "where is the {topic} of {name}",
    "what is {name} known for",
    "how many families live in {name}",
)


def place(number: int, dice: random.Random) -> tuple[dict[str, str], list[str]]:
    """A text about one place, and two questions that it answers."""
    topic = sorted(TOPICS)[number % len(TOPICS)]
    name = "".join(dice.sample(SYLLABLES, 3)).capitalize()
    side = dice.choice(("north", "south", "east", "west"))
    lines = [dice.choice(OPENINGS).format(name=name, topic=topic, side=side)]
    for fact in dice.sample(FACTS, dice.randint(4, len(FACTS))):
        a, b = dice.sample(TOPICS[topic], 2)
        season = dice.choice(("spring", "summer", "autumn", "winter"))
        lines.append(fact.format(name=name, topic=topic, a=a, b=b, season=season, count=dice.randint(2, 90)))
    text = " ".join(line[0].upper() + line[1:] for line in lines)
    asked = [question.format(name=name, topic=topic) for question in dice.sample(QUESTIONS, 2)]
    return {"_id": f"p{number}", "title": name, "text": text}, asked


def main(n: int = 256) -> None:
    """Corpus, questions, and which place each question is about."""
    dice = random.Random(7)
    places = [place(number, dice) for number in range(n)]
    questions = [
        (f"q{i}-{k}", text, p["_id"]) for i, (p, asked) in enumerate(places) for k, text in enumerate(asked)
    ]
    write("corpus.jsonl", (json.dumps(p) for p, _ in places))
    write("queries.jsonl", (json.dumps({"_id": name, "text": text}) for name, text, _ in questions))
    (HERE / "qrels").mkdir(exist_ok=True)
    rows = ["query-id\tcorpus-id\tscore", *(f"{name}\t{passage}\t1" for name, _, passage in questions)]
    write("qrels/generated.tsv", rows)


def write(name, lines) -> None:
    (HERE / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
