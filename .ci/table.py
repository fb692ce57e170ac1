#!/usr/bin/env python3
"""The last words of .ci/run: a table of promises, then one line "N passed, N failed, N skipped".

usage: table.py RESULTS.ndjson SKIPS.txt GO_TEST.json...

RESULTS has a line for each step and each promise. The Go files are `go test -json`: their top-level tests are counted, steps too. A skip
that SKIPS does not name is a failure; so is a step or a Go file that did not come to its end.
"""
import json
import sys


def go_tests(path):
    """Yields (test, outcome, seconds) of the top-level tests of one `go test -json`, and prints what failed ones said."""
    said, done, ended = {}, {}, False
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    e = json.loads(line)
                except ValueError:
                    continue
                test, action = e.get("Test"), e["Action"]
                if test is None:
                    ended = ended or action in ("pass", "fail")
                    continue
                top = test.split("/")[0]
                if action == "output":
                    said.setdefault(top, []).append(e["Output"])
                elif action in ("pass", "fail", "skip"):
                    if test == top:
                        done[top] = (action, e.get("Elapsed", 0))
                elif action == "run":
                    done.setdefault(top, ("unfinished", 0))
    except FileNotFoundError:
        pass
    for test, (action, seconds) in sorted(done.items()):
        if action in ("fail", "unfinished"):
            print("--- %s (%s)\n%s" % (test, action, "".join(said.get(test, []))[-8000:]))
        yield test, action, seconds
    if not ended or not done:
        yield path + ": no result", "fail", 0


def main():
    with open(sys.argv[1]) as f:
        promises = [json.loads(line) for line in f if line.strip()]
    allowed = {}
    with open(sys.argv[2]) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                test, _, why = line.partition(":")
                allowed[test.strip()] = why.strip()
    passed = failed = skipped = 0
    notes = []
    for p in promises:
        if p["test"] == ".ci/run":
            if p["result"] == "ok":
                passed += 1
            else:
                failed += 1
    for path in sys.argv[3:]:
        for test, action, _ in go_tests(path):
            if action == "pass":
                passed += 1
            elif action == "skip" and test in allowed:
                skipped += 1
                notes.append("skipped %s: %s" % (test, allowed[test]))
            elif action == "skip":
                failed += 1
                notes.append("%s was skipped and does not stand in %s" % (test, sys.argv[2]))
            else:
                failed += 1
                notes.append("%s failed" % test)
    rows = [("promise", "test", "result", "figure")]
    for p in promises:
        result = p["result"] + (" (%s)" % p["why"] if p.get("why") else "")
        rows.append((p["promise"], p["test"], result, p.get("figure") or "%.0f s" % p["seconds"]))
    widths = [min(100, max(len(r[i]) for r in rows)) for i in range(3)]
    print()
    for r in rows:
        print("%-*s | %-*s | %-*s | %s" % (widths[0], r[0], widths[1], r[1], widths[2], r[2], r[3]))
    print()
    for n in notes:
        print(n)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
