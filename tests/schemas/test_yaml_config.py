from pathlib import Path

import pytest
from pydantic import Field

from schemas import DocumentError
from schemas.yaml_config import ConfigModel, load_document


class Bank(ConfigModel):
    terms: list[str]
    weight: float = 1.0


class Document(ConfigModel):
    name: str
    banks: dict[str, Bank] = Field({})


def write(folder: Path, text: str) -> Path:
    path = folder / "pack.yaml"
    path.write_text(text, "utf-8")
    return path


def test_a_valid_document_becomes_its_model(tmp_path):
    path = write(tmp_path, "name: sketchbook\nbanks:\n  animals:\n    terms: [cat, dog]\n")
    assert load_document(path, Document).banks["animals"].terms == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: x\nbanks:\n  animals:\n    terms: cat\n", 4, "banks.animals.terms: Input should"),
        ("name: x\nbanks:\n  animals:\n    terms:\n    - cat\n    - [1]\n", 6, "terms.1: Input"),
        (
            "name: x\nbanks:\n  animals:\n    terms: []\n    wheight: 2\n",
            5,
            "wheight: Extra inputs",
        ),
        ("name: x\nbanks:\n  animals: {}\n", 3, "banks.animals.terms: Field required"),
        ("banks: {}\n", 1, "name: Field required"),
        ("", 1, "name: Field required"),
        ("# only a comment\n", 1, "name: Field required"),
        ("- a\n- b\n", 1, "document: Input should be a valid dictionary"),
        ("name: x\nname: y\n", 2, "name: given twice, first on line 1"),
        ("name: [x\nbanks: {}\n", 2, "not valid YAML: "),
        ("name: x\n\tbanks: {}\n", 2, "not valid YAML: "),
        (
            "name: !!python/object:os.system x\n",
            1,
            "not valid YAML: could not determine a construct",
        ),
        ("name: *undefined\n", 1, "not valid YAML: "),
    ],
)
def test_a_problem_names_file_line_and_key(tmp_path, text, line, message):
    path = write(tmp_path, text)
    with pytest.raises(DocumentError) as error:
        load_document(path, Document)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_every_problem_has_its_line(tmp_path):
    path = write(tmp_path, "nmae: x\nbanks:\n  a:\n    terms: 1\n  b:\n    terms: 2\n")
    with pytest.raises(DocumentError) as error:
        load_document(path, Document)
    lines = str(error.value).splitlines()
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in lines] == ["1", "4", "6", "1"]


def test_a_missing_file_and_a_binary_one(tmp_path):
    with pytest.raises(DocumentError, match=r"none\.yaml: cannot be read: No such file"):
        load_document(tmp_path / "none.yaml", Document)
    (tmp_path / "picture.yaml").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(DocumentError, match=r"picture\.yaml: is not UTF-8 text \(byte 0\)"):
        load_document(tmp_path / "picture.yaml", Document)
    (tmp_path / "null.yaml").write_bytes(b"name: \0")
    with pytest.raises(DocumentError, match=r"null\.yaml: not valid YAML: "):
        load_document(tmp_path / "null.yaml", Document)
    with pytest.raises(DocumentError, match="cannot be read: Is a directory"):
        load_document(tmp_path, Document)
