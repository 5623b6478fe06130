"""Short Markdown files about one topic each, for builds."""

from collections.abc import Sequence
from pathlib import Path

TOPICS = ["barley", "steam", "comet", "violin", "glacier", "harbour", "pepper", "mirror", "falcon", "copper"]


def write_documents(folder: Path, topics: Sequence[str] = TOPICS) -> Path:
    """Documents with a title, two headed sections, and a word of their own that is in both."""
    folder.mkdir(exist_ok=True)
    for number, topic in enumerate(topics):
        text = (
            f"# The book of {topic}\n\n## Origin of {topic}\n\nPeople have known {topic} for {number + 3} centuries. "
            f"It came from the {topic} valley in the north.\n\n## Use of {topic}\n\nEvery house keeps some {topic}. "
            f"Children learn about {topic} at school number {number}.\n"
        )
        (folder / f"{topic}.md").write_text(text, encoding="utf-8")
    return folder
