"""A pack's taxonomy, vocabulary and templates as rows of their tables."""

from schemas.prompts import CategoryRow, TemplateRow, VocabularyRow

from .pack import Pack


def category_rows(pack: Pack) -> list[CategoryRow]:
    return [
        CategoryRow(
            pack=pack.name,
            category=pack.category_of[name],
            subcategory=name,
            title=sub.title,
            description=sub.description,
            banks=sub.banks,
            heldout=sub.heldout,
        )
        for name, sub in pack.subcategories.items()
    ]


def vocabulary_rows(pack: Pack) -> list[VocabularyRow]:
    return [
        VocabularyRow(pack=pack.name, bank=bank, kind=kind, term=term.term)
        for bank, kinds in pack.banks.items()
        for kind, terms in kinds.items()
        for term in terms
    ]


def template_rows(pack: Pack) -> list[TemplateRow]:
    return [
        TemplateRow(
            pack=pack.name,
            template_id=template_id,
            text=template.text,
            subcategories=pack.serves[template_id],
            heldout=template.heldout,
        )
        for template_id, template in pack.templates.items()
    ]
