import pytest
from PIL import Image

from schemas import BadImageError
from warehouse import EncodedImage


def test_an_image_is_stored_under_its_hash(any_home, image):
    sha = any_home.images.put(image)
    assert any_home.images.relative_path(sha) == f"{sha[:2]}/{sha}.png"
    assert any_home.images.url(sha).endswith(f"images/{sha[:2]}/{sha}.png")
    assert any_home.images.exists(sha)
    assert any_home.images.get(sha) == image
    assert any_home.images.get(sha).image.size == (48, 48)
    with pytest.raises(BadImageError, match=r"is missing: .*--force"):
        any_home.images.get("0" * 64)


def test_a_stored_image_is_not_rewritten(home, image):
    sha = home.images.put(image)
    file = home.local / "images" / home.images.relative_path(sha)
    before = file.stat().st_ino
    assert home.images.put(image) == sha
    assert file.stat().st_ino == before


def test_a_truncated_image_is_not_stored(home, image):
    broken = EncodedImage(image.data[: len(image.data) // 2])
    with pytest.raises(BadImageError, match="cannot be decoded"):
        home.images.put(broken)
    assert not home.images.exists(broken.sha256)
    with pytest.raises(BadImageError, match="cannot be decoded"):
        home.images.put(EncodedImage(b"<html>503</html>"))


def test_an_image_truncated_on_disk_is_rejected_then_replaced(home, image):
    sha = home.images.put(image)
    file = home.local / "images" / home.images.relative_path(sha)
    file.write_bytes(image.data[:100])
    with pytest.raises(BadImageError, match=r"is damaged \(100 bytes") as error:
        home.images.get(sha)
    assert "\n" not in str(error.value)
    home.images.put(image)
    assert home.images.get(sha) == image


def test_only_hashes_name_images_and_those_of_their_bytes(home, image):
    sha = home.images.put(image)
    other = EncodedImage.of(Image.new("RGB", (48, 48)))
    (home.local / "images" / home.images.relative_path(sha)).write_bytes(other.data)
    with pytest.raises(BadImageError, match="another hash"):
        home.images.get(sha)
    for name in ("", "../../etc/passwd", "A" * 64, "a" * 63):
        with pytest.raises(BadImageError, match="is not the sha256"):
            home.images.get(name)
