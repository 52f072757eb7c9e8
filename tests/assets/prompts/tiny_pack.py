"""A pack of a few words, whose sub-category `circus` is held out."""

from pathlib import Path
from textwrap import dedent

from assets.prompts.pack import Pack
from assets.prompts.pack_loader import load_pack

_FILES = {
    "taxonomy.yaml": """
        title: Zoo
        categories:
          out:
            title: Going out
            subcategories:
              zoo: {title: Zoo, description: Wild animals and their keepers., banks: [animals]}
              park: {title: Park, description: What grows and flies., banks: [plants]}
              circus:
                {title: Circus, description: Artists at work., banks: [acts], heldout: true}
        """,
    "banks/all.yaml": """
        animals:
          entity: [otter, red fox, brown bear, grey wolf, penguin]
          action: ["feed {entity:a}", brush a pony, build a fence]
        plants:
          entity: [oak tree, water lily, rose bush, fern, tulip]
          action: ["water {entity:a}", rake the leaves, prune a hedge]
        acts:
          entity: [juggler, trapeze, magic trick, clown, stilt walker]
          action: ["applaud {entity:a}", sell a ticket]
        """,
    "templates.yaml": """
        templates:
          show: Show {entity:a}
          three: Draw three {entity:plural}
          how: How to {action}?
          guide: Make a guide to {action:gerund}
          story: {text: "Tell a story of {entity:a}", heldout: true}
        """,
}


def write_pack(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of a pack below its folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


def tiny_pack(folder: Path) -> Pack:
    """Write the pack below a folder and load it."""
    return load_pack(write_pack(folder / "zoo", _FILES))
