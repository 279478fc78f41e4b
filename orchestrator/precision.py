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
_SLOW_16 = Support(
    True, "runs, but most CPUs have no fast 16-bit arithmetic: expect it to be slower than fp32", slow=True
)
_TF32 = Support(True, "needs an NVIDIA GPU of compute capability 8.0 or later")
_BF16 = Support(True, "fast from NVIDIA compute capability 8.0 on")
_NO_TF32 = Support(False, "TF32 is a mode of NVIDIA tensor cores")
_NO_FP8 = Support(False, "no automatic FP8 training without a further library")
_NO_FP16 = Support(False, "TPUs compute in bf16 and fp32, not in fp16")
_HIGHEST = Support(True, "products at the highest matrix precision, several passes of bf16")


def _row(
    fp32: Support, tf32: Support, bf16: Support, bf16_true: Support, fp16: Support
) -> dict[Precision, Support]:
    return {
        Precision.FP32: fp32,
        Precision.TF32: tf32,
        Precision.BF16: bf16,
        Precision.BF16_TRUE: bf16_true,
        Precision.FP16: fp16,
        Precision.FP8: _NO_FP8,
    }


_TORCH_TPU = _row(_HIGHEST, _NO_TF32, _YES, _YES, _NO_FP16)

TABLE: dict[tuple[str, str], dict[Precision, Support]] = {
    ("torch", "cpu"): _row(_YES, _NO_TF32, _SLOW_16, _SLOW_16, _SLOW_16),
    ("torch", "gpu"): _row(_YES, _TF32, _BF16, _BF16, _YES),
    ("torch", "tpu"): _TORCH_TPU,
    ("torch_xla", "cpu"): _row(_YES, _NO_TF32, _SLOW_16, _SLOW_16, _NO_FP16),
    ("torch_xla", "tpu"): _TORCH_TPU,
    ("torch_tpu", "tpu"): _TORCH_TPU,
    ("tensorflow", "cpu"): _row(_YES, _NO_TF32, _SLOW_16, _SLOW_16, _SLOW_16),
    ("tensorflow", "gpu"): _row(_YES, _TF32, _BF16, _BF16, _YES),
    ("tensorflow", "tpu"): _row(_YES, _NO_TF32, _YES, _YES, _NO_FP16),
}
"""What each framework trains at on each type of device. A pair without a row does not run at all."""

FRAMEWORKS = tuple(dict.fromkeys(framework for framework, _ in TABLE))


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
