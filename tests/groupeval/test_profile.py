"""The profiles are frozen: any change is noticed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from pools import planned

from strop.errors import UserError
from strop.groupeval.profile import FILES, MANIFEST, PROFILES, Profile
from strop.groupeval.series import PROFILE, open_plan

FROZEN = {
    "webtext-v1": "81f3ac2492bac136222940a62f59a83bed30e6010dc5d7a14aaed8b65594911e",
    "answers-v1": "283efc335924eaeaf1281c9d70994806adbd2644030e93a7d0893ae9c7c26401",
    "task-v1": "1ccb6626a0abb771c0a30ca87bf2ec18d712216356951203169c6f164d350947",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROFILES / "webtext-v1", tmp_path / "mine"))


@pytest.mark.parametrize("name", FROZEN)
def test_the_shipped_profiles_are_what_they_were(name: str) -> None:
    assert Profile.load(name).hash == FROZEN[name]


def test_the_protocol_of_the_paper() -> None:
    profile = Profile.load("webtext-v1")
    assert (profile.group_size, profile.partitions, profile.kind) == (8, 2, "unconditional")
    assert profile.dimensions == ("readability", "coherence", "substance", "nondegeneration")
    assert profile.modes
    assert not Profile.load("task-v1").modes


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_with_the_way_to_a_new_version(copy: Path, name: str) -> None:
    with open(copy / name, "ab") as file:
        file.write(b"\n")
    with pytest.raises(UserError, match="was changed") as caught:
        Profile.load(copy)
    assert "sha256sum" in str(caught.value.fix)


def test_the_way_to_a_new_version_works(copy: Path) -> None:
    text = (copy / "profile.yaml").read_text().replace("name: webtext-v1", "name: mine-v1")
    (copy / "profile.yaml").write_text(text)
    listed = subprocess.check_output(["sha256sum", *FILES], cwd=copy)
    (copy / MANIFEST).write_bytes(listed)
    profile = Profile.load(copy)
    assert profile.name == "mine-v1"
    assert profile.hash != FROZEN["webtext-v1"]


def test_a_changed_profile_under_the_old_name_is_refused(copy: Path) -> None:
    with open(copy / "rubric.md", "a") as file:
        file.write("Be kind.\n")
    (copy / MANIFEST).write_bytes(subprocess.check_output(["sha256sum", *FILES], cwd=copy))
    with pytest.raises(UserError, match="though it says so"):
        Profile.load(copy)


def test_a_profile_that_cannot_work_is_refused(copy: Path) -> None:
    for name, old, new, told in (
        ("user.md", "$data", "the texts", "places to fill in"),
        ("user.md", "$count", "$5", "places to fill in"),
        ("profile.yaml", "partitions: 2", "partitions: 3", "partitions"),
        (
            "profile.yaml",
            "kind: unconditional",
            "kind: other",
            "'unconditional', 'conditional' or 'answers'",
        ),
        ("profile.yaml", "modes: true", "modes: 3", "modes"),
    ):
        right = (copy / name).read_text()
        assert old in right
        (copy / name).write_text(right.replace(old, new))
        (copy / MANIFEST).write_bytes(subprocess.check_output(["sha256sum", *FILES], cwd=copy))
        with pytest.raises(UserError, match=told):
            Profile.load(copy)
        (copy / name).write_text(right)


def test_a_run_refuses_a_profile_that_drifted(tmp_path: Path) -> None:
    run = planned(tmp_path / "run", {"a": 8})
    folder = run / PROFILE
    with open(folder / "rubric.md", "a") as file:
        file.write("Be kind.\n")
    with pytest.raises(UserError, match="was changed"):
        open_plan(run)
    (folder / MANIFEST).write_bytes(subprocess.check_output(["sha256sum", *FILES], cwd=folder))
    with pytest.raises(UserError, match="not the one that the plan was made with"):
        open_plan(run)


def test_unknown_profiles_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no profile called 'webtext-v2'") as caught:
        Profile.load("webtext-v2")
    assert "answers-v1, task-v1, webtext-v1" in str(caught.value.expected)
    with pytest.raises(UserError, match="not a complete profile"):
        Profile.load(tmp_path)
