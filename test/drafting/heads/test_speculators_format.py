"""EAGLE-3 heads as vllm-project/speculators stores them: made here by hand, for every family's target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crossspec_lab.heads.saved import save_speculators
from plain_eagle import PlainEagle, random_pairs
from safetensors.torch import load_file, save_file
from tiny_targets import TINY_FAMILIES

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.drafting.heads.eagle import Eagle
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import load_head
from crossspec_ros.drafting.heads.speculators_format import read_speculators
from crossspec_ros.drafting.proposers.heads import HeadProposer
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTION, LIMIT = "What are the key elements in this scene?", 20
HEADS, KEY_HEADS, HEAD, INNER = 4, 2, 16, 48
# What a published head may be; `old` names its layer as before, `whole` has no maps.
VARIANTS: dict[str, dict[str, Any]] = {
    "residual": {"norm_before_residual": True},
    "qwen3": {"qwen3": True, "fc_norm": True, "norm_output": True},
    "old": {"old": True, "norm_before_fc": True, "embed_tokens": True},
    "whole": {"whole": True},
}


def write(folder: Path, target: VideoTarget, qwen3: bool = False, old: bool = False, whole: bool = False,
          embed_tokens: bool = False, dtype: torch.dtype = torch.float32, **norms: bool) -> None:  # fmt: skip
    """A random head."""
    folder.mkdir(exist_ok=True)
    sizes = Sizes.of(target, None)
    h, tokens = sizes.width, sizes.tokens
    speaks = tokens if whole else tokens // 2
    random = torch.Generator().manual_seed(3)

    def weight(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=random) * shape[-1] ** -0.5).to(dtype)

    def norm(width: int) -> torch.Tensor:
        return (1 + 0.2 * torch.randn(width, generator=random)).to(dtype)

    layer = {
        **{
            f"{name}.weight": norm(h)
            for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        },
        "self_attn.q_proj.weight": weight(HEADS * HEAD, 2 * h),
        "self_attn.k_proj.weight": weight(KEY_HEADS * HEAD, 2 * h),
        "self_attn.v_proj.weight": weight(KEY_HEADS * HEAD, 2 * h),
        "self_attn.o_proj.weight": weight(h, HEADS * HEAD),
        "mlp.gate_proj.weight": weight(INNER, h),
        "mlp.up_proj.weight": weight(INNER, h),
        "mlp.down_proj.weight": weight(h, INNER),
    }
    if qwen3:
        layer |= {f"self_attn.{name}_norm.weight": norm(HEAD) for name in "qk"}
    tensors = {("midlayer." if old else "layers.0.") + name: tensor for name, tensor in layer.items()}
    tensors |= {
        "fc.weight": weight(h, 3 * h),
        "norm.weight": norm(h),
        "lm_head.weight": 3 * weight(speaks, h),
    }
    if not whole:
        ids = torch.randperm(tokens, generator=random)[:speaks].sort().values
        tensors["d2t"] = ids - torch.arange(speaks)
        tensors["t2d"] = torch.zeros(tokens, dtype=torch.bool).index_fill(0, ids, True)
    if embed_tokens:
        tensors["embed_tokens.weight"] = weight(tokens, h)
    if norms.get("norm_before_fc"):
        tensors["input_norm.weight"] = norm(3 * h)
    if norms.get("fc_norm"):
        tensors |= {f"fc_norm.{i}.weight": norm(h) for i in range(3)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "draft_vocab_size": speaks,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [1, sizes.layers // 2, sizes.layers - 1],
        "transformer_layer_config": {
            "model_type": "qwen3" if qwen3 else "llama",
            "hidden_size": h,
            "intermediate_size": INNER,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_HEADS,
            "head_dim": HEAD,
            "num_hidden_layers": 1,
            "rms_norm_eps": 1e-5,
            "vocab_size": tokens,
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": [type(target.module).__name__], "name_or_path": "some/target"},
        },
        **norms,
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module", params=sorted(TINY_FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny checkpoint, its pair, and transformers' own answer to what is seen."""
    made = TINY_FAMILIES[request.param]
    folder = made.checkpoint(tmp_path_factory.mktemp(request.param) / "target")
    seen = np.random.default_rng(8).integers(0, 256, (8, 48, 80, 3), np.uint8)
    said = tuple(made.generated(folder, seen, QUESTION, LIMIT))
    return load_pair(tiny_models(), target=str(folder)), seen, said


