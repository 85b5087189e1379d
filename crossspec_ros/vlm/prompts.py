"""The prompts both models were trained with."""

from __future__ import annotations

VIDEO = "<video>"
EVENT_START, EVENT_END = "<ev_start>", "<ev_end>"

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
