"""Everything the sketch world can draw: kinds of things, colours, backgrounds, places."""

from dataclasses import dataclass

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 48, 49),
    "orange": (240, 136, 32),
    "yellow": (248, 206, 50),
    "green": (58, 158, 76),
    "blue": (48, 106, 212),
    "purple": (140, 74, 186),
    "pink": (240, 128, 172),
    "brown": (134, 88, 52),
    "gray": (136, 142, 150),
    "black": (44, 46, 52),
    "white": (250, 250, 250),
}

# The 3x3 grid, row by row: index = 3 * row + column.
PLACES: tuple[str, ...] = (
    *("top left", "top center", "top right"),
    *("middle left", "center", "middle right"),
    *("bottom left", "bottom center", "bottom right"),
)

BACKGROUNDS: tuple[str, ...] = (
    "paper",
    "meadow",
    "night sky",
    "sunset",
    "beach",
    "snow",
    "table",
    "room",
    "street",
    "stage",
    "sea",
    "rain",
    "graph paper",
)


@dataclass(frozen=True)
class ObjectKind:
    """A kind of thing. `colours`: those it can have, the default first."""

    name: str
    plural: str
    colours: tuple[str, ...]

    @property
    def default_colour(self) -> str:
        return self.colours[0]


_ANY = tuple(c for c in COLOURS if c != "white")


def _kind(name: str, default: str, *, plural: str = "", only: tuple[str, ...] = _ANY) -> ObjectKind:
    colours = (default, *(c for c in only if c != default))
    return ObjectKind(name, plural or f"{name}s", colours)


KINDS: dict[str, ObjectKind] = {
    kind.name: kind
    for kind in (
        # shapes and blocks
        _kind("circle", "red"),
        _kind("square", "blue"),
        _kind("triangle", "green"),
        _kind("star", "yellow"),
        _kind("heart", "red"),
        _kind("diamond", "purple"),
        _kind("cross", "purple", plural="crosses"),
        _kind("block", "blue"),
        _kind("gripper", "gray", only=("gray", "black", "orange")),
        _kind("box", "brown", plural="boxes"),
        _kind("shirt", "blue"),
        _kind("folded shirt", "blue"),
        # a village
        _kind("house", "red"),
        _kind("tree", "green", only=("green", "orange", "red", "yellow", "pink", "gray")),
        _kind("sun", "yellow", only=("yellow", "orange", "red", "gray")),
        _kind("cloud", "white", only=("white", "gray", "blue", "pink", "black")),
        _kind("raindrop", "blue", only=("blue", "gray", "purple")),
        _kind("church", "gray", plural="churches"),
        _kind("castle", "gray"),
        _kind("windmill", "brown"),
        _kind("fountain", "blue", only=("blue", "gray", "green")),
        # a garden
        _kind("seed", "brown", only=("brown", "black", "yellow")),
        _kind("sprout", "green", only=("green",)),
        _kind("bud", "green", only=("green", "pink", "purple")),
        _kind("flower", "red"),
        _kind("apple", "red", only=("red", "green", "yellow")),
        _kind("mushroom", "red"),
        _kind("carrot", "orange", only=("orange", "purple", "yellow")),
        # animals
        _kind("cat", "orange"),
        _kind("dog", "brown"),
        _kind("fish", "orange", plural="fish"),
        _kind("bird", "blue"),
        _kind("rabbit", "gray"),
        _kind("egg", "yellow"),
        _kind("chick", "yellow", only=("yellow", "orange", "brown", "gray", "black")),
        _kind("hen", "brown", only=("brown", "red", "orange", "black", "gray", "white")),
        _kind("caterpillar", "green"),
        _kind("cocoon", "brown", only=("brown", "gray", "green")),
        _kind("butterfly", "orange", plural="butterflies"),
        _kind("frog", "green"),
        _kind("tadpole", "black", only=("black", "gray", "green", "brown")),
        # the sky
        _kind("new moon", "gray", only=("gray", "black")),
        _kind("crescent moon", "yellow", only=("yellow", "orange")),
        _kind("half moon", "yellow", only=("yellow", "orange")),
        _kind("full moon", "yellow", only=("yellow", "orange")),
        _kind("planet", "orange"),
        _kind("rocket", "red"),
        # daily life
        _kind("traffic light", "red", only=("red", "yellow", "green")),
        _kind("car", "red"),
        _kind("plate", "blue"),
        _kind("fork", "gray", only=("gray", "yellow", "black")),
        _kind("knife", "gray", plural="knives", only=("gray", "yellow", "black")),
        _kind("spoon", "gray", only=("gray", "yellow", "black")),
        _kind("cup", "blue"),
        _kind("candle", "pink"),
        _kind("cake", "pink"),
        _kind("balloon", "red"),
        _kind("gift", "red"),
        _kind("umbrella", "purple"),
        # work and play
        _kind("short bar", "blue"),
        _kind("medium bar", "blue"),
        _kind("tall bar", "blue"),
        _kind("ball", "red"),
        _kind("flag", "red"),
        _kind("boat", "red"),
        _kind("book", "blue"),
        _kind("music note", "purple"),
        _kind("snowball", "white", only=("white", "gray", "blue")),
        _kind("snowman", "white", plural="snowmen", only=("white", "gray", "blue")),
        _kind("person", "blue", plural="people"),
    )
}