@pytest.mark.parametrize("variant", ["residual", "qwen3"])
def test_every_family_says_with_it_what_it_says_without(family: Any, tmp_path: Path, variant: str) -> None:
    pair, seen, wanted = family
    write(tmp_path, pair.target, **VARIANTS[variant])
    proposer = HeadProposer(tmp_path.name, load_head(tmp_path, pair.target))
    decoder = speculative_decoder(pair, LIMIT, proposers=[proposer])
    decoder.policy.cost = None  # every node that may help is verified
    images = np.random.default_rng(0).integers(0, 256, (pair.event_images, 64, 64, 3), np.uint8)
    try:
        for index in range(2):
            stamps = tuple(index * 10**9 + i * 125_000_000 for i in range(8))
            window = Window(index, index * 10**9, (index + 1) * 10**9, images, seen, stamps)
            said = decoder.caption(window, QUESTION, Trace())
            assert said.token_ids == wanted
            assert said.drafted[tmp_path.name] > 0
    finally:
        decoder.close()


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_it_computes_what_the_format_says(pair: ModelPair, tmp_path: Path, variant: str) -> None:
    write(tmp_path, pair.target, **VARIANTS[variant])
    head = load_head(tmp_path, pair.target)
    assert isinstance(head, Eagle) and head.taps == (1, 2, 4)
    head.attach(pair.target)
    pairs, plain = random_pairs(head.sizes), PlainEagle(head)
    following = [*pairs.question[1:].tolist(), *pairs.tokens[0].tolist()]
    made = plain.chain(
        following[:9], plain.features(pairs.states[0], pairs.taps[0])[:9], torch.zeros(0, 192).double(), ()
    )
    stored = load_file(tmp_path / "model.safetensors")
    spoken = torch.arange(577) if "d2t" not in stored else torch.arange(288) + stored["d2t"]
    found = head.logits(pairs)[0, 5]
    assert torch.allclose(found[spoken].log_softmax(-1).double(), plain.log_probs(made), atol=1e-3)
    assert set(found.topk(100).indices.tolist()) <= set(spoken.tolist())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_there_and_back_no_bit_changes(
    pair: ModelPair, tmp_path: Path, variant: str, dtype: torch.dtype
) -> None:
    write(tmp_path / "a", pair.target, **VARIANTS[variant], dtype=dtype)
    save_speculators(read_speculators(tmp_path / "a", pair.target), tmp_path / "b", "some/target", "Any")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    renamed = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in before.items()}
    assert renamed.keys() == after.keys()
    for name, tensor in renamed.items():
        assert tensor.dtype == after[name].dtype and torch.equal(tensor, after[name])
    a, b = (json.loads((tmp_path / name / "config.json").read_text()) for name in "ab")
    for name in ("transformer_layer_config", "draft_vocab_size", "eagle_aux_hidden_state_layer_ids"):
        assert a[name] == b[name]
    assert all(bool(a.get(name)) == b[name] for name in b if "norm" in name)
    assert b["speculators_config"]["verifier"] == {"name_or_path": "some/target", "architectures": ["Any"]}
    assert load_head(tmp_path / "b", pair.target).dtype == pair.target.dtype


def test_one_of_ours_is_the_same_when_it_is_read_as_others(pair: ModelPair, tmp_path: Path) -> None:
    torch.manual_seed(0)
    head = Eagle(Sizes.of(pair.target, pair.draft), draft_vocabulary=100, unroll=3, fc_norm=True)
    head.speak(torch.randperm(577)[:100])
    save_speculators(head, tmp_path, "some/target", "VideoLlavaForConditionalGeneration")
    read, pairs = load_head(tmp_path, pair.target), random_pairs(head.sizes)
    with torch.no_grad():
        for one in (head, read):
            one.attach(pair.target)
        assert torch.allclose(read.logits(pairs), head.logits(pairs), atol=1e-5)


@pytest.mark.parametrize("options", [{"version": 2}, {"queries": 2}])
def test_what_the_format_has_no_words_for_is_not_written(
    pair: ModelPair, tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="take one of version 3 without queries"):
        save_speculators(Eagle(Sizes.of(pair.target, None), **options), tmp_path, "some/target", "Any")


