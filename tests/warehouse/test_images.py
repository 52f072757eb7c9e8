import io

import pytest
from PIL import Image

from schemas import BadImageError
from warehouse import EncodedImage


def test_a_picture_is_stored_under_its_hash(any_home, picture):
    sha = any_home.images.put(picture)
    assert any_home.images.relative(sha) == f"{sha[:2]}/{sha}.png"
    assert any_home.images.url(sha).endswith(f"images/{sha[:2]}/{sha}.png")
    assert any_home.images.exists(sha)
    assert any_home.images.get(sha) == picture
    assert any_home.images.get(sha).image.size == (48, 48)


def test_a_stored_picture_is_not_written_again(home, picture):
    sha = home.images.put(picture)
    file = home.local / "images" / home.images.relative(sha)
    before = file.stat().st_ino
    assert home.images.put(picture) == sha
    assert file.stat().st_ino == before


def test_a_missing_picture_says_what_to_do(any_home):
    with pytest.raises(BadImageError, match=r"is missing: .*--force"):
        any_home.images.get("0" * 64)


def test_a_truncated_picture_is_not_stored(home, picture):
    broken = EncodedImage(picture.data[: len(picture.data) // 2])
    with pytest.raises(BadImageError, match="cannot be decoded"):
        home.images.put(broken)
    assert not home.images.exists(broken.sha256)
    with pytest.raises(BadImageError, match="cannot be decoded"):
        home.images.put(EncodedImage(b"<html>503</html>"))


def test_a_picture_truncated_on_disk_is_refused_then_healed(home, picture):
    sha = home.images.put(picture)
    file = home.local / "images" / home.images.relative(sha)
    file.write_bytes(picture.data[:100])
    with pytest.raises(BadImageError, match=r"is damaged \(100 bytes") as error:
        home.images.get(sha)
    assert "\n" not in str(error.value)
    home.images.put(picture)
    assert home.images.get(sha) == picture


def test_a_picture_of_other_content_is_refused(home, picture):
    sha = home.images.put(picture)
    buffer = io.BytesIO()
    Image.new("RGB", (48, 48)).save(buffer, "PNG")
    (home.local / "images" / home.images.relative(sha)).write_bytes(buffer.getvalue())
    with pytest.raises(BadImageError, match="another hash"):
        home.images.get(sha)


@pytest.mark.parametrize("sha", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_only_hashes_name_pictures(home, sha):
    with pytest.raises(BadImageError, match="is not the sha256"):
        home.images.get(sha)
