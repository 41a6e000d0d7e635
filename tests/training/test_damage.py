"""What training reads back is what it wrote: one wrong bit is told, with the file's name."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import toy
from toy import same, train, weights

import strop
from strop.cli.main import run as strop_command
from strop.errors import UserError
from strop.training.run import TrainingRun, content_hash


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and a run of three steps, of which every test has a copy."""
    place = tmp_path_factory.mktemp("once")
    toy.write_corpus(place / "toy.txt", toy.documents(50, seed=1))
    train(place, steps=3)
    return place


@pytest.fixture
def ended(once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(once, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def stopped(ended: Path) -> Path:
    """A run that has a resume state and no result."""
    (ended / "run" / "result.json").unlink()
    return ended


def flip(path: Path, at: float = 0.5, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1 << bit
    path.write_bytes(content)


def refused(corpus: Path, name: str) -> UserError:
    with pytest.raises(UserError, match="damaged") as caught:
        train(corpus, steps=3)
    assert Path(str(caught.value.where)).name == name
    return caught.value


@pytest.mark.parametrize(
    "name",
    ["train-00000.bin", "held_out-00000.bin", "train-source.bin", "tokenizer.json"],
)
def test_one_wrong_bit_in_the_corpus_is_told(stopped: Path, name: str) -> None:
    flip(stopped / "shards" / name)
    error = refused(stopped, name)
    assert f"delete {stopped / 'shards'}" in str(error.fix)
    # As it says: without the directory the corpus is prepared again, and the run goes on.
    for path in (stopped / "shards").iterdir():
        path.unlink()
    assert train(stopped, steps=3)["steps"] == 3


def test_one_wrong_bit_in_the_list_of_rows_is_told(corpus: Path) -> None:
    data = {"keep": 0.5}
    train(corpus, steps=3, data=data)
    (corpus / "run" / "result.json").unlink()
    flip(corpus / "shards" / "train-rows.npy", 0.9)
    with pytest.raises(UserError, match="damaged") as caught:
        train(corpus, steps=3, data=data)
    assert str(caught.value.where).endswith("train-rows.npy")


def test_a_wrong_digit_in_the_manifest_is_told(stopped: Path) -> None:
    path = stopped / "shards" / "manifest.json"
    document = json.loads(path.read_text())
    document["tokenizer"]["end_of_text"] += 1
    path.write_text(json.dumps(document))
    refused(stopped, "manifest.json")


def test_wrong_bits_in_the_resume_state_are_told(stopped: Path) -> None:
    """Every flip is told, or changes no number: names and padding of the archive have no hash."""
    path = stopped / "run" / "resume.pt"
    good = path.read_bytes()
    whole = content_hash(TrainingRun(stopped / "run").load_resume(TrainingRun(path.parent).spec))
    told = []
    for part in range(40):
        path.write_bytes(good)
        flip(path, part / 40 + 0.01, part % 8)
        try:
            state = TrainingRun(path.parent).load_resume(TrainingRun(path.parent).spec)
        except UserError as error:
            told.append((error.what, error.where))
        else:
            assert content_hash(state) == whole
    assert set(told) == {("A file of the run is damaged.", str(path))}
    assert len(told) > 30


def test_a_flipped_weight_does_not_train_on(stopped: Path) -> None:
    """As the file's own library would not notice: a state written anew with one other number."""
    path = stopped / "run" / "resume.pt"
    state = torch.load(path, weights_only=True)
    next(iter(state["weights"].values())).view(-1)[0] += 1e-3
    torch.save(state, path)
    refused(stopped, "resume.pt")


@pytest.mark.parametrize(
    "content",
    [{"weights": torch.zeros(3)}, [1, 2], torch.zeros(3), {"format": "x"}, 7],
    ids=["mapping", "list", "tensor", "format", "number"],
)
def test_a_resume_state_of_other_content_is_told(stopped: Path, content: object) -> None:
    torch.save(content, stopped / "run" / "resume.pt")
    refused(stopped, "resume.pt")


@pytest.mark.parametrize("name", ["strop.json", "result.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", ["[1]\n", '"x"\n', "{}\n", "\x00"])
def test_other_files_of_other_content(ended: Path, name: str, content: str, capsys) -> None:
    (ended / "run" / name).write_text(content)
    for line in (["show", str(ended / "run")], ["ls", str(ended)]):
        strop_command(line)
        assert "Traceback" not in capsys.readouterr().err


# Foreign directories


def test_a_foreign_directory_is_refused_and_left_alone(corpus: Path) -> None:
    for name, content in {"thesis/chapter.tex": "years", "other/checkpoints/step-1/x": "1"}.items():
        path = corpus / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
        directory = corpus / name.split("/")[0]
        before = sorted(directory.rglob("*"))
        with pytest.raises(UserError, match="no training run") as caught:
            train(corpus, directory.name, steps=1)
        assert "another `out`" in str(caught.value.fix)
        assert sorted(directory.rglob("*")) == before


def test_a_sample_run_is_no_place_to_train(corpus: Path) -> None:
    result = train(corpus, steps=1)
    strop.draw.sample(result["checkpoint"], strop.SamplerSpec(steps=2), n=1, out=corpus / "samples")
    with pytest.raises(UserError, match="no training run"):
        train(corpus, "samples", steps=1)
    assert strop_command(["show", str(corpus / "samples")]) == 0
    with pytest.raises(UserError, match="no run"):
        strop.draw.sample(result["checkpoint"], n=1, out=corpus / "run")


def test_a_lost_mark_is_written_again(stopped: Path) -> None:
    whole = train(stopped, "whole", steps=3)
    before = (stopped / "run" / "strop.json").read_bytes()
    (stopped / "run" / "strop.json").unlink()
    with pytest.raises(UserError, match="another configuration"):
        train(stopped, steps=3, seed=6)
    assert same(weights(train(stopped, steps=3)), weights(whole))
    assert (stopped / "run" / "strop.json").read_bytes() == before
