package main

// Query parameters and waits: what every list and every long-poll has in common. A parameter that a route does not know is refused, as a
// field would be: a filter with a typing error would otherwise answer everything.

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	listDefault = 50
	listMost    = 500

	// waitRelook is how long a lost ring may cost: rows are looked at again at least this often.
	waitRelook = 3 * time.Second
)

// queryArgs reads the parameters of one request and keeps the first error.
type queryArgs struct {
	v   url.Values
	err error
}

// queryOf takes the parameters of r; names are those that the route knows, one that ends in ... may be given more than once.
func queryOf(r *http.Request, names ...string) *queryArgs {
	v, err := url.ParseQuery(r.URL.RawQuery)
	q := &queryArgs{v: v}
	if err != nil {
		q.refuse("escape it as in ?name=a%20b", "the query is not understood")
	}
	for name, values := range v {
		switch {
		case slices.Contains(names, name+"..."):
		case !slices.Contains(names, name) && len(names) == 0:
			q.refuse("leave it out", "unknown parameter %q", name)
		case !slices.Contains(names, name):
			q.refuse("known parameters: "+strings.Join(names, ", "), "unknown parameter %q", name)
		case len(values) > 1:
			q.refuse("give it once", "parameter %s is given %d times", name, len(values))
		}
	}
	return q
}

func (q *queryArgs) refuse(hint, detail string, args ...any) {
	if q.err == nil {
		q.err = newProblem(codeUsage, hint, detail, args...)
	}
}

func (q *queryArgs) text(name string) string { return q.v.Get(name) }

// number reads a whole number of at least 0; def when it is left out.
func (q *queryArgs) number(name string, def, most int64) int64 {
	text := q.v.Get(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		q.refuse("give a whole number", "%s is a whole number from 0 to %d, not %q", name, most, text)
		return def
	}
	return n
}

// signed reads a whole number; nil when it is left out.
func (q *queryArgs) signed(name string) *int64 {
	text := q.v.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.refuse("give a whole number", "%s is a whole number, not %q", name, text)
		return nil
	}
	return &n
}

// word reads one word of a closed set; the first of it when it is left out.
func (q *queryArgs) word(name string, known ...string) string {
	text := q.v.Get(name)
	if text == "" {
		return known[0]
	}
	if !slices.Contains(known, text) {
		q.refuse("known: "+strings.Join(known, ", "), "%s has no %q", name, text)
	}
	return text
}

// limit reads how many items a page has, at least one.
func (q *queryArgs) limit(def, most int64) int64 {
	n := q.number("limit", def, most)
	if n == 0 {
		q.refuse(fmt.Sprintf("at most %d", most), "limit is 0")
	}
	return n
}

// id reads an id to page from; nil when it is left out.
func (q *queryArgs) id(name string) *int64 {
	if q.v.Get(name) == "" {
		return nil
	}
	n := q.number(name, 0, 1<<62)
	return &n
}

// words reads a comma-separated list of words of a closed set, in the set's own spelling.
func (q *queryArgs) words(name string, known []string) []string {
	var out []string
	for w := range strings.SplitSeq(q.v.Get(name), ",") {
		if w == "" {
			continue
		}
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, w) })
		if i < 0 {
			q.refuse("known: "+strings.Join(known, ", "), "%s has no %q", name, w)
			return nil
		}
		out = append(out, known[i])
	}
	return out
}

// wait reads wait=0..25, seconds.
func (q *queryArgs) wait() time.Duration {
	text := q.v.Get("wait")
	if text == "" {
		return 0
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s >= 0 && s <= pollWaitMaxSeconds) {
		q.refuse("repeat the request to wait longer", "wait is a number of seconds from 0 to %d, not %q", pollWaitMaxSeconds, text)
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// listPage is where a list goes on. With after: ids above it, oldest first; else ids below before (nil = from the newest), newest first.
type listPage struct {
	after, before *int64
	limit         int64
}

func (q *queryArgs) page() listPage {
	p := listPage{after: q.id("after"), before: q.id("before"), limit: q.limit(listDefault, listMost)}
	if p.after != nil && p.before != nil {
		q.refuse("give one of them", "after and before are given together")
	}
	return p
}

// longPoll calls look until it is done, the wait is over, the client is gone or the server closes. The bells of topics are taken before each
// look, so that nothing that happens after it is missed; when a look changed what topics answers it looks again at once.
func (s *server) longPoll(r *http.Request, wait time.Duration, topics func() []string, look func() (done bool, err error)) error {
	end := time.Now().Add(wait)
	for {
		names := topics()
		var bells [2]<-chan struct{} // a nil channel never rings
		for i, name := range names {
			bells[i] = s.hub.listen(name)
		}
		done, err := look()
		left := time.Until(end)
		if err != nil || done || left <= 0 || r.Context().Err() != nil {
			return err
		}
		if !slices.Equal(names, topics()) {
			continue
		}
		t := time.NewTimer(min(left, waitRelook))
		select {
		case <-t.C:
		case <-bells[0]:
		case <-bells[1]:
		case <-s.stopping:
			t.Stop()
			return nil // the last look is the answer
		case <-r.Context().Done():
			t.Stop()
			return nil
		}
		t.Stop()
	}
}
