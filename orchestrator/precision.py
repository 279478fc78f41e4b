"""The precisions, their names in other tools, and which framework runs which on which device, or why not."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from orchestrator.errors import nearest


class Precision(enum.StrEnum):
    """How numbers are held and multiplied in training.

    `FP32`: 32-bit throughout. `TF32`: 32-bit numbers, products on NVIDIA tensor cores with 10 bits of
    mantissa. `BF16`, `FP16`: 32-bit weights, 16-bit compute (mixed). `BF16_TRUE`: 16-bit weights too.
    `FP8`: 8-bit products.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    BF16_TRUE = "bf16-true"
    FP16 = "fp16"
    FP8 = "fp8"

    @classmethod
    def parse(cls, name: object) -> Precision:
        """The precision of that name or alias.

        Raises:
            ValueError: no such precision; the message lists those that exist.
        """
        if isinstance(name, cls):
            return name
        word = str(name).strip().lower()
        word = ALIASES.get(word, word)
        try:
            return cls(word)
        except ValueError:
            allowed = ", ".join(cls)
            guess = nearest(word, [*cls, *ALIASES])
            raise ValueError(f"precision = {name!r} does not exist{guess}; allowed: {allowed}") from None


ALIASES = {
    "32": "fp32",
    "32-true": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "full": "fp32",
    "tensorfloat32": "tf32",
    "tensorfloat-32": "tf32",
    "bfloat16": "bf16",
    "bf16-mixed": "bf16",
    "mixed_bfloat16": "bf16",
    "16": "fp16",
    "16-mixed": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "mixed_float16": "fp16",
    "bfloat16-true": "bf16-true",
    "float8": "fp8",
}


@dataclass(frozen=True)
class Support:
    """Whether a framework runs a precision on a device type; `reason` says why not, or what to expect."""

    supported: bool
    reason: str = ""
    slow: bool = False


_YES = Support(True)
_NO_TF32 = Support(False, "TF32 is a mode of NVIDIA tensor cores")
_NO_FP8 = Support(False, "torch has no automatic FP8 training without a further library")
_SLOW_16 = "runs, but most CPUs have no fast 16-bit arithmetic: expect it to be slower than fp32"

TABLE: dict[tuple[str, str], dict[Precision, Support]] = {
    ("torch", "cpu"): {
        Precision.FP32: _YES,
        Precision.TF32: _NO_TF32,
        Precision.BF16: Support(True, _SLOW_16, slow=True),
        Precision.BF16_TRUE: Support(True, _SLOW_16, slow=True),
        Precision.FP16: Support(True, _SLOW_16, slow=True),
        Precision.FP8: _NO_FP8,
    },
    ("torch", "gpu"): {
        Precision.FP32: _YES,
        Precision.TF32: Support(True, "needs an NVIDIA GPU of compute capability 8.0 or later"),
        Precision.BF16: Support(True, "fast from NVIDIA compute capability 8.0 on"),
        Precision.BF16_TRUE: Support(True, "fast from NVIDIA compute capability 8.0 on"),
        Precision.FP16: _YES,
        Precision.FP8: _NO_FP8,
    },
}


def support(framework: str, device: str, precision: Precision) -> Support:
    """Whether `framework` trains at `precision` on the device type `device`, and why not."""
    row = TABLE.get((framework, device))
    if row is None:
        return Support(False, f"{framework} does not run on {device} here")
    return row[precision]


def substitute(framework: str, device: str, precision: Precision) -> Precision | None:
    """The nearest precision that does run there, used with `on_unsupported="convert"`; None if none does."""
    order = {
        Precision.TF32: (Precision.FP32,),
        Precision.FP16: (Precision.BF16, Precision.FP32),
        Precision.FP8: (Precision.BF16, Precision.FP32),
        Precision.BF16_TRUE: (Precision.BF16, Precision.FP32),
        Precision.BF16: (Precision.FP32,),
        Precision.FP32: (),
    }[precision]
    return next((other for other in order if support(framework, device, other).supported), None)
