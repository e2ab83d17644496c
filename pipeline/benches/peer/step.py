"""Times training steps of a Transformers Llama in PyTorch, the peer of `axmem bench step`.

Needs torch 2.15.0 and transformers 5.24.0 (CPU).

    axmem bench step FILE --json --only model=NAME,arm=standard > line.json
    python step.py --line line.json --threads 2 --mode eager

Sizes, rows, ids a row and rows at a time are those of the line that axmem printed, ids are drawn by chance, and every id but
the first of a row is a target, as there. AdamW is as PyTorch has it by default, with gradients clipped at norm 1.
Attention is Transformers' default (sdpa). Modes: `eager`; `compile` (torch.compile of the model); `autocast` and
`autocast-compile` (f32 weights, bf16 arithmetic); `bf16` and `bf16-compile` (everything in bf16). `--checkpoint` computes
activations of every block again.

Prints one JSON line: seconds of every step, their median, tokens a second, the peak resident memory of the process, versions.
"""

import argparse
import contextlib
import json
import platform
import resource
import statistics
import time
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM


def llama(config, dtype):
    if config.get("rope_scaling") or config["qkv_bias"] or config["output_bias"]:
        raise SystemExit("biases and scaled rotary positions are not compared")
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=config["vocab"], hidden_size=config["hidden"], intermediate_size=config["ffn"],
        num_hidden_layers=config["layers"], num_attention_heads=config["heads"],
        num_key_value_heads=config["kv_heads"], head_dim=config["head_dim"],
        max_position_embeddings=config["max_positions"], rms_norm_eps=config["norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]},
        tie_word_embeddings=config["tied"], use_cache=False,
    ))
    return model.to(dtype).train()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--line", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mode", default="eager")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    line = json.loads(options.line.read_text().splitlines()[-1])
    kind, _, compiled = options.mode.partition("-")
    if options.mode == "compile":
        kind, compiled = "eager", "compile"
    model = llama(line["config"], torch.bfloat16 if kind == "bf16" else torch.float32)
    if options.checkpoint:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9)
    run = torch.compile(model) if compiled else model
    rows, tokens, at_once = line["rows"], line["tokens"], line["micro_batch"]
    cast = torch.autocast("cpu", torch.bfloat16) if kind == "autocast" else contextlib.nullcontext()
    ids = torch.randint(0, line["config"]["vocab"], (rows, tokens))

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for part in ids.split(at_once):
            with cast:
                loss = run(input_ids=part, labels=part).loss
            (loss * len(part) / rows).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    for _ in range(options.warm):
        step()
    seconds = [step() for _ in range(options.steps)]
    median = statistics.median(seconds)
    print(json.dumps({
        "peer": "PyTorch", "mode": options.mode, "checkpoint": options.checkpoint, "model": line["model"],
        "parameters": sum(p.numel() for p in model.parameters()), "rows": rows, "tokens": tokens,
        "micro_batch": at_once, "threads": torch.get_num_threads(), "attention": model.config._attn_implementation,
        "seconds": [round(s, 4) for s in seconds], "median": round(median, 4), "tokens_per_second": rows * tokens / median,
        "process_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version(),
    }))


if __name__ == "__main__":
    main()
