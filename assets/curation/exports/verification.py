"""Damage of published exports: files by the hashes of `SHA256SUMS`, images by their names."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse import Home
from warehouse.checksums import SUMS_FILE, differing_files, file_sha256, read_sums
from warehouse.storage import first_line
from warehouse.verify import Check, Damage

from .folder import CARD, read_card

_REMEDY = "`interleave verify --repair`, or delete the folder and `interleave run --select exports`"


def export_checks(home: Home) -> Iterator[Check]:
    """A check a file of every export; folders of other people have neither card nor sums."""
    for folder in sorted(home.exports.glob("[!.]*")):
        if (folder / SUMS_FILE).exists() or (folder / CARD).exists():
            yield from _folder_checks(folder)
    for file in sorted(home.exports.glob("generations/*/data/*.parquet")):
        yield Check("export", str(file), partial(_verify_parquet, file))


def _folder_checks(folder: Path) -> Iterator[Check]:
    try:
        sums = read_sums(folder)
    except ValueError as error:
        damage = _damage(folder, SUMS_FILE, str(error))
        yield Check("export", damage.file, lambda: [damage])
        return
    # Folders from before there were sums have hashes in their card.
    for name, digest in (read_card(folder).get("files", {}) if sums is None else sums).items():
        find = partial(_verify_file, folder, name, digest)
        yield Check("export", str(folder / name), find)
    for image in sorted(folder.glob("images/*/*.png")):
        yield Check("export", str(image), partial(_verify_image, folder, image))


def _verify_file(folder: Path, name: str, digest: str) -> list[Damage]:
    return [_damage(folder, *found) for found in differing_files(folder, {name: digest})]


def _verify_image(folder: Path, image: Path) -> list[Damage]:
    if len(image.stem) != 64 or not image.exists() or file_sha256(image) == image.stem:
        return []  # a white canvas has another name, and is listed with the files
    return [_damage(folder, image.relative_to(folder).as_posix(), "its bytes have another hash")]


def _verify_parquet(file: Path) -> list[Damage]:
    try:
        for _ in pq.ParquetFile(file, page_checksum_verification=True).iter_batches():
            pass
    except FileNotFoundError:
        return []
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        remedy = "delete it and `interleave run --select generations`"
        return [Damage("export", str(file), f"is damaged ({first_line(error)})", remedy)]
    return []


def _damage(folder: Path, name: str, problem: str) -> Damage:
    return Damage("export", str(folder / name), problem, _REMEDY, (folder.name,))
