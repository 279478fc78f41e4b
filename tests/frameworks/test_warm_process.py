"""The tenth trial of a process gives the numbers of a fresh one, to the last bit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch_trial import TorchTrial

NASTY = [
    "torch.set_default_dtype(torch.float64); torch.set_default_device('meta')",
    "torch.set_num_threads(5); torch.use_deterministic_algorithms(True)",
    "torch.set_float32_matmul_precision('medium'); torch.backends.mkldnn.fp32_precision = 'bf16'",
    "torch.autocast('cpu', dtype=torch.bfloat16).__enter__(); torch.autograd.set_detect_anomaly(True)",
    "torch.set_grad_enabled(False); torch.set_flush_denormal(True); torch.manual_seed(5)",
    "torch.backends.fp32_precision = 'tf32'; torch.backends.cudnn.deterministic = True",
    "nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output * 2)",
    "torch.compile(nn.Linear(8, 1), backend='eager')(torch.ones(2, 8))",
    "raise ValueError('in the middle of an epoch')",
]


def train(trial: TorchTrial, nasty: str = "") -> None:
    run = trial.run
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(100, 64, generator=generator), torch.randint(0, 10, (100,), generator=generator)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = run.prepare(model, optimizer)
    for _ in run.epochs():
        for inputs, targets in run.loader(rows):
            with run.autocast():
                loss = functional.cross_entropy(model(inputs), targets)
                exec(nasty)
            if nasty:
                return
            run.step(loss, optimizer)
        run.report(loss=loss, weights=sum(weight.double().sum() for weight in model.parameters()))


def main() -> None:
    """Prints, bit by bit, what each precision gives."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1]))
    for nasty in NASTY if sys.argv[2] == "warm" else []:
        trial = TorchTrial(folder, {"batch_size": 32, "precision": "bf16"})
        with contextlib.closing(trial), contextlib.suppress(ValueError):  # some of them raise one on purpose
            train(trial, nasty)
    found = {}
    for precision in ("fp32", "bf16"):
        trial = TorchTrial(folder, {"batch_size": 32, "precision": precision})
        train(trial)
        trial.close()
        found[precision] = [{name: value.hex() for name, value in row.items()} for row in trial.channel.reports]
    print(json.dumps(found))


def test_it_equals_a_fresh_process_to_the_last_bit(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    answers = []
    for kind in ("fresh", "warm"):
        answer = subprocess.run(
            [sys.executable, __file__, str(tmp_path), kind],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert answer.returncode == 0, answer.stderr
        answers.append(json.loads(answer.stdout.splitlines()[-1]))
    assert answers[0] == answers[1]
    assert len(answers[0]["fp32"]) == 3
    assert answers[0]["fp32"] != answers[0]["bf16"]


if __name__ == "__main__":
    main()
