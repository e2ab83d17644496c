"""Times Transformers' batched greedy `generate`, the peer of `axmem audit` and `axmem bench decode`.

Needs torch 2.15.0 and transformers 5.24.0 (CPU); a GGUF also accelerate 1.15.0 and gguf 0.19.0; Parquet also pyarrow.

    python decode.py --model DIR --documents 200 --ids FILE --threads 2 --batch 1,4,16,32 --repeats 3

FILE is JSON, a list of lists of ids, or Parquet with a column `ids` of lists. The first N documents of at least 206 + 50
ids are taken; the first 206 ids of each are the prompt, and 50 are generated. All prompts are of one length, so nothing is
padded, and there is no EOS, so nothing stops early. f32, key-value cache, Transformers' default attention.

Prints one JSON line per batch size: documents per second (of the median repeat), all seconds, versions. The model is loaded
once and one batch is generated before the clock starts. `sha256` starts the hash of the generated ids (u32, little endian)
of all documents in order, to see that settings agree.
"""

import argparse
import hashlib
import json
import platform
import statistics
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig


def read_ids(path, documents, length):
    if path.suffix == ".parquet":
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path, columns=["ids"])["ids"].to_pylist()
    else:
        rows = json.loads(path.read_text())
    rows = [row[:length] for row in rows if len(row) >= length][:documents]
    if len(rows) < documents:
        raise SystemExit(f"{path} holds {len(rows)} documents of at least {length} ids, not {documents}")
    return rows


def load(path):
    folder, options = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    # Else its ids for padding and the end would be taken over.
    model.generation_config = GenerationConfig()
    return model


def generate(model, rows, prefix, suffix, batch):
    config = GenerationConfig(
        do_sample=False, max_new_tokens=suffix, min_new_tokens=suffix, eos_token_id=None, pad_token_id=0, use_cache=True
    )
    new = []
    for first in range(0, len(rows), batch):
        prompt = torch.tensor([row[:prefix] for row in rows[first : first + batch]])
        found = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
        new.append(found[:, prefix:])
    new = torch.cat(new)
    assert new.shape == (len(rows), suffix)
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", default="1,4,16,32")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--prefix", type=int, default=206)
    parser.add_argument("--suffix", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.model)
    rows = read_ids(options.ids, options.documents, options.prefix + options.suffix)
    for batch in map(int, options.batch.split(",")):
        generate(model, rows[:batch], options.prefix, options.suffix, batch)
        seconds = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            new = generate(model, rows, options.prefix, options.suffix, batch)
            seconds.append(time.perf_counter() - start)
        print(json.dumps({
            "peer": "transformers generate", "batch": batch, "documents": len(rows), "prefix": options.prefix,
            "suffix": options.suffix, "threads": torch.get_num_threads(), "dtype": str(model.dtype).removeprefix("torch."),
            "attention": model.config._attn_implementation,
            "documents_per_second": round(len(rows) / statistics.median(seconds), 4),
            "seconds": [round(s, 3) for s in seconds],
            "sha256": hashlib.sha256(new.numpy().astype("<u4").tobytes()).hexdigest()[:16],
            "torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version(),
        }), flush=True)


if __name__ == "__main__":
    main()
