"""Reads a pack's files and checks what one file says about another.

Every problem is reported with the file, line and key that a person has to edit.
"""

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path

from schemas import DocumentError, FoundryError
from schemas.yaml_config import KeyPath, load_document, locate_problem

from ..core.additions import additions
from .file_pack import PROMPTS_FILE, is_file_pack, load_file_pack
from .pack import Bank, BankFile, Pack, Taxonomy, Template, TemplateFile, TemplateSlot, Term

Problem = tuple[Path, KeyPath, str]  # with an error message for the key
_PACKS = Path(__file__).parent / "packs"


def load_pack(name_or_path: str | Path) -> Pack:
    """Load a pack by name (the project's own, or a component's) or from a folder.

    Raises:
        DocumentError: a line `file:line: key: problem` for everything that is wrong in its files.
        FoundryError: there is no such pack.
    """
    folder = _folder(name_or_path)
    return _load(folder, _file_states(folder))


@cache
def world_of(pack: str) -> str | None:
    """The simulated world that a pack's prompts are about (`reader` in its taxonomy.yaml)."""
    return load_pack(pack).taxonomy.reader


@lru_cache(maxsize=8)
def _load(folder: Path, _states: tuple[tuple[str, int, int], ...]) -> Pack:
    """Loaded once in a process for each state of its files: one command asks for it often."""
    if is_file_pack(folder):
        return load_file_pack(folder.resolve())
    taxonomy = load_document(folder / "taxonomy.yaml", Taxonomy)
    bank_files = sorted((folder / "banks").glob("*.yaml"))
    if not bank_files:
        raise DocumentError(f"{folder / 'banks'}: holds no *.yaml file; a pack needs vocabulary")
    files = {path: load_document(path, BankFile).root for path in bank_files}
    templates = load_document(folder / "templates.yaml", TemplateFile).templates
    banks = {name: bank for file in files.values() for name, bank in file.items()}
    pack = Pack(folder.resolve().name, taxonomy, banks, templates)
    problems = [
        *_taxonomy_problems(folder / "taxonomy.yaml", pack),
        *_repeated_banks(files),
        *_term_problems(files, pack),
        *_template_problems(folder / "templates.yaml", pack),
    ]
    if problems:
        raise DocumentError("\n".join(locate_problem(*problem) for problem in problems))
    return pack


def _file_states(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, size and time of modification (ns) of a pack's files."""
    patterns = ("*.yaml", "banks/*.yaml", PROMPTS_FILE)
    stats = {str(path): path.stat() for each in patterns for path in sorted(folder.glob(each))}
    return tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items())


def _named_folders() -> dict[str, Path]:
    """Folders by name, of the packs that come with the project, and of those that components add.

    Raises FoundryError: one of each has the same name.
    """
    folders = {path.parent.name: path.parent for path in _PACKS.glob("*/taxonomy.yaml")}
    for each in additions():
        folder = each.file.parent
        if each.is_pack and folders.setdefault(each.name, folder) != folder:
            raise FoundryError(f"{folder}: there is a pack of this name: rename the folder")
    return folders


def _folder(name_or_path: str | Path) -> Path:
    named = _named_folders()
    folder = named.get(str(name_or_path)) or Path(name_or_path)
    if not (folder / "taxonomy.yaml").is_file() and not is_file_pack(folder):
        raise FoundryError(
            f"no pack {str(name_or_path)!r}; there are: {', '.join(sorted(named))}, "
            "or give a folder with taxonomy.yaml, banks/ and templates.yaml, or one that "
            "`interleave import prompts` wrote"
        )
    return folder


