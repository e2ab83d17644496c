"""Prepares articles as a batched Python pipeline would, the peer of axmem's stages `tokens` and `buckets`.

Needs tokenizers 0.23.3, datasketch 2.0.0 and pyarrow 26.0.1.

    python data.py --documents runs/corpus-v1/KEY/documents.parquet --tokenizer tokenizer.json --tokens 128 --processes 2

Reads the table of articles that axmem wrote, tokenises in batches with the same tokenizer, cuts the first ids, leaves out what
is too short and exact copies, sketches near-copies (MinHash of 128 permutations over runs of 8 ids), joins those that
share half of their runs, and draws buckets by hash. Prints one JSON line with articles a second.
"""

import argparse
import hashlib
import json
import multiprocessing
import time

import numpy
import pyarrow.parquet
from datasketch import MinHash, MinHashLSH
from tokenizers import Tokenizer

SHINGLE, OVERLAP, BATCH = 8, 0.5, 256


def prepare(tokenizer, tokens):
    global TOKENIZER, TOKENS
    TOKENIZER, TOKENS = Tokenizer.from_file(tokenizer), tokens


def shingles(ids):
    return {hash(tuple(ids[at : at + SHINGLE])) for at in range(len(ids) - SHINGLE + 1)}


def articles(batch):
    found = []
    for (name, _), encoded in zip(batch, TOKENIZER.encode_batch([text for _, text in batch])):
        ids = encoded.ids
        if len(ids) < TOKENS:
            found.append((name, len(ids), None, None, None))
            continue
        own = shingles(ids)
        sketch = MinHash(num_perm=128)
        sketch.update_batch([numpy.int64(value).tobytes() for value in own])
        found.append((name, len(ids), ids[:TOKENS], sketch.hashvalues, own))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--levels", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()

    start = time.perf_counter()
    table = pyarrow.parquet.read_table(options.documents, columns=["id", "text"])
    rows = list(zip(table["id"].to_pylist(), table["text"].to_pylist()))
    batches = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
    documents = []
    with multiprocessing.Pool(options.processes, prepare, (options.tokenizer, options.tokens)) as pool:
        for found in pool.imap(articles, batches):
            documents += found

    eligible = {name: (ids, sketch, own) for name, _, ids, sketch, own in documents if ids is not None}
    parent = {name: name for name in eligible}

    def root(name):
        while parent[name] != name:
            name = parent[name]
        return name

    index = MinHashLSH(threshold=OVERLAP, num_perm=128)
    for name, (_, values, own) in eligible.items():
        sketch = MinHash(num_perm=128, hashvalues=values)
        for other in index.query(sketch):
            theirs = eligible[other][2]
            if len(own & theirs) >= OVERLAP * min(len(own), len(theirs)):
                parent[root(name)] = root(other)
        index.insert(name, sketch)
    clusters = sorted({root(name) for name in eligible}, key=lambda name: hashlib.sha256(name.encode()).digest())
    buckets = [clusters[at * options.size : (at + 1) * options.size] for at in range(options.levels)]
    seconds = time.perf_counter() - start
    print(json.dumps({
        "peer": "Python", "articles": len(rows), "eligible": len(eligible), "clusters": len(clusters),
        "buckets": [len(bucket) for bucket in buckets], "processes": options.processes, "seconds": round(seconds, 3),
        "articles_per_second": len(rows) / seconds,
    }))


if __name__ == "__main__":
    main()
