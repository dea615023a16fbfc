"""Finds a short sequence that still fails, by removing ever smaller parts (delta debugging)."""

import time
from collections.abc import Callable
from typing import TypeVar

Part = TypeVar("Part")


def shrink(parts: list[Part], fails: Callable[[list[Part]], bool], budget_s: float) -> list[Part]:
    """A failing part of `parts` from which, if there was enough time, nothing can be removed."""
    deadline = time.monotonic() + budget_s
    parts = _failing_tail(parts, fails, deadline)
    size = max(len(parts) // 2, 1)
    while time.monotonic() < deadline:
        shorter = _without_one_chunk(parts, size, fails, deadline)
        if shorter is not None:
            parts, size = shorter, max(min(size, len(shorter) // 2), 1)
        elif size == 1:
            break
        else:
            size = max(size // 2, 1)
    return parts


def _failing_tail(parts: list[Part], fails: Callable[[list[Part]], bool], deadline: float) -> list[Part]:
    """Most failures need only the steps shortly before."""
    length = 4
    while length < len(parts) and time.monotonic() < deadline:
        if fails(parts[-length:]):
            return parts[-length:]
        length *= 4
    return parts


def _without_one_chunk(
    parts: list[Part], size: int, fails: Callable[[list[Part]], bool], deadline: float
) -> list[Part] | None:
    """`parts` without all chunks of this size that can be removed one after the other; None if none can."""
    position, shorter = len(parts) - size, None
    while position > -size and time.monotonic() < deadline:
        start = max(position, 0)
        candidate = parts[:start] + parts[start + size :]
        if candidate and fails(candidate):
            parts = shorter = candidate
        position -= size
    return shorter
