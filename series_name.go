package main

// The name under which a series is shown and asked for. It is made from what all series of the run are called, and only as long as it must
// be: two files in the folders train and validation that carry the tag epoch_loss are train/epoch_loss and validation/epoch_loss.

import (
	"slices"
	"strconv"
	"strings"
)

// seriesKey is what tells one series of a run from the others.
type seriesKey struct {
	source, folder, tag string
}

// seriesIsSplit reports whether the last part of a folder says which part of the data its curves are about.
func seriesIsSplit(part string) bool {
	return slices.Contains([]string{"train", "validation", "val", "test", "eval"}, strings.ToLower(part))
}

// seriesFolderParts are the parts of a folder, outermost first.
func seriesFolderParts(folder string) []string {
	return slices.DeleteFunc(strings.Split(folder, "/"), func(p string) bool { return p == "" || p == "." })
}

// seriesNames gives the shown name of each series of a run; all are different. It is the tag; with the last part of its folder before it
// when two folders carry the tag or that part names a split (train, validation, val, test, eval); with more parts while names are still the
// same; " (sdk)" behind it when only the source tells it from a TensorBoard series; " #2", in the order given, when nothing does.
func seriesNames(keys []seriesKey) []string {
	type carried struct{ source, tag string }
	folders := map[carried]string{}
	twice := map[carried]bool{}
	for _, k := range keys {
		c := carried{k.source, k.tag}
		if f, seen := folders[c]; seen && f != k.folder {
			twice[c] = true
		}
		folders[c] = k.folder
	}
	names, parts, used := make([]string, len(keys)), make([][]string, len(keys)), make([]int, len(keys))
	for i, k := range keys {
		parts[i] = seriesFolderParts(k.folder)
		if n := len(parts[i]); n > 0 && (twice[carried{k.source, k.tag}] || seriesIsSplit(parts[i][n-1])) {
			used[i] = 1
		}
	}
	for grown := true; grown; {
		grown = false
		for i, k := range keys {
			names[i] = strings.Join(append(slices.Clone(parts[i][len(parts[i])-used[i]:]), k.tag), "/")
		}
		for _, same := range seriesClashes(keys, names, true) {
			for _, i := range same {
				if used[i] < len(parts[i]) {
					used[i]++
					grown = true
				}
			}
		}
	}
	for _, same := range seriesClashes(keys, names, false) {
		for _, i := range same {
			if keys[i].source == "sdk" {
				names[i] += " (sdk)"
			}
		}
	}
	for again := seriesClashes(keys, names, false); len(again) > 0; again = seriesClashes(keys, names, false) {
		for _, same := range again {
			for n, i := range same[1:] {
				names[i] += " #" + strconv.Itoa(n+2)
			}
		}
	}
	return names
}

// seriesClashes lists the series that have one name, group by group in the order given; with apart only those of one source are compared.
func seriesClashes(keys []seriesKey, names []string, apart bool) [][]int {
	groups := map[string][]int{}
	var order []string
	for i, name := range names {
		if apart {
			name = keys[i].source + "\x00" + name
		}
		if groups[name] == nil {
			order = append(order, name)
		}
		groups[name] = append(groups[name], i)
	}
	var out [][]int
	for _, name := range order {
		if len(groups[name]) > 1 {
			out = append(out, groups[name])
		}
	}
	return out
}

// seriesGlob reports whether a name fits a pattern: * stands for any characters, / too, ? for one, and \ takes the one after it as it is.
// Brackets are brackets: names of metrics have them.
func seriesGlob(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, mark := -1, 0 // where the last * is, and what it was tried to end at
	i, k := 0, 0
	for k < len(n) {
		if i < len(p) && p[i] == '*' {
			star, mark = i, k
			i++
			continue
		}
		if w := seriesGlobOne(p[i:], n[k]); w > 0 {
			i, k = i+w, k+1
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		i, k = star+1, mark
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// seriesGlobOne gives how much of the pattern's begin stands for r, 0 = it does not.
func seriesGlobOne(p []rune, r rune) int {
	switch {
	case len(p) == 0:
		return 0
	case p[0] == '\\' && len(p) > 1:
		if p[1] == r {
			return 2
		}
		return 0
	case p[0] == '?' || p[0] == r:
		return 1
	}
	return 0
}
