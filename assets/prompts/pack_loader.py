"""Reads a pack's files and checks what one file says about another.

Every problem is reported with the file, line and key that a person has to edit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from schemas import DocumentError, FoundryError
from schemas.yaml_config import KeyPath, load_document, locate_problem

from .pack import Bank, BankFile, Pack, Taxonomy, Template, TemplateFile, TemplateSlot, Term


class Problem(NamedTuple):
    """An error message for a key of a file."""

    path: Path
    key: KeyPath
    message: str


def load_pack(name_or_path: str | Path) -> Pack:
    """Load a pack by name (one of `pack_names()`) or from a folder.

    Raises:
        DocumentError: a file does not validate or names something unknown; one line
            `file:line: key: problem` each.
        FoundryError: there is no such pack.
    """
    return read_pack(_folder(name_or_path))


def pack_names() -> list[str]:
    """Names of the packs that come with the project."""
    return [folder.name for folder in _packs()]


def _packs() -> Iterator[Path]:
    root = Path(__file__).parent / "packs"
    return (path.parent for path in sorted(root.glob("*/taxonomy.yaml")))


def _folder(name_or_path: str | Path) -> Path:
    by_name = {folder.name: folder for folder in _packs()}
    folder = by_name.get(str(name_or_path), Path(name_or_path))
    if not (folder / "taxonomy.yaml").is_file():
        raise FoundryError(
            f"no pack {str(name_or_path)!r}; there are: {', '.join(by_name)}, "
            "or give a folder with taxonomy.yaml, banks/ and templates.yaml"
        )
    return folder


def read_pack(folder: Path) -> Pack:
    """The pack in a folder.

    Raises:
        DocumentError: see `load_pack`.
    """
    taxonomy = load_document(folder / "taxonomy.yaml", Taxonomy)
    files = {path: load_document(path, BankFile).root for path in _bank_files(folder)}
    templates = load_document(folder / "templates.yaml", TemplateFile).templates
    banks = {name: bank for file in files.values() for name, bank in file.items()}
    pack = Pack(folder.resolve().name, taxonomy, banks, templates)
    problems = [
        *_taxonomy_problems(folder / "taxonomy.yaml", pack),
        *_repeated_banks(files),
        *_bank_problems(files, pack),
        *_template_problems(folder / "templates.yaml", pack),
    ]
    if problems:
        raise DocumentError("\n".join(locate_problem(*problem) for problem in problems))
    return pack


def _bank_files(folder: Path) -> list[Path]:
    files = sorted((folder / "banks").glob("*.yaml"))
    if not files:
        raise DocumentError(f"{folder / 'banks'}: holds no *.yaml file; a pack needs vocabulary")
    return files


def _taxonomy_problems(path: Path, pack: Pack) -> Iterator[Problem]:
    yield from _subcategory_problems(path, pack)
    for index, suffix in enumerate(pack.taxonomy.suffixes):
        for position, name in enumerate(suffix.only or []):
            if name not in pack.templates:
                yield Problem(path, ("suffixes", index, "for", position), f"no template {name!r}")


def _subcategory_problems(path: Path, pack: Pack) -> Iterator[Problem]:
    names: set[str] = set(pack.taxonomy.categories)
    for category, entry in pack.taxonomy.categories.items():
        for name, sub in entry.subcategories.items():
            key: KeyPath = ("categories", category, "subcategories", name)
            if name in names:
                yield Problem(path, key, "another category or sub-category has this name")
            names.add(name)
            for index, bank in enumerate(sub.banks):
                if bank not in pack.banks:
                    yield Problem(path, (*key, "banks", index), f"no bank {bank!r}")
            if not any(name in served for served in pack.serves.values()):
                yield Problem(path, key, "no template serves this sub-category")


def _repeated_banks(files: dict[Path, dict[str, Bank]]) -> Iterator[Problem]:
    owner: dict[str, Path] = {}
    for path, banks in files.items():
        for name in banks:
            if name in owner:
                yield Problem(path, (name,), f"{owner[name].name} has a bank of this name")
            owner.setdefault(name, path)


def _bank_problems(files: dict[Path, dict[str, Bank]], pack: Pack) -> Iterator[Problem]:
    for path, banks in files.items():
        for name, bank in banks.items():
            for kind, terms in bank.items():
                yield from _term_problems(path, (name, kind), terms, pack)


def _term_problems(path: Path, key: KeyPath, terms: list[Term], pack: Pack) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, term in enumerate(terms):
        term_key = (*key, index)
        if term.term in first:
            yield Problem(path, term_key, f"{term.term!r} is also item {first[term.term]}")
        first.setdefault(term.term, index)
        for slot in term.slots:
            inner = pack.terms(slot, [str(key[0])])
            if not inner:
                yield Problem(path, term_key, _missing_kind(slot, pack, f"bank {key[0]!r}"))
            elif any(nested.slots for nested in inner):
                yield Problem(
                    path, term_key, f"{{{slot.source}}} has terms with slots of their own"
                )


def _template_problems(path: Path, pack: Pack) -> Iterator[Problem]:
    known = set(pack.taxonomy.categories) | set(pack.subcategories)
    for template_id, template in pack.templates.items():
        key: KeyPath = ("templates", template_id)
        for field, names in (("for", template.only or []), ("except", template.but)):
            for index, name in enumerate(names):
                if name not in known:
                    unknown = f"no category or sub-category {name!r}"
                    yield Problem(path, (*key, field, index), unknown)
        problems = [*_slot_problems(path, key, template, pack)]
        if not problems and not pack.serves[template_id]:
            problems = [Problem(path, key, "serves no sub-category: none has all of its slots")]
        yield from problems


def _slot_problems(path: Path, key: KeyPath, template: Template, pack: Pack) -> Iterator[Problem]:
    every_bank = list(pack.banks)
    for slot in template.slots:
        if not pack.terms(slot, every_bank):
            yield Problem(path, (*key, "text"), _missing_kind(slot, pack, "any bank"))
    for index, name in enumerate(template.only or []):
        if name in pack.subcategories and not pack.fits(template, name):
            missing = f"the banks of {name!r} lack a kind that the text has as a slot"
            yield Problem(path, (*key, "for", index), missing)


def _missing_kind(slot: TemplateSlot, pack: Pack, where: str) -> str:
    if slot.bank and slot.bank not in pack.banks:
        return f"slot {{{slot.source}}} names no bank of the pack"
    where = f"bank {slot.bank!r}" if slot.bank else where
    return f"slot {{{slot.source}}} names a kind that {where} does not have"
