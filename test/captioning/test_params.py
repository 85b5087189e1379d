"""A bad configuration is refused with one sentence that names what is wrong and what would be right."""

from __future__ import annotations

from dataclasses import fields

import pytest
from refusals import refused

from crossspec_ros.captioning.config import read_config
from crossspec_ros.parameter import nearest, read_number
from crossspec_ros.settings import NODES, PROPOSERS, CaptionerSettings, PlayerSettings


def test_defaults_are_values_that_the_parameters_take():
    for kind in NODES.values():
        assert kind.check({param.name: param.default for param in kind.params()}) == kind.check({})


def test_settings_have_the_types_that_they_are_annotated_with():
    for kind in NODES.values():
        assert {field.name: field.type for field in fields(kind)} == {
            param.attribute: type(param.default).__name__.replace("tuple", "tuple[str, ...]")
            for param in kind.params()
        }
    settings = CaptionerSettings.of({"models.dtype": "bf16", "deadline_s": 1})
    assert (settings.models_dtype, settings.deadline_s, settings.threads) == ("bf16", 1.0, 1)


def test_devices_are_named_as_torch_names_them():
    for device in ("auto", "cpu", "cuda", "cuda:0", "cuda:12"):
        assert CaptionerSettings.check({"models.device": device})["models.device"] == device
    for device in ("", "cpu", "cuda:1"):
        assert CaptionerSettings.check({"models.draft_device": device})["models.draft_device"] == device


def test_a_whole_number_is_a_good_float_and_a_flag_is_no_number():
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
def test_a_bad_value_gets_a_sentence(values, code):
    with refused(code):
        CaptionerSettings.check(values)


@pytest.mark.parametrize(
    ("text", "code"),
    [("captioner: {ros__parameters: {thread: 1}}", "yaml-parameter-misspelt"),
     ("captioner: {threads: 1}", "yaml-no-parameters"), ("captioner: 0", "yaml-no-parameters"),
     ("captioner: {ros__parameters: []}", "yaml-no-parameters"), ("captioner: [", "yaml-bad-syntax"),
     ("- 1", "yaml-no-nodes"), ("0", "yaml-no-nodes"),
     ("captioner: {ros__parameters: {on: 1}}", "yaml-parameter-flag"),
     ("captioner: {ros__parameters: {3: 1}}", "yaml-parameter-number")],
)  # fmt: skip
def test_a_bad_file_is_named_in_its_sentence(tmp_path, text, code):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with refused(code):
        read_config(path)


QUESTION = "{ros__parameters: {question: yes?}}"


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        (f"/**: {QUESTION}", "", {"question": "yes?"}),
        (f"/**: {QUESTION}", "/a/b", {"question": "yes?"}),
        (f"/**/captioner: {QUESTION}", "", {"question": "yes?"}),
        (f"/*/captioner: {QUESTION}", "/a", {"question": "yes?"}),
        (f"/*/captioner: {QUESTION}", "/a/b", {}),
        (f"/front/captioner: {QUESTION}", "/front", {"question": "yes?"}),
        (f"front: {{captioner: {QUESTION}}}", "front", {"question": "yes?"}),
        (f"/front/captioner: {QUESTION}", "", {}),
        (f"captioner: {QUESTION}", "/front", {"question": "yes?"}),
        (f"/captioner: {QUESTION}", "/front", {}),
        (f"/*: {QUESTION}", "/front", {}),
        (f"/front/captioner: {QUESTION}\n/captioner: {{ros__parameters: {{question: no?}}}}", "/front",
         {"question": "yes?"}),
        (f"/captioner: {QUESTION}\nnav: {{ros__parameters: {{speed: 1}}}}", "", {"question": "yes?"}),
        ("/**: {ros__parameters: {robot_name: r2, threads: 2, use_sim_time: true}}", "", {"threads": 2}),
        (f"/**: {{ros__parameters: {{question: no?}}}}\ncaptioner: {QUESTION}", "", {"question": "yes?"}),
        (f"captioner: {{ros__parameters: {{question: no?}}}}\n/**: {QUESTION}", "", {"question": "yes?"}),
        ("captioner: {ros__parameters: {models: {dtype: bf16}, link: {timeout_s: 2}}}", "",
         {"models.dtype": "bf16", "link.timeout_s": 2.0}),
        ("captioner: {ros__parameters: {use_sim_time: true, start_type_description_service: true, "
         "qos_overrides: {/parameter_events: {publisher: {depth: 9}}}, threads: 1}}", "", {"threads": 1}),
    ],
)  # fmt: skip
def test_a_file_is_taken_as_ros_takes_it(tmp_path, text, namespace, expected):
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    assert read_config(path, namespace)["captioner"] == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("captoiner: {ros__parameters: {threads: 1}}", "is for captoiner, and sets nothing for our nodes"),
        (f"/front/captioner: {QUESTION}", "sets nothing for our nodes without a namespace"),
        (f"captioner: {QUESTION}", ""),
    ],
)
def test_a_file_that_is_for_others_alone_is_told(tmp_path, capsys, text, told):
    path = tmp_path / "parameters.yaml"
    path.write_text(text)
    read_config(path)
    assert (told in capsys.readouterr().err) if told else not capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "captioner:", "captioner: {}"])
def test_a_file_may_set_nothing(tmp_path, text):
    path = tmp_path / "empty.yaml"
    path.write_text(text)
    assert read_config(path) == {node: {} for node in NODES}


def test_any_proposer_may_be_named_and_those_that_draft_by_default_are_the_usual_ones():
    assert CaptionerSettings().proposers == PROPOSERS
    for names, found in (([], ()), ([""], ()), (["grammar", "memory"], ("grammar", "memory"))):
        assert CaptionerSettings.of({"proposers": names}).proposers == found


def test_a_number_as_text_is_one_or_gets_a_sentence():
    assert read_number("rate", "0.5") == 0.5
    with refused("rate-text"):
        read_number("rate", "fast")


def test_a_missing_file_is_named(tmp_path):
    with refused("configuration-missing"):
        read_config(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("warning", "did you mean warn?"),
        ("eror", "did you mean error?"),
        *((far, "it must be one of debug, info, warn, error, fatal") for far in ("verbose", "fast", "trace")),
    ],
)
def test_only_what_is_near_is_taken_for_what_was_meant(name, hint):
    assert nearest(name, ("debug", "info", "warn", "error", "fatal")) == hint
