"""`interleave reviews`."""

from tests.helpers.command import interleave


def test_shares_and_agreement_are_printed(capsys, world, say):
    world.add("a", [(2, False), (9, True)])
    home = world.write()
    say("a", 1, 0, accepted=False)
    done = interleave(capsys, "reviews", "--home", home.root)
    assert done.returncode == 0
    assert ["toy-0000", "2", "1", "50.0%", "no"] in [
        line.split() for line in done.stdout.split("\n")
    ]
    assert "critic and people" in done.stdout and "[1.000, 1.000]" in done.stdout


def test_a_home_without_attempts(capsys, tmp_path):
    done = interleave(capsys, "reviews", "--home", tmp_path / "none")
    assert done.returncode == 0 and "interleave run" in done.stdout
