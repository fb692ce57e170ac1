package main

// Regular expressions are compiled when first used: the program starts once beside every run, as its supervisor, and needs none of them there.

import (
	"regexp"
	"sync"
)

// lazyRegexp compiles a constant expression at its first use.
func lazyRegexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