LAYER = "transformer_layer_config"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"speculators_model_type": "dflash"}, "for the algorithm 'dflash'.*: name the folder of an EAGLE-3"),
        ({"draft_vocab_size": None}, "lacks the value 'draft_vocab_size'"),
        ({"draft_vocab_size": 77}, "'d2t' has 288 values of torch.int64, and not 77"),
        ({LAYER: {"num_hidden_layers": 2}}, "says 2 decoder layers"),
        ({LAYER: {"hidden_size": 64}}, "width is 64, but this target's is 192"),
        ({LAYER: {"vocab_size": 600}}, "vocabulary is 600, but this target's is 577"),
        ({LAYER: {"model_type": "gpt2"}}, "no config of an EAGLE-3 head .*'gpt2'"),
        ({LAYER: {"num_attention_heads": "four"}}, "no config of an EAGLE-3 head"),
        (
            {LAYER: {"rope_parameters": {"rope_type": "odd", "rope_theta": 1.0}}},
            "no config of an EAGLE-3 head",
        ),
        ({LAYER: "llama"}, "no config of an EAGLE-3 head"),
        ({"target_hidden_size": 4096}, "target's width is 4096"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, r"taps the layers \[1, 2, 5\].*layers 0 to 4"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, "are not those of the draft head.*fc.weight"),
        ({"norm_before_fc": True}, "are not those of the draft head.*input_norm.weight"),
        ({"norm_before_fc": True, "fc_norm": True}, "exclude each other"),
    ],
)
def test_a_config_of_another_head_is_refused_in_a_sentence(
    pair: ModelPair, tmp_path: Path, values: dict[str, Any], problem: str
) -> None:
    write(tmp_path, pair.target)
    config = json.loads((tmp_path / "config.json").read_text())
    for name, value in values.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=problem) as raised:
        load_head(tmp_path, pair.target)
    assert str(tmp_path) in str(raised.value) and "\n" not in str(raised.value)


def own(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies, for the file that they are of is written anew."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def without(*names: str) -> Callable[[dict[str, torch.Tensor]], Any]:
    return lambda tensors: [tensors.pop(name) for name in names]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without("d2t"), "'d2t' is missing"),
        (without("d2t", "t2d"), "'d2t' is missing, which maps the 288 draft tokens to 577"),
        (without("norm.weight"), "are not those of the draft head.*norm.weight"),
        (lambda tensors: tensors["d2t"].add_(400), "'d2t' leads out of the target's 577 tokens"),
        (lambda tensors: tensors["d2t"].sub_(400), "'d2t' leads out of the target's 577 tokens"),
        (lambda tensors: tensors["d2t"][:1].sub_(-1), "do not name the same tokens"),
        (lambda tensors: tensors["t2d"].fill_(True), "do not name the same tokens"),
        (lambda tensors: tensors.update(d2t=tensors["d2t"].float()), "288 values of torch.float32"),
        (lambda tensors: tensors.update({"mtp.weight": torch.ones(1)}), "are not those.*mtp.weight"),
    ],
)
def test_weights_of_another_head_are_refused_in_a_sentence(
    pair: ModelPair, tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], Any], problem: str
) -> None:
    write(tmp_path, pair.target)
    change(tensors := own(load_file(tmp_path / "model.safetensors")))
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=problem) as raised:
        load_head(tmp_path, pair.target)
    assert str(tmp_path) in str(raised.value) and "\n" not in str(raised.value)


def test_a_map_that_follows_from_the_other_may_be_missing(pair: ModelPair, tmp_path: Path) -> None:
    write(tmp_path, pair.target)
    tensors = own(load_file(tmp_path / "model.safetensors"))
    said = tensors.pop("t2d")
    save_file(tensors, tmp_path / "model.safetensors")
    head = read_speculators(tmp_path, pair.target)
    assert head.t2d is not None and torch.equal(head.t2d, said)


@pytest.mark.parametrize("damage", ["cut", "missing", "pickle"])
def test_damaged_weights_are_refused_in_a_sentence(pair: ModelPair, tmp_path: Path, damage: str) -> None:
    write(tmp_path, pair.target)
    file = tmp_path / "model.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "missing":
        file.unlink()
    else:
        torch.save({"fc.weight": torch.ones(1)}, file)
    with pytest.raises(InputError, match=r"model\.safetensors.*missing or damaged.*copy them again"):
        load_head(tmp_path, pair.target)
