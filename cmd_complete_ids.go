package main

// Ids for completion: asked of the server, which has very little time to answer, and kept in a small file for a few seconds, because a shell
// asks at every press of TAB. A server that is away is no matter.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	completeLimit = 300 * time.Millisecond // for the server; a person waits at the prompt
	completeKept  = 5 * time.Second
	completeMost  = 50 // newest jobs and runs
)

// ids are jobs, runs or machines that can be named.
func (c *cli) ids(ctx context.Context, kind string) []candidate {
	return c.asked(ctx, kind, func(ctx context.Context, cl *client) ([]candidate, error) {
		var found []candidate
		newest := url.Values{"limit": {strconv.Itoa(completeMost)}}
		switch kind {
		case "JOB":
			l, err := getOne[list[jobView]](ctx, cl, "/jobs", newest)
			for _, j := range l.Items {
				found = append(found, candidate{jobName(j), j.Name + " " + j.State})
			}
			return found, err
		case "RUN":
			l, err := getOne[list[runView]](ctx, cl, "/runs", newest)
			for _, r := range l.Items {
				found = append(found, candidate{r.ID, r.Name + " " + r.State})
			}
			return found, err
		}
		l, err := cl.nodes(ctx)
		for _, n := range l.Items {
			found = append(found, candidate{n.Name, n.State})
		}
		return found, err
	})
}

// metricNames are the metrics of a run.
func (c *cli) metricNames(ctx context.Context, ref string) []candidate {
	return c.asked(ctx, "NAME "+ref, func(ctx context.Context, cl *client) ([]candidate, error) {
		var found []candidate
		run, err := cl.run(ctx, ref)
		for _, m := range run.Metrics {
			found = append(found, candidate{m.Name, bestText(m)})
		}
		return found, err
	})
}

// keptCandidates is a file of the cache.
type keptCandidates struct {
	AtMS  int64       `json:"at_ms"`
	Found [][2]string `json:"found"`
}

// asked gives what ask gives, or what it gave a moment ago. Errors are no answer: nothing is completed then.
func (c *cli) asked(ctx context.Context, what string, ask func(context.Context, *client) ([]candidate, error)) []candidate {
	cl, err := c.connect()
	if err != nil {
		return nil
	}
	home, err := c.home()
	if err != nil {
		return nil
	}
	sum := sha256.Sum256([]byte(cl.base.Load().String() + "\n" + cl.token + "\n" + what))
	path := filepath.Join(home, "cache", "complete-"+hex.EncodeToString(sum[:8])+".json")
	var kept keptCandidates
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &kept) == nil {
		if age := c.p.now.Sub(time.UnixMilli(kept.AtMS)); age >= 0 && age < completeKept {
			var found []candidate
			for _, f := range kept.Found {
				found = append(found, candidate{f[0], f[1]})
			}
			return found
		}
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	found, err := ask(ctx, cl)
	if err != nil {
		return nil
	}
	c.keep(path, found)
	return found
}

// keep writes a file of the cache and takes old ones away. What cannot be kept is asked for again.
func (c *cli) keep(path string, found []candidate) {
	kept := keptCandidates{AtMS: c.p.now.UnixMilli(), Found: [][2]string{}}
	for _, f := range found {
		kept.Found = append(kept.Found, [2]string{f.value, f.help})
	}
	b, err := json.Marshal(kept)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o600) // whoever reads half of it asks the server
	}
	if err != nil {
		return
	}
	others, err := filepath.Glob(filepath.Join(filepath.Dir(path), "complete-*.json"))
	if err != nil {
		return
	}
	for _, old := range others {
		if st, err := os.Stat(old); err == nil && c.p.now.Sub(st.ModTime()) > time.Hour {
			if err := os.Remove(old); err != nil {
				return
			}
		}
	}
}