def _taxonomy_problems(path: Path, pack: Pack) -> Iterator[Problem]:
    names: set[str] = set(pack.taxonomy.categories)
    for category, entry in pack.taxonomy.categories.items():
        for name, sub in entry.subcategories.items():
            key: KeyPath = ("categories", category, "subcategories", name)
            if name in names:
                yield path, key, "another category or sub-category has this name"
            names.add(name)
            for index, bank in enumerate(sub.banks):
                if bank not in pack.banks:
                    yield path, (*key, "banks", index), f"no bank {bank!r}"
            if not any(name in served for served in pack.serves.values()):
                yield path, key, "no template serves this sub-category"
    for index, suffix in enumerate(pack.taxonomy.suffixes):
        for position, name in enumerate(suffix.only or []):
            if name not in pack.templates:
                yield path, ("suffixes", index, "for", position), f"no template {name!r}"


def _repeated_banks(files: dict[Path, dict[str, Bank]]) -> Iterator[Problem]:
    owner: dict[str, Path] = {}
    for path, banks in files.items():
        for name in banks:
            if (first := owner.setdefault(name, path)) != path:
                yield path, (name,), f"{first.name} has a bank of this name"


def _term_problems(files: dict[Path, dict[str, Bank]], pack: Pack) -> Iterator[Problem]:
    lists = (
        (path, bank, kind, terms)
        for path, banks in files.items()
        for bank, content in banks.items()
        for kind, terms in content.items()
    )
    for path, bank, kind, terms in lists:
        texts = [term.term for term in terms]
        for index, term in enumerate(terms):
            messages = _inner_slot_problems(term, bank, pack)
            if (first := texts.index(term.term)) < index:
                messages = [f"{term.term!r} is also item {first}", *messages]
            yield from ((path, (bank, kind, index), message) for message in messages)


def _inner_slot_problems(term: Term, bank: str, pack: Pack) -> list[str]:
    problems = _unknown_exclusions(term, pack, [bank])
    for slot in term.slots:
        inner = pack.terms(slot, [bank], term.without)
        if not inner:
            problems.append(_missing_kind(slot, pack, f"bank {bank!r}"))
        elif any(nested.slots for nested in inner):
            problems.append(f"{{{slot.source}}} has terms with slots of their own")
    return problems


def _template_problems(path: Path, pack: Pack) -> Iterator[Problem]:
    known = set(pack.taxonomy.categories) | set(pack.subcategories)
    for template_id, template in pack.templates.items():
        key: KeyPath = ("templates", template_id)
        for field, names in (("for", template.only or []), ("except", template.but)):
            for index, name in enumerate(names):
                if name not in known:
                    yield path, (*key, field, index), f"no category or sub-category {name!r}"
        problems = [*_slot_problems(path, key, template, pack)]
        yield from problems
        if not problems and not pack.serves[template_id]:
            yield path, key, "serves no sub-category: none has all of its slots"


def _unknown_exclusions(text: Term | Template, pack: Pack, banks: list[str]) -> list[str]:
    """Problems of `without`: it names terms that the slots cannot hold anyway."""
    if not text.without:
        return []
    fillers = {term.term for slot in text.slots for term in pack.terms(slot, banks)}
    unknown = [name for name in text.without if name not in fillers]
    return [f"without: no slot can hold {', '.join(map(repr, unknown))}"] if unknown else []


def _slot_problems(path: Path, key: KeyPath, template: Template, pack: Pack) -> Iterator[Problem]:
    for problem in _unknown_exclusions(template, pack, list(pack.banks)):
        yield path, key, problem
    for slot in template.slots:
        if not pack.has_terms(slot, list(pack.banks)):
            yield path, (*key, "text"), _missing_kind(slot, pack, "any bank")
    for index, name in enumerate(template.only or []):
        if name in pack.subcategories and not pack.fits(template, name):
            missing = f"the banks of {name!r} lack a kind that the text has as a slot"
            yield path, (*key, "for", index), missing


def _missing_kind(slot: TemplateSlot, pack: Pack, where: str) -> str:
    if slot.bank and slot.bank not in pack.banks:
        return f"slot {{{slot.source}}} names no bank of the pack"
    where = f"bank {slot.bank!r}" if slot.bank else where
    return f"slot {{{slot.source}}} names a kind that {where} does not have"
