"""The prompts both models were trained with."""

from __future__ import annotations

from tokenizers import Tokenizer

VIDEO = "<video>"
EVENT_PATCH, EVENT_START, EVENT_END = "<ev_patch>", "<ev_start>", "<ev_end>"

_SYSTEM = (
    "A chat between a curious human and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the human's questions."
)


def target_prompt(question: str) -> tuple[str, str]:
    """Text before and after the video tokens of Video-LLaVA."""
    return "USER: ", f"\n{question} ASSISTANT:"


def draft_prompt(question: str) -> tuple[str, str]:
    """Text before and after the event tokens of EventGPT."""
    return f"{_SYSTEM} USER: {EVENT_START}", f"{EVENT_END}\n{question} ASSISTANT:"


def target_prompt_ids(tokenizer: Tokenizer, question: str) -> tuple[list[int], list[int]]:
    """Token ids before and after the video tokens of Video-LLaVA.

    Of the text as a whole: on its own, what comes after would begin with a space in LLaMA's tokenizer.
    """
    whole = tokenizer.encode(VIDEO.join(target_prompt(question)))
    at = whole.tokens.index(VIDEO)
    return whole.ids[:at], whole.ids[at + 1 :]


def draft_prompt_ids(tokenizer: Tokenizer, question: str) -> tuple[list[int], list[int]]:
    """Token ids before and after the event tokens of EventGPT, each text on its own as in the published
    code."""
    before, after = draft_prompt(question)
    return tokenizer.encode(before).ids, tokenizer.encode(after, add_special_tokens=False).ids
