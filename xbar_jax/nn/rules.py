"""Which hardware a layer gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from xbar_jax.hardware import Hardware


class Choice(NamedTuple):
    """What was chosen for a weight: hardware (None: it stays digital), modifier, and why."""

    hardware: Hardware | None
    modifier: Any
    why: str


class Rules:
    """Ordered rules, the first that matches decides; what none matches gets the default hardware.

    Args:
      hardware: the default; None touches nothing.
      rules: (regular expression searched in the path, one that is the whole name of the operation or None for all,
        hardware); hardware is a description, None (stays digital), or dict(hardware=, modifier=).
      exclude: regular expressions searched in the paths of weights, which stay digital.
      modifier: of every analog layer that no rule gives another.
    """

    def __init__(
        self,
        hardware: Hardware | None,
        rules: Sequence[tuple[str, str | None, Any]] | None,
        exclude: Iterable[str],
        modifier: Any,
    ):
        if isinstance(exclude, str):
            raise ValueError(f"convert: exclude must be a sequence of regular expressions, got the text {exclude!r}")
        self.default = None if hardware is None else Choice(hardware, modifier, "default")
        self.exclude = tuple(exclude)
        self.rules = []
        for k, rule in enumerate(rules or ()):
            if not isinstance(rule, (tuple, list)) or len(rule) != 3:
                raise ValueError(f"convert: rules[{k}] must be (path, operation or None, hardware), got {rule!r}")
            self.rules.append((rule[0], rule[1], self._target(k, rule[2], modifier)))
        self.matched: set[str] = set()

    @staticmethod
    def _target(k: int, target: Any, modifier: Any) -> Choice:
        if isinstance(target, dict):
            if not set(target) <= {"hardware", "modifier"} or "hardware" not in target:
                raise ValueError(
                    f"convert: rules[{k}] must have the keys hardware and modifier, got {', '.join(map(str, target))}"
                )
            target, modifier = target["hardware"], target.get("modifier", modifier)
        if target is not None and not isinstance(target, Hardware):
            raise TypeError(f"convert: rules[{k}] must give an xb.Hardware or None, got {type(target).__name__}")
        return Choice(target, modifier, "")

    def choose(self, path: str, operation: str | None, weight: str) -> Choice | None:
        """The choice for a layer with a kernel ``weight``, or for a bare weight (operation None); None: untouched."""
        for pattern in self.exclude:
            if re.search(pattern, weight):
                self.matched.add(pattern)
                return Choice(None, None, f"excluded by {pattern!r}")
        for k, (pattern, kind, choice) in enumerate(self.rules):
            if not re.search(pattern, path) or (kind is not None and not re.fullmatch(kind, operation or "")):
                continue
            self.matched.add(pattern)
            # A bare weight has no operation that arrays could run.
            if operation is not None or choice.hardware is None:
                return choice._replace(why=f"rule {k}: {pattern!r}" + ("" if kind is None else f", {kind!r}"))
        return None if operation is None else self.default

    def finish(self, untouched: list[tuple[str, tuple[int, ...], str]]) -> None:
        """Raises ValueError where weights (path, shape, module) were touched by nothing, or a pattern matched nothing."""
        if untouched:
            listed = "".join(f"\n  {path} {list(shape)} of {module}" for path, shape, module in untouched)
            raise ValueError(
                "convert: every weight must be touched by a rule or be of a layer that can be analog, got"
                f"{listed}\nLeave weights digital by name with exclude=[regular expression of the path], or by a rule "
                "(regular expression, None, None)."
            )
        patterns = [*self.exclude, *(pattern for pattern, _, _ in self.rules)]
        unused = [pattern for pattern in patterns if pattern not in self.matched]
        if unused:
            raise ValueError(f"convert: every pattern must match a weight, got none for {', '.join(map(repr, unused))}")
