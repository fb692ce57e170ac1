package main

// What fits as the word that is being typed: commands, flags, their values, ids. Everything comes from the command table; ids are asked of the
// server (cmd_complete_ids.go). It says nothing where it knows nothing, behind "--", and about errors.

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// candidate is one word that fits, with a word of help.
type candidate struct{ value, help string }

// complete prints value<TAB>help for the last of the words, one a line.
func (c *cli) complete(ctx context.Context, words []string) error {
	if len(words) == 0 {
		return nil
	}
	typed, found := c.fitting(ctx, words)
	var b strings.Builder
	for _, f := range found {
		if strings.HasPrefix(f.value, typed) && f.value != "" && plainText(f.value) == f.value {
			fmt.Fprintf(&b, "%s\t%s\n", f.value, strings.ReplaceAll(plainText(f.help), "\t", " "))
		}
	}
	_, err := io.WriteString(c.out, b.String())
	return err
}

// fitting gives what may stand in the place of the last word, and how that word begins.
func (c *cli) fitting(ctx context.Context, words []string) (typed string, found []candidate) {
	words, typed = words[:len(words)-1], words[len(words)-1]
	table := commandTable()
	global := newFlagSet("global")
	c.global = globalFlags{output: outTable, colour: "auto"}
	c.global.register(global)

	rest, open := passFlags(global, words, true)
	if open != nil {
		return c.flagValues(ctx, command{}, open, typed, "")
	}
	cmd, args, noun := deepest(table, rest)
	if cmd == nil {
		if strings.HasPrefix(typed, "-") {
			return typed, flagNames(global)
		}
		return typed, nextWords(table, noun)
	}
	if cmd.raw {
		return typed, nil
	}
	fs := newFlagSet(cmd.words)
	cmd.setup(c, fs)
	fs.AddFlagSet(global)
	if slices.Contains(args, "--") {
		return typed, nil
	}
	given, open := passFlags(fs, args, cmd.wordsEnd)
	switch name, value, ok := strings.Cut(typed, "="); {
	case open != nil:
		return c.flagValues(ctx, *cmd, open, strings.TrimPrefix(typed, "="), "")
	case cmd.wordsEnd && len(given) > 0: // somebody else's command line
		return typed, nil
	case ok && strings.HasPrefix(name, "--"): // one word for zsh and fish, three for bash
		if f := fs.Lookup(name[2:]); f != nil {
			_, found = c.flagValues(ctx, *cmd, f, value, name+"=")
		}
		return typed, found
	case strings.HasPrefix(typed, "-"):
		return typed, flagNames(fs)
	}
	found = c.argValues(ctx, *cmd, given)
	if two := nextWords(table, cmd.words); len(given) == 0 && !strings.Contains(cmd.words, " ") { // agent, and agent join
		found = append(two, found...)
	}
	return typed, found
}

// deepest finds the command that words lead to, longest first, and what follows it. Without one, noun is the group that they lead to.
func deepest(table []command, words []string) (cmd *command, args []string, noun string) {
	for n := min(2, len(words)); n > 0; n-- {
		name := strings.Join(words[:n], " ")
		if i := slices.IndexFunc(table, func(c command) bool { return c.words == name }); i >= 0 {
			return &table[i], words[n:], ""
		}
	}
	return nil, nil, strings.Join(words, " ")
}

// nextWords are the words that may follow noun; "" = the first ones.
func nextWords(table []command, noun string) []candidate {
	var found []candidate
	for _, c := range table {
		first, verb, two := strings.Cut(c.words, " ")
		switch {
		case c.hidden:
		case noun != "" && two && first == noun:
			found = append(found, candidate{verb, c.short})
		case noun != "" || slices.ContainsFunc(found, func(f candidate) bool { return f.value == first }):
		case two:
			var verbs []string
			for _, other := range table {
				if v, ok := strings.CutPrefix(other.words, first+" "); ok && !other.hidden {
					verbs = append(verbs, v)
				}
			}
			found = append(found, candidate{first, strings.Join(verbs, ", ")})
		default:
			found = append(found, candidate{c.words, c.short})
		}
	}
	return found
}

