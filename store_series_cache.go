package main

// Curves that were read, kept in memory for the next look. It knows no points and no database.

import (
	lru "container/list" // list is a type of api.go
	"sync"
)

const (
	seriesCacheBytes = 32 << 20 // all of the cache; a curve of 1,000 buckets takes 200 KB
	seriesJSONBytes  = 110      // about what a bucket takes as JSON
)

// seriesCacheKey says what was read: series, span, and to how many points it was thinned.
type seriesCacheKey struct {
	ids  string
	span seriesSpan
	most int
}

// seriesCached is a curve that was read; nothing of it changes any more.
type seriesCached struct {
	key     seriesCacheKey
	sampler *seriesSampler
	seq     int64 // points of the series that it has seen
	kept    bool  // it is in the cache, or was: worth rendering once for all
	bytes   int

	once sync.Once
	json []byte
}

// rendered gives what render makes of the curve, made once.
func (k *seriesCached) rendered(render func(*seriesSampler) []byte) []byte {
	k.once.Do(func() { k.json = render(k.sampler) })
	return k.json
}

// seriesCache keeps curves that were read, the ones used last. Points of a series are only ever added, so what was made of the first so
// many stays true; seq says how many. The zero value is empty and ready.
type seriesCache struct {
	mu    sync.Mutex
	known map[seriesCacheKey]*lru.Element // of *seriesCached
	used  lru.List                        // newest first
	bytes int
}

// get gives the curve that is kept, nil = none.
func (c *seriesCache) get(key seriesCacheKey) *seriesCached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[key]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*seriesCached)
}

// put gives the curve that a sampler made, and keeps it when it is worth it: what is larger than an eighth of the cache is not.
func (c *seriesCache) put(key seriesCacheKey, s *seriesSampler, seq int64) *seriesCached {
	k := &seriesCached{key: key, sampler: s, seq: seq}
	k.bytes = s.bytes() + len(key.ids) + seriesJSONBytes*(s.points.len()+len(s.whole))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[key]; e != nil {
		if e.Value.(*seriesCached).seq >= seq {
			return k
		}
		c.drop(e)
	}
	if k.bytes > seriesCacheBytes/8 {
		return k
	}
	if c.known == nil {
		c.known = map[seriesCacheKey]*lru.Element{}
	}
	k.kept = true
	c.known[key] = c.used.PushFront(k)
	for c.bytes += k.bytes; c.bytes > seriesCacheBytes; {
		c.drop(c.used.Back())
	}
	return k
}

func (c *seriesCache) drop(e *lru.Element) {
	k := c.used.Remove(e).(*seriesCached)
	delete(c.known, k.key)
	c.bytes -= k.bytes
}
