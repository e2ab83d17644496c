"""Measures axmem beside PyTorch and Transformers, in turn on the same machine, and writes RESULTS.md.

    cargo build --release
    pip install -r pipeline/benches/peer/requirements.txt
    python pipeline/benches/peer/compare.py --axmem target/release/axmem

Every side of a comparison runs in a process of its own, with the same number of threads, one after another, and all of them
again in the next round. A figure is the median over rounds of the median of a process, with the least and the most of the
rounds. `--only WORDS` takes the comparisons whose name has these words.
"""

import argparse
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "RESULTS.md"


@dataclasses.dataclass
class Peer:
    name: str
    arguments: list
    # The least (of speed) or most (of memory) that the ratio may be.
    bar: float


@dataclasses.dataclass
class Comparison:
    name: str
    # What of a line is compared, and its name and scale in the table.
    field: str
    unit: str
    scale: float
    axmem: list
    peers: list


def step(model, tokens, *sets):
    arguments = ["bench", "step", str(HERE / "steps.yaml"), "--only", f"model={model},arm=standard"]
    for setting in (f"documents={{tokens: {tokens}, min_tokens: {tokens}}}", *sets):
        arguments += ["--set", setting]
    return arguments


LARGE = step("smollm2-135m", 512)
AGAIN = step("smollm2-135m", 512, "train.recompute=block")
SPEED = ("tokens_per_second", "tokens/s", 1.0)
MEMORY = ("process_peak_bytes", "GiB", 2.0**-30)
COMPARISONS = [
    Comparison("training step, SmolLM2-135M's shape, 4 x 512 ids, f32", *SPEED, LARGE, [
        Peer("PyTorch eager", ["--mode", "eager"], 1.4),
        Peer("torch.compile", ["--mode", "compile"], 1.1),
    ]),
    Comparison("peak memory of that step", *MEMORY, LARGE, [Peer("PyTorch eager", ["--mode", "eager"], 0.45)]),
    Comparison("peak memory of that step, blocks computed again", *MEMORY, AGAIN, [
        Peer("PyTorch with checkpointing", ["--mode", "eager", "--checkpoint"], 0.8),
    ]),
    Comparison("training step, 12M parameters, 16 x 128 ids, f32", *SPEED, step("llama-12m", 128), [
        Peer("PyTorch eager", ["--mode", "eager"], 1.8),
    ]),
]


class Runs:
    """Runs each process once a round, however many comparisons read its line."""

    def __init__(self, options):
        self.options = options
        self.lines = {}

    def axmem(self, arguments, turn):
        return self.run("axmem", [self.options.axmem, *arguments, "--json"], turn, arguments)

    def peer(self, arguments, axmem, turn):
        line = self.axmem(axmem, turn)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(line, file)
            file.flush()
            command = [sys.executable, HERE / "step.py", "--line", file.name, "--threads", self.options.threads, *arguments]
            return self.run("peer", command, turn, [*axmem, *arguments])

    def run(self, side, command, turn, key):
        key = (side, turn, *key)
        if key not in self.lines:
            command = [*command, "--warm", self.options.warm, "--steps", self.options.steps]
            threads = str(self.options.threads)
            names = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
            environment = os.environ | dict.fromkeys(names, threads)
            done = subprocess.run(list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, check=True)
            self.lines[key] = json.loads(done.stdout.splitlines()[-1])
            print(f"round {turn + 1}: {side} {self.lines[key]['median']:.4f} s", file=sys.stderr, flush=True)
        return self.lines[key]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def flags():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            present = line.split()
            return [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in present]
    return []


def figure(values, scale):
    values = [value * scale for value in values]
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--axmem", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    chosen = [comparison for comparison in COMPARISONS if options.only in comparison.name]
    runs = Runs(options)
    ours, theirs = {}, {}
    for turn in range(options.rounds):
        for comparison in chosen:
            line = runs.axmem(comparison.axmem, turn)
            ours.setdefault(comparison.name, []).append(line)
            for peer in comparison.peers:
                line = runs.peer(peer.arguments, comparison.axmem, turn)
                theirs.setdefault((comparison.name, peer.name), []).append(line)

    line, other = next(iter(ours.values()))[0], next(iter(theirs.values()))[0]
    text = [
        "# axmem beside PyTorch and Transformers", "",
        f"Made by `pipeline/benches/peer/compare.py`: {options.rounds} rounds, in each every side once, {options.steps} "
        f"steps that count, {options.threads} threads. Median over rounds (least to most).", "",
        f"{processor()} ({', '.join(flags())}), {os.cpu_count()} processors; axmem {line['version']}, PyTorch "
        f"{other['torch']}, Transformers {other['transformers']}, Python {other['python']}.", "",
        "| work | unit | axmem | peer | its figure | axmem / peer | bar | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for comparison in chosen:
        own = [line[comparison.field] for line in ours[comparison.name]]
        for peer in comparison.peers:
            other = [line[comparison.field] for line in theirs[comparison.name, peer.name]]
            ratio = statistics.median(a / b for a, b in zip(own, other))
            is_speed = comparison.field != MEMORY[0]
            reached = ratio >= peer.bar if is_speed else ratio <= peer.bar
            text.append("| " + " | ".join([
                comparison.name, comparison.unit, figure(own, comparison.scale), peer.name,
                figure(other, comparison.scale), f"{ratio:.2f}", f"{'≥' if is_speed else '≤'} {peer.bar:g}",
                "reached" if reached else "not reached",
            ]) + " |")
    share = {line["model"]: [] for lines in ours.values() for line in lines if line["products_share"]}
    for (side, _, *_), line in runs.lines.items():
        if side == "axmem" and line["products_share"] and line["schedule"]["recompute"] == "none":
            share[line["model"]].append(line["products_share"])
    text += ["", "Share of a step that its matrix products take alone (bar: 0.85 in f32): " + "; ".join(
        f"{model} {figure(values, 1.0)}" for model, values in share.items()) + "."]
    RESULTS.write_text("\n".join(text) + "\n")
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
