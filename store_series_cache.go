package main

// Curves that were read, kept in memory for the next look. It knows no points and no database.

import (
	lru "container/list" // list is a type of api.go
	"sync"
)

// seriesCacheBytes is how much the cache holds; a curve of 1,000 buckets takes 60 KB.
const seriesCacheBytes = 32 << 20

// seriesCacheKey says what was read: series, span, and to how many points it was thinned.
type seriesCacheKey struct {
	ids  string
	span seriesSpan
	most int
}

type seriesCached struct {
	key     seriesCacheKey
	sampler *seriesSampler // not changed any more
	seq     int64          // points of the series that it has seen
	bytes   int
}

// seriesCache keeps curves that were read, the ones used last. Points of a series are only ever added, so what was made of the first so
// many stays true; seq says how many. The zero value is empty and ready.
type seriesCache struct {
	mu    sync.Mutex
	known map[seriesCacheKey]*lru.Element // of *seriesCached
	used  lru.List                        // newest first
	bytes int
}

func (c *seriesCache) get(key seriesCacheKey) (s *seriesSampler, seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[key]
	if e == nil {
		return nil, 0
	}
	c.used.MoveToFront(e)
	kept := e.Value.(*seriesCached)
	return kept.sampler, kept.seq
}

// put keeps a curve; what is larger than a quarter of the cache is not worth it.
func (c *seriesCache) put(key seriesCacheKey, s *seriesSampler, seq int64) {
	kept := &seriesCached{key: key, sampler: s, seq: seq, bytes: s.bytes() + len(key.ids)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[key]; e != nil {
		if old := e.Value.(*seriesCached); old.seq >= seq {
			return
		}
		c.drop(e)
	}
	if kept.bytes > seriesCacheBytes/4 {
		return
	}
	if c.known == nil {
		c.known = map[seriesCacheKey]*lru.Element{}
	}
	c.known[key] = c.used.PushFront(kept)
	for c.bytes += kept.bytes; c.bytes > seriesCacheBytes; {
		c.drop(c.used.Back())
	}
}

func (c *seriesCache) drop(e *lru.Element) {
	kept := c.used.Remove(e).(*seriesCached)
	delete(c.known, kept.key)
	c.bytes -= kept.bytes
}
