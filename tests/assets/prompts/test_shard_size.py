"""What a bank is not made of, said before anything is written."""

from pathlib import Path

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from schemas.prompts import PROMPTS
from tests.helpers.command import interleave
from tests.helpers.profiles import changed_profile

BANK = "taxonomy,vocabulary_expansion,vocabulary,templates,prompts"


def test_another_size_is_one_line_with_both_sizes_and_the_remedy(capsys, home, tmp_path):
    rows = generate_bank(load_pack("sketchbook"), BankSettings(shard_size=8), 16)
    for start in (0, 8):
        home.lake.write(PROMPTS, rows[start : start + 8], rows[start].shard)
    path = changed_profile(tmp_path, name="mine", bank={"shard_size": 12})
    before = files(home)
    for select in (BANK, "plans"):
        options = ("--profile", path, "--home", home.root, "--select", select)
        done = interleave(capsys, "run", *options)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "sketchbook in shards of 8, profile mine wants shards of 12" in done.stderr
        assert "set `bank: {shard_size: 8}` in the profile" in done.stderr
        assert "another home (INTERLEAVE_HOME)" in done.stderr
    assert files(home) == before


def test_without_what_prompts_follow_from_the_selection_that_makes_it_is_named(capsys, home):
    done = interleave(capsys, "run", "--home", home.root, "--select", "prompts")
    assert done.returncode == 1 and "--select +prompts makes" in done.stderr.splitlines()[-1]
    assert not home.lake.partitions(PROMPTS)


def files(home):
    lake = Path(home.local, "lake")
    return {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")}
