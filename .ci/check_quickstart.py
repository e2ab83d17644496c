"""Checks what the quickstart must show, from its summary.json: python3 .ci/check_quickstart.py SUMMARY..."""

import json
import sys


def one(rows, **wanted):
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows for {wanted}"
    return found[0]


def check(path):
    with open(path, encoding="utf-8") as file:
        summary = json.load(file)
    estimates = summary["estimates"]
    highest = max((row["bucket"] for row in estimates if row["bucket"] != "control"), key=int)

    def rate(arm, bucket):
        return one(estimates, arm=arm, bucket=bucket, trial="pooled", time="after", suffix=50, method="wilson")

    standard, goldfish = rate("standard", highest), rate("goldfish", highest)
    difference = one(summary["contrasts"], kind="did", measure="exact", arm="standard", bucket=highest, suffix=50, **{"from": "warm", "to": "after"})
    for name, row in (("standard", standard), ("goldfish", goldfish)):
        print(
            f"{path}: {name}, {highest} exposures: {row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}],"
            f" {row['hits']} of {row['documents']} documents, {row['clusters']} clusters, {row['fragile']} fragile"
        )
    print(f"{path}: difference from control {difference['estimate']:.3f} [{difference['low']:.3f}, {difference['high']:.3f}]")

    assert standard["rate"] >= 0.4, "the standard arm must reproduce at least 0.4 of the documents at the highest exposure"
    assert difference["low"] > 0, "the interval of the difference from control must exclude 0"
    assert goldfish["rate"] < standard["rate"] / 3, "Goldfish must stay below a third of the standard arm"
    for arm in ("standard", "goldfish"):
        control = rate(arm, "control")
        assert control["hits"] == 0, f"{arm}: {control['hits']} control documents are reproduced"
        print(f"{path}: {arm}, control: 0 of {control['documents']}, upper bound {control['high']:.3f}")
    rows = [row for row in estimates if row["trial"] == "pooled" and row["method"] == "wilson" and row["suffix"] == 50]
    for time in ("initial", "warm", "after"):
        at = [row for row in rows if row["time"] == time]
        fragile, documents = sum(row["fragile"] for row in at), sum(row["documents"] for row in at)
        print(f"{path}: {time}: {fragile} of {documents} documents are fragile")
        if time == "after":
            assert fragile <= 0.05 * documents, "at most 5 % of the documents may be fragile"


for argument in sys.argv[1:]:
    check(argument)
