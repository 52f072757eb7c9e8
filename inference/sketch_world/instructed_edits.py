"""What instructions do to a scene: exact edits, step by step, and what of them cannot be done."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, groupby, product

from .instructions import Clause, Instructions, NounPhrase
from .object_catalog import KINDS
from .prompt_writer import join_with_and, phrase_noun, with_article
from .request_parser import Area
from .scene import (
    Add,
    Choose,
    Command,
    Create,
    Edit,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    SetBackground,
    Target,
    apply_edit,
    closest_to,
    edited_cell,
    is_in_direction,
)
from .seeded_random import KeyedRandom

_SKY = ("sun", "cloud", "star", "crescent moon", "half moon", "full moon", "new moon", "planet")
_FLYING = (*_SKY, "bird", "butterfly", "balloon", "rocket", "raindrop", "music note")
_SOME = 3  # things, where a request leaves their number open
_MAX_PER_STEP = 3
_ATTEMPTS = 20  # to find cells that leave room for what is named later
_BACKGROUNDS = ("meadow", "paper")  # where none is named
_ADDING = ("draw", "add", "put", "paint", "turn")


class InstructedEdits:
    """Carries out instructions on a scene.

    Args:
        before: None: a new scene.
        choose: takes one of the edits that would do; with `goal`, the colour is left open as well.
        goal: the scene whose numbers of things are taken where a request says "some".

    Attributes:
        steps: exact edits, those of one instruction in a step.
        remarks: sentences about what cannot be done.
        unplaced: how many things found no cell.
        scene: after all steps.
    """

    def __init__(
        self,
        instructions: Instructions,
        before: Scene | None,
        background: str,
        choose: Choose,
        goal: Scene | None = None,
    ) -> None:
        self._is_new, self._choose, self._goal = before is None, choose, goal
        self.scene = before or Scene(background)
        self.steps: list[tuple[Edit, ...]] = []
        self.remarks: list[str] = []
        self.unplaced = 0
        for clause in instructions.clauses:
            self._carry_out(clause)
        if before is None and (self.steps or instructions.background):
            self._open(background)

    def _open(self, background: str) -> None:
        """Make the first step one that draws a new picture."""
        first = self.steps[0] if self.steps else ()
        adds = tuple(edit for edit in first if isinstance(edit, Add))
        self.steps[: bool(adds)] = [(Create(background, adds),)]

    def _carry_out(self, clause: Clause) -> None:
        things = [thing for thing in clause.things if not thing.negated]
        for thing in clause.things:
            if thing.negated and self.scene.find(thing.target):
                self._change(replace(thing, every=True), lambda target: [Remove(target)])
        if clause.background:
            self._set_background(clause, things)
        match clause.verb:
            case "keep":
                pass
            case "remove":
                self._remove(clause, things)
            case "swap" if partners := self._partners(things + clause.results):
                self._swap(*partners)
            case _ if clause.results:
                self._replace(things, clause.results)
            case "paint" | "turn" if clause.colour or clause.colour_of:
                self._recolour(clause, things)
            case _ if self._moves(clause, things):
                self._move(clause, things)
            case verb if verb in _ADDING and not self._is_unclear(verb, things):
                self._add(things)
                if clause.area or clause.relation:
                    self._remark_once(f"Only the first place of “{things[-1].words}” counts.")
            case _:
                # "It" is the picture in "paint it at night".
                self._not_understood(
                    [each for each in things if each.kind or not clause.background]
                )

    def _set_background(self, clause: Clause, things: Sequence[NounPhrase]) -> None:
        background = clause.background or ""
        if background == self.scene.background:
            return
        if things and clause.verb not in ("turn", "paint"):
            self._remark_once(f"The background stays {with_article(self.scene.background)}.")
        else:
            self._do(SetBackground(background))

    def _remove(self, clause: Clause, things: Sequence[NounPhrase]) -> None:
        spared = [target for each in clause.exceptions for target in self.scene.find(each.target)]
        for thing in things:
            self._change(thing, lambda target: [Remove(target)], spared)

    def _recolour(self, clause: Clause, things: Sequence[NounPhrase]) -> None:
        colour = clause.colour
        if clause.colour_of:
            if not (found := self._found(clause.colour_of)):
                return self._missing(clause.colour_of)
            colour = found[0].colour
        for thing in things if colour else ():
            if self._is_implied(thing):
                self._add([replace(thing, colour=colour)])
            else:
                self._change(thing, lambda target: self._recolourings(target, str(colour)))

    def _recolourings(self, target: Target, colour: str) -> list[Edit]:
        if colour in KINDS[str(target.kind)].colours:
            return [Recolour(target, colour)]
        self._illegal(str(target.kind), colour)
        return []

    def _replace(self, things: Sequence[NounPhrase], results: Sequence[NounPhrase]) -> None:
        result, kind = results[0], results[0].kind
        if kind is None:
            return self._not_understood(results)
        for thing in things:
            if self._is_implied(thing):
                self._add([thing])
            self._change(thing, lambda t: [Replace(t, kind, c) for c in self._colours(result)])

    def _partners(self, things: Sequence[NounPhrase]) -> tuple[Target, Target] | None:
        """The two things of the scene that are to be swapped."""
        if len(things) == 1 and (things[0].every or things[0].count == 2):
            found = self._found(things[0])
        else:
            found = [each[0] for thing in things if (each := self._found(thing))]
        if len(found) != 2 and self._is_new and len(things) == 2 and all(t.kind for t in things):
            self._add(things)
            return self._partners(things)
        return (found[0], found[1]) if len(found) == 2 else None

    def _swap(self, first: Target, second: Target) -> None:
        self._do(
            Replace(first, str(second.kind), second.colour),
            Replace(second, str(first.kind), first.colour),
        )

    def _moves(self, clause: Clause, things: Sequence[NounPhrase]) -> bool:
        """Whether things that are there go elsewhere."""
        if not things or clause.verb == "move":
            return clause.verb == "move"
        has_place = clause.area or clause.relation or things[0].area or things[0].relation
        are_there = things[0].definite and self.scene.find(things[0].target)
        return bool(has_place and are_there and clause.verb in ("put", "turn"))

    def _move(self, clause: Clause, things: Sequence[NounPhrase]) -> None:
        for thing in things:
            goes_to = thing
            if clause.area or clause.relation:  # its own place says which one is meant
                goes_to = replace(thing, area=clause.area, relation=clause.relation)
            else:
                thing = replace(thing, area=None, relation=None)
            if self._is_implied(thing):
                self._add([goes_to])
            else:
                self._change(thing, partial(self._moves_of, goes_to=goes_to))

    def _moves_of(self, target: Target, goes_to: NounPhrase) -> list[Edit]:
        cells = self._free_cells(goes_to, without=target)
        noun = phrase_noun(target.kind, target.colour)
        if goes_to.area and target.cell in goes_to.area:
            self._remark_once(f"The {noun} is there already.")
        elif not cells:
            self._remark_once(f"No place is free there for the {noun}.")
        else:
            return [Move(target, GridPlace(cell)) for cell in cells]
        return []

    def _is_unclear(self, verb: str, things: Sequence[NounPhrase]) -> bool:
        """Whether it says of a thing that it shall change, but not how: "make the house bigger"."""
        are_there = any(thing.definite and self._found(thing) for thing in things)
        return (
            not things
            or any(thing.kind is None for thing in things)
            or (verb in ("paint", "turn") and are_there)
        )

    def _add(self, things: Sequence[NounPhrase]) -> None:
        singles = list(self._singles(things))
        adds: dict[int, Add] = {}
        # Exact places first, those beside other things last.
        order = sorted(
            range(len(singles)), key=lambda n: (bool(singles[n].relation), not singles[n].area)
        )
        for number in order:
            if add := self._placed(singles[number]):
                adds[number] = add
                self.scene = apply_edit(add, self.scene)
        in_order = sorted(adds)
        for _, group in groupby(in_order, key=lambda n: singles[n].words):
            numbers = list(group)
            for start in range(0, len(numbers), _MAX_PER_STEP):
                self.steps.append(tuple(adds[n] for n in numbers[start : start + _MAX_PER_STEP]))

    def _singles(self, things: Sequence[NounPhrase]) -> Iterator[NounPhrase]:
        """Each thing by itself, with those that others are placed by."""
        named = {thing.kind for thing in things}
        for thing in things:
            anchor = thing.relation[1] if thing.relation else None
            if anchor and anchor.kind not in named and not self._found(anchor):
                yield anchor
            for _ in range(self._number(thing) if thing.count is None else thing.count):
                yield thing

    def _number(self, thing: NounPhrase) -> int:
        """How many "some" are."""
        if self._goal is None:
            return min(_SOME, max(2, len(self.scene.free_cells())))
        return max(2, len(self._goal.find(thing.target)) - len(self.scene.find(thing.target)))

    def _placed(self, thing: NounPhrase) -> Add | None:
        """The thing in a cell and a colour; None: there is no room for it."""
        cells = self._free_cells(thing)
        options: list[Edit] = [
            Add(str(thing.kind), colour, GridPlace(cell))
            for colour, cell in product(self._colours(thing), cells)
        ]
        if options:
            chosen = self._choose(self.scene, options)
            return chosen if isinstance(chosen, Add) else None
        self.unplaced += 1
        noun = with_article(phrase_noun(thing.kind, thing.colour))
        where = "where it should be" if self.scene.free_cells() else "in a picture of nine places"
        self._remark_once(f"There is no room for {noun} {where}.")
        return None

    def _colours(self, thing: NounPhrase) -> list[str]:
        """The colours that it may have, the default first; without a goal, one of them."""
        legal = KINDS[str(thing.kind)].colours
        if thing.colour and thing.colour not in legal:
            self._illegal(str(thing.kind), thing.colour)
        elif thing.colour:
            return [thing.colour]
        return [*legal] if self._goal else [legal[0]]

    def _cells(self, thing: NounPhrase, without: Target | None = None) -> Area:
        """The cells, free or not, where a phrase says that it is; `without` is no anchor."""
        area = thing.area or frozenset(range(9))
        if thing.relation is None:
            return area
        direction, anchor = thing.relation
        anchors = [t.cell for t in self.scene.find(anchor.target) if t != without]
        return frozenset(
            cell
            for cell, other in product(area, anchors)
            if other is not None and is_in_direction(cell, direction, other)
        )

    def _free_cells(self, thing: NounPhrase, without: Target | None = None) -> list[int]:
        cells = self._cells(thing, without)
        return [cell for cell in self.scene.free_cells() if cell in cells]

    def _is_implied(self, thing: NounPhrase) -> bool:
        """Whether it has to be drawn first: "paint a house blue", of a new picture."""
        return self._is_new and thing.kind is not None and not self._found(thing)

    def _found(self, thing: NounPhrase) -> list[Target]:
        """The things of the scene that a phrase may mean."""
        cells = self._cells(thing)
        return [target for target in self.scene.find(thing.target) if target.cell in cells]

    def _change(
        self,
        thing: NounPhrase,
        edits_of: Callable[[Target], Sequence[Edit]],
        spared: Sequence[Target] = (),
    ) -> None:
        """Do one of the edits of each target that a phrase means, all of them in one step."""
        found = [target for target in self._found(thing) if target not in spared]
        if not found:
            self._missing(thing)
            return
        if thing.kind is None and thing.colour is None and not thing.every and len(found) > 1:
            self._remark_once(f"“{thing.words}” may be any of {len(found)} things.")
            return
        number = len(found) if thing.every or thing.count is None else min(thing.count, len(found))
        done: list[Edit] = []
        for _ in range(number):
            options = [edit for target in found for edit in edits_of(target)]
            if not options:
                break
            done.append(self._choose(self.scene, options))
            found = [target for target in found if target.cell != _source(done[-1])]
            self._apply(done[-1])
        if done:
            self.steps.append(tuple(done))

    def _do(self, *edits: Edit) -> None:
        for edit in edits:
            self._apply(edit)
        self.steps.append(edits)

    def _apply(self, edit: Edit) -> None:
        after = apply_edit(edit, self.scene)
        if after == self.scene and isinstance(edit, Recolour):
            self._remark_once(f"The {edit.target.kind} is {edit.colour} already.")
        self.scene = after

    def _missing(self, thing: NounPhrase) -> None:
        place = "picture" if not self._is_new else "request: attach a picture that has one"
        self._remark_once(f"There is no {phrase_noun(thing.kind, thing.colour)} in the {place}.")

    def _not_understood(self, things: Sequence[NounPhrase]) -> None:
        if things:
            names = join_with_and([thing.words for thing in things])
            self._remark_once(f"What to do with “{names}” is not understood.")

    def _illegal(self, kind: str, colour: str) -> None:
        legal = KINDS[kind].colours
        options = f"{', '.join(legal[:-1])} or {legal[-1]}" if len(legal) > 1 else legal[0]
        self._remark_once(f"{with_article(kind).capitalize()} cannot be {colour}, only {options}.")

    def _remark_once(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)


def plan_edits(
    instructions: Instructions, before: Scene | None, keyed_random: KeyedRandom
) -> InstructedEdits:
    """Carry instructions out as a planner: places that are left open are chosen by the text."""
    background = instructions.background or keyed_random.pick(_BACKGROUNDS, "background")
    for attempt in range(_ATTEMPTS):
        choose = _choose_place(keyed_random, attempt)
        done = InstructedEdits(instructions, before, background, choose)
        if not done.unplaced:
            break
    return done


def are_followed(instructions: Instructions, before: Scene | None, final: Scene) -> bool:
    """Whether a final scene is one that the instructions lead to.

    A new picture may have things that they do not mention; an edited one changes nothing else.
    """
    background = instructions.background or final.background
    if before is None:
        nouns = chain(instructions.things, *(clause.results for clause in instructions.clauses))
        anchors = (thing.relation[1] for thing in instructions.things if thing.relation)
        kinds = {noun.kind for noun in chain(nouns, anchors)}
        named = {cell: thing for cell, thing in final.cells.items() if thing.kind in kinds}
        final = Scene(final.background, named)
    choose = closest_to(final, Command(()))
    done = InstructedEdits(instructions, before, background, choose, goal=final)
    # Where things of a new picture stood before they changed places cannot be seen.
    any_place = before is None and any(c.verb in ("swap", "move") for c in instructions.clauses)
    return done.scene.key(any_place) == final.key(any_place) and not done.unplaced


def _choose_place(keyed_random: KeyedRandom, attempt: int) -> Choose:
    """A random option; at first flying things as high as possible, others as low."""
    numbers = count()

    def choose(_: Scene, options: Sequence[Edit]) -> Edit:
        cells = {edit: cell for edit in options if (cell := edited_cell(edit)) is not None}
        if not attempt and cells and isinstance(options[0], Add):
            extreme = min if options[0].kind in _FLYING else max
            row = extreme(cell // 3 for cell in cells.values())
            options = [edit for edit, cell in cells.items() if cell // 3 == row]
        return keyed_random.pick(options, f"choice {attempt} {next(numbers)}")

    return choose


def _source(edit: Edit) -> int | None:
    """The cell of the thing that an exact edit changes."""
    return edit.target.cell if isinstance(edit, Remove | Recolour | Move | Replace) else None
