"""Paired states are what the models made of a window, and they survive an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.train import pairs as pairs_module
from crossspec_lab.train.head_fit import Recipe, fit_head
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.train.resume_file import load_checkpoint, save_checkpoint
from crossspec_lab.train.variants import new_head
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.drafting.heads.head import IGNORED, Sizes
from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="module")
def extractor(pair: ModelPair) -> Iterator[PairExtractor]:
    with closing(PairExtractor(pair, QUESTION)) as one:
        yield one


@torch.inference_mode()
def test_states_say_the_tokens_that_were_chosen_from_them(
    extractor: PairExtractor, pair: ModelPair, windows: list[Window], tmp_path: Path
) -> None:
    assert pair.draft is not None
    shards = extract(extractor, windows, tmp_path, 3)
    batch = shards.batch([2, 0, 1])
    seen = batch.is_token
    # Stored in bfloat16, a close call may fall otherwise.
    same = pair.target.logits(batch.choosing).argmax(-1)[seen] == batch.tokens[seen]
    assert same.float().mean() > 0.98
    assert batch.question.tolist() == list(pair.target.prompt_ids(QUESTION)[1])
    assert batch.taps.shape == (*batch.states.shape[:2], 3 * batch.states.shape[2])
    frames = torch.cat(
        [pair.target.unit(one, i).embeds for i, one in enumerate(pair.target.encode(windows[2].frames))]
    )
    assert torch.allclose(batch.frames[0], frames, atol=0.05) and sum(batch.units) == len(frames)
    assert batch.draft_states is not None and batch.draft_tokens is not None and batch.said is not None
    assert batch.event_tokens is not None and batch.feature is not None
    told = batch.draft_tokens != IGNORED
    chosen = pair.draft.logits(batch.draft_states).argmax(-1)
    assert (chosen[told] == batch.draft_tokens[told]).float().mean() > 0.98
    assert torch.allclose(batch.event_tokens.mean(1), batch.feature, atol=0.05)


@pytest.mark.nightly
def test_an_interrupted_extraction_goes_on(
    extractor: PairExtractor, windows: list[Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "A_SHARD", 2)

    def broken() -> Iterator[Window]:
        yield from windows[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(extractor, broken(), tmp_path / "a", 4)
    assert len(PairShards(tmp_path / "a")) == 2
    asked: list[int] = []
    resumed = extract(extractor, iter(windows), tmp_path / "a", 4, asked.append)
    whole = extract(extractor, iter(windows), tmp_path / "b", 4)
    assert asked == [3, 4] and len(resumed) == len(whole) == 4
    # A shard that is missing, damaged or not full is made again, and no other.
    sorted((tmp_path / "a").glob("shard-*"))[0].write_bytes(b"")
    asked.clear()
    resumed = extract(extractor, iter(windows), tmp_path / "a", 4, asked.append)
    assert asked == [1, 2]
    extract(extractor, iter(windows), tmp_path / "c", 3)
    assert len(extract(extractor, iter(windows), tmp_path / "c", 4)) == 4
    for name, tensor in vars(whole.batch(range(4))).items():
        assert torch.equal(torch.as_tensor(vars(resumed.batch(range(4)))[name]), torch.as_tensor(tensor)), (
            name
        )


def test_states_of_others_and_damaged_ones_are_refused(
    extractor: PairExtractor, windows: list[Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="holds no paired states: run crossspec train heads"):
        PairShards(tmp_path)
    for content in ("{", "[]", "{}", '{"sizes": {"width": 1}, "question": ""}', 100_000 * "["):
        (tmp_path / "pairs.json").write_text(content)
        with pytest.raises(InputError, match=r"pairs\.json' is damaged .*: name another --work folder"):
            PairShards(tmp_path)
    (tmp_path / "pairs.json").unlink()
    extract(extractor, windows, tmp_path, 1)
    monkeypatch.setattr(extractor, "question", "What else?")
    with pytest.raises(
        InputError, match="of other models or windows, or of another question: name another --work"
    ):
        extract(extractor, windows, tmp_path, 1)
    next(tmp_path.glob("shard-*")).write_bytes(b"\x80\x04N.")
    with pytest.raises(InputError, match=r"cut off or damaged .* remove it, it is made anew"):
        PairShards(tmp_path)


@pytest.mark.nightly
def test_training_resumes_to_the_same_head_and_ends_early(
    extractor: PairExtractor,
    pair: ModelPair,
    windows: list[Window],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from crossspec_lab.train import head_fit

    monkeypatch.setattr(head_fit, "_CHECK_EVERY", 2)
    shards = extract(extractor, windows * 3, tmp_path / "pairs", 12)

    def trained(folder: str, stop_at: int = 10**6) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        torch.manual_seed(1)
        head = new_head("event_head", Sizes.of(pair.target, pair.draft))
        head.attach(pair.target)

        def report(step: int, note: str) -> None:
            if step >= stop_at:
                raise KeyboardInterrupt

        best = fit_head(head, shards, Recipe(steps=20, batch=4, held_out=2), tmp_path / folder, report)
        return head.state_dict(), best

    whole, best = trained("a")
    with pytest.raises(KeyboardInterrupt):
        trained("b", stop_at=10)
    resumed, again = trained("b")
    assert again == best and all(torch.equal(whole[name], resumed[name]) for name in whole)
    log = (tmp_path / "a" / "log.csv").read_text().splitlines()
    assert log[0] == "step,training_loss,loss,tokens_right" and len(log) == 11
    assert log == (tmp_path / "b" / "log.csv").read_text().splitlines()
    head = new_head("event_head", shards.sizes)
    with pytest.raises(
        InputError, match="another recipe or other windows: name another --work folder or remove it"
    ):
        fit_head(head, shards, Recipe(steps=30), tmp_path / "a", lambda step, note: None)
    monkeypatch.setattr(head_fit, "held_out_figures", lambda *args: {"loss": 1.0, "tokens_right": 0.5})
    head.attach(pair.target)
    steps: list[int] = []
    recipe = Recipe(steps=1000, batch=4, held_out=2, patience=3)
    assert fit_head(head, shards, recipe, tmp_path / "c", lambda step, note: steps.append(step))["step"] == 2
    assert max(steps, default=0) < 20


def test_a_damaged_checkpoint_is_refused_and_nothing_in_it_is_run(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    save_checkpoint({"step": 3}, file)
    assert load_checkpoint(file) == {"step": 3} and list(tmp_path.iterdir()) == [file]
    for damage in (b"\x80\x04N.", b"", file.read_bytes()[:-40]):
        file.write_bytes(damage)
        with pytest.raises(InputError, match=r"checkpoint.pt' is damaged \(\w+\): remove it"):
            load_checkpoint(file)