// passFlags leaves the flags out of words. Open is a flag at the end that waits for its value. With untilWord it ends at the first word that
// is none: what follows belongs to that. bash gives --flag=value as three words.
func passFlags(fs *pflag.FlagSet, words []string, untilWord bool) (rest []string, open *pflag.Flag) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" || len(w) < 2 || w[0] != '-' {
			if untilWord {
				return append(rest, words[i:]...), nil
			}
			rest = append(rest, w)
			continue
		}
		var f *pflag.Flag
		name, _, hasValue := strings.Cut(strings.TrimPrefix(w, "--"), "=")
		if strings.HasPrefix(w, "--") {
			f = fs.Lookup(name)
		} else { // -qo json, -ojson
			for j := 1; j < len(w) && f == nil; j++ {
				if f = fs.ShorthandLookup(w[j : j+1]); f != nil && f.NoOptDefVal != "" && j < len(w)-1 {
					f = nil
				} else {
					hasValue = j < len(w)-1
				}
			}
		}
		if f == nil || hasValue || f.NoOptDefVal != "" {
			continue
		}
		if i+1 < len(words) && words[i+1] == "=" {
			i++
		}
		if i++; i >= len(words) {
			return rest, f
		}
	}
	return rest, nil
}

func flagNames(fs *pflag.FlagSet) []candidate {
	var found []candidate
	fs.VisitAll(func(f *pflag.Flag) {
		_, text := pflag.UnquoteUsage(f)
		if !f.Hidden {
			found = append(found, candidate{"--" + f.Name, text})
		}
	})
	return found
}

// flagValues are the values that a flag can have; each is given with before in front of it.
func (c *cli) flagValues(ctx context.Context, cmd command, f *pflag.Flag, typed, before string) (string, []candidate) {
	var words []string
	var found []candidate
	switch f.Name {
	case "output":
		words = cmd.formats()
	case "color":
		words = []string{"auto", "always", "never"}
	case "state":
		switch noun, _, _ := strings.Cut(cmd.words, " "); noun {
		case "job":
			words = jobStates
		case "run":
			words = runStates
		case "ckpt":
			words = []string{"COMPLETE", "INCOMPLETE", "OVERWRITTEN", "GONE"}
		}
	case "x":
		words = []string{axisStep, axisWall, axisRelative}
	case "attempts":
		words = []string{attemptsRun, attemptsTrained, attemptsAll}
	case "scope":
		words = tokenScopes
	case "severity":
		words = []string{sevInfo, sevNotice, sevWarning, sevCritical}
	case "node":
		found = c.ids(ctx, "NODE")
	case "job":
		found = c.ids(ctx, "JOB")
	case "run":
		found = c.ids(ctx, "RUN")
	}
	for _, w := range words {
		found = append(found, candidate{value: w})
	}
	for i := range found {
		found[i].value = before + found[i].value
	}
	return typed, found
}

// argValues are what may stand as the next argument, by the words of the usage line: JOB, RUN|JOB, JOB..., NODE, [NAME...], SHELL.
func (c *cli) argValues(ctx context.Context, cmd command, given []string) []candidate {
	if cmd.words == "help" {
		return nextWords(commandTable(), strings.Join(given, " "))
	}
	kinds := strings.Fields(cmd.args)
	at := len(given)
	if len(kinds) == 0 {
		return nil
	}
	if last := len(kinds) - 1; at > last {
		if at = last; !strings.Contains(kinds[last], "...") {
			return nil
		}
	}
	var found []candidate
	for kind := range strings.SplitSeq(strings.Trim(kinds[at], "[]."), "|") {
		switch kind {
		case "JOB", "RUN", "NODE":
			found = append(found, c.ids(ctx, kind)...)
		case "NAME":
			if cmd.words == "run metrics" {
				found = append(found, c.metricNames(ctx, given[0])...)
			}
		case "SHELL":
			for _, sh := range []string{"bash", "zsh", "fish"} {
				found = append(found, candidate{sh, ""})
			}
		}
	}
	return slices.DeleteFunc(found, func(f candidate) bool { return slices.Contains(given, f.value) })
}
