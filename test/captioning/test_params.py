"""An invalid configuration is refused with one sentence that names the fault and the remedy."""

from __future__ import annotations

from dataclasses import fields

import pytest
from refusals import refused

from crossspec_ros.captioning.replay_setup import read_config
from crossspec_ros.parameter import nearest
from crossspec_ros.settings import NODES, PROPOSERS, CaptionerSettings, PlayerSettings

QUESTION = "{ros__parameters: {question: yes?}}"


def test_defaults_are_valid():
    for kind in NODES.values():
        assert kind.check({param.name: param.default for param in kind.params()}) == kind.check({})


def test_settings_have_their_annotated_types():
    for kind in NODES.values():
        assert {field.name: field.type for field in fields(kind)} == {
            param.attribute: type(param.default).__name__.replace("tuple", "tuple[str, ...]")
            for param in kind.params()
        }
    settings = CaptionerSettings.of({"models.dtype": "bf16", "deadline_s": 1})
    assert (settings.models_dtype, settings.deadline_s, settings.threads) == ("bf16", 1.0, 1)


def test_devices_have_torch_names():
    for device in ("auto", "cpu", "cuda", "cuda:0", "cuda:12"):
        assert CaptionerSettings.check({"models.device": device})["models.device"] == device
    for device in ("", "cpu", "cuda:1"):
        assert CaptionerSettings.check({"models.draft_device": device})["models.draft_device"] == device


def test_integers_are_floats_but_flags_are_not():
    assert PlayerSettings.check({"rate": 2})["rate"] == 2.0
    with refused("parameter-flag-as-float"):
        PlayerSettings.check({"rate": True})


@pytest.mark.parametrize(
    ("values", "code"),
    [({"max_new_token": 3}, "parameter-misspelt"), ({"threads": 0}, "parameter-below-range"),
     ({"mode": "fast"}, "parameter-no-choice"), ({"question": 7}, "parameter-of-other-type"),
     ({"proposers": ["memory", "luck"]}, "parameter-no-choices"),
     ({"models.dtype": "fp8"}, "parameter-dtype"),
     ({"question": True}, "parameter-unquoted"), ({"questions": "Is it dark?"}, "parameter-no-list"),
     ({"models.device": "cuda:x"}, "parameter-device"),
     ({"models.draft_device": "auto"}, "parameter-draft-device"),
     ({"models.type": "nf4"}, "parameter-misspelt-in-group"),
     ({"schema": "[" * 400_000}, "parameter-too-long"), ({"zzz": 1}, "parameter-unknown")],
)  # fmt: skip
def test_invalid_value_is_refused(values, code):
    with refused(code):
        CaptionerSettings.check(values)


@pytest.mark.parametrize(
    ("text", "code"),
    [("captioner: {ros__parameters: {thread: 1}}", "yaml-parameter-misspelt"),
     ("captioner: {threads: 1}", "yaml-no-parameters"), ("captioner: 1", "yaml-no-section"),
     ("captioner: {ros__parameters: []}", "yaml-list-of-parameters"), ("captioner: [", "yaml-bad-syntax"),
     ("- 1", "yaml-no-nodes"), ("/**: {ros__parameters: {rate: 0}}", "yaml-of-all-nodes"),
     ("captioner: {ros__parameters: {on: 1}}", "yaml-parameter-flag"),
     ("/**/captioner: {ros__parameters: {thread: 1}}", "yaml-any-namespace"),
     ("captioner: {ros__parameters: {3: 1}}", "yaml-parameter-number"),
     (f"captoiner: {QUESTION}", "yaml-of-others"), (f"/front/captioner: {QUESTION}", "yaml-of-a-namespace")],
)  # fmt: skip
def test_invalid_file_is_refused(tmp_path, text, code):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with refused(code):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"{name}: {QUESTION}", {"question": "yes?"})
          for name in ("captioner", "/captioner", "/**", "/**/captioner")),
        (f"/captioner: {QUESTION}\nnav: {{ros__parameters: {{speed: 1}}}}", {"question": "yes?"}),
        (f"/captioner: {QUESTION}\n/front/captioner: {{ros__parameters: {{threads: 2}}}}",
         {"question": "yes?"}),
        ("/**: {ros__parameters: {robot_name: r2, threads: 2, use_sim_time: true}}", {"threads": 2}),
        (f"/**: {{ros__parameters: {{question: no?}}}}\ncaptioner: {QUESTION}", {"question": "yes?"}),
        (f"captioner: {{ros__parameters: {{question: no?}}}}\n/**: {QUESTION}", {"question": "yes?"}),
        ("captioner: {ros__parameters: {models: {dtype: bf16}, link: {timeout_s: 2}}}",
         {"models.dtype": "bf16", "link.timeout_s": 2.0}),
        ("captioner: {ros__parameters: {use_sim_time: true, start_type_description_service: true, "
         "qos_overrides: {/parameter_events: {publisher: {depth: 9}}}, threads: 1}}", {"threads": 1}),
        *((empty, {}) for empty in ("", "captioner:", "captioner: {}")),
    ],
)  # fmt: skip
def test_file_is_read_as_ros_does(tmp_path, text, expected):
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    assert read_config(path)["captioner"] == expected


def test_list_of_proposers_is_valid():
    assert CaptionerSettings().proposers == PROPOSERS
    for names, found in (([], ()), ([""], ()), (["grammar", "memory"], ("grammar", "memory"))):
        assert CaptionerSettings.of({"proposers": names}).proposers == found


def test_missing_file_is_refused(tmp_path):
    with refused("configuration-missing"):
        read_config(tmp_path / "no.yaml")


def test_hint_names_a_similar_name_only():
    levels = ("debug", "info", "warn", "error", "fatal")
    for name, near in (("warning", "warn"), ("eror", "error")):
        assert nearest(name, levels) == f"did you mean {near}?"
    for far in ("verbose", "fast", "trace"):
        assert nearest(far, levels) == "it must be one of debug, info, warn, error, fatal"
