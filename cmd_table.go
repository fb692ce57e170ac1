package main

// The command table: which words lead to which command, its help, its flags. Commands themselves are in cmd_<noun>.go.

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// command is one row. Setup registers the command's own flags and gives what runs once they are parsed.
type command struct {
	words      string // "job submit"
	args       string // as the usage line shows them
	short      string // one line
	long       string // more, below the usage line
	hidden     bool
	wordsEnd   bool // flags end at the first word that is not one: what follows is somebody else's command line
	ownSignals bool // the command reads c.signals itself
	exitsAsJob bool // exit codes are the job's, ours is 125
	csv        bool // takes -o csv
	raw        bool // its words are taken as they are, flags too
	setup      func(c *cli, fs *pflag.FlagSet) runFunc
}

// formats are the output formats that the command takes.
func (c command) formats() []string {
	if c.csv {
		return append(slices.Clone(outFormats), outCSV)
	}
	return outFormats
}

// commandTable lists all commands in the order of the help text.
func commandTable() []command {
	return slices.Concat(
		[]command{demoCommand(), upCommand(), goCommand(), statusCommand(), topCommand(), logsCommand(), uiCommand()},
		jobCommands(), runCommands(), ckptCommands(), nodeCommands(), []command{nodeJoinCommand()}, eventCommands(), tokenCommands(),
		[]command{serverCommand(), agentCommand(), agentJoinCommand(), superviseCommand(), completionCommand(), completeCommand(), versionCommand(), helpCommand()},
	)
}

// argsByName are the arguments, led by the sub-command when the binary was called by its name.
func argsByName(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	for _, sub := range []string{"server", "agent"} {
		if filepath.Base(argv[0]) == "gpuctl-"+sub {
			return append([]string{sub}, argv[1:]...)
		}
	}
	return argv[1:]
}

// findCommand looks the longest match up. When the words only name a group, group holds its commands.
func findCommand(table []command, args []string) (found *command, rest []string, group []command, err error) {
	for n := min(2, len(args)); n > 0; n-- {
		words := strings.Join(args[:n], " ")
		if i := slices.IndexFunc(table, func(c command) bool { return c.words == words }); i >= 0 {
			return &table[i], args[n:], nil, nil
		}
	}
	for _, c := range table {
		if strings.HasPrefix(c.words, args[0]+" ") {
			group = append(group, c)
		}
	}
	if len(group) > 0 && (len(args) == 1 || strings.HasPrefix(args[1], "-")) {
		return nil, nil, group, nil
	}
	var names []string
	for _, c := range table {
		if noun, _, ok := strings.Cut(c.words, " "); !c.hidden {
			names = append(names, c.words)
			if ok {
				names = append(names, noun)
			}
		}
	}
	tried, hint := args[0], "gpuctl help"
	if len(group) > 0 {
		tried, hint = strings.Join(args[:2], " "), "gpuctl help "+args[0]
	}
	for n := min(2, len(args)); n > 0; n-- { // of "jbo list" rather "job list" than "job"
		if near := nearest(strings.Join(args[:n], " "), names); near != "" {
			hint = "did you mean: gpuctl " + near
			break
		}
	}
	return nil, nil, nil, newProblem(codeUsage, hint, "there is no command %q", tried)
}

// nearest finds the name at the smallest edit distance, "" when none is close: at most a third of its letters differ, one at least.
func nearest(word string, names []string) string {
	best, least := "", len(word)+1
	for _, n := range names {
		if d := editDistance(word, n); d < least && d <= max(1, len(n)/3) {
			best, least = n, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours that make b of a (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// flagProblem turns what pflag says into a usage problem with a hint.
func flagProblem(err error, words string, fs *pflag.FlagSet) error {
	hint := strings.TrimSpace("gpuctl help " + words)
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok && len(missing.GetSpecifiedName()) > 1 {
		var names []string
		fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := nearest(missing.GetSpecifiedName(), names); near != "" {
			hint = "did you mean: --" + near
		}
	}
	return newProblem(codeUsage, hint, "%v", err)
}

// helpAll writes the list of commands.
func helpAll(w io.Writer, table []command, heading string) error {
	var b strings.Builder
	b.WriteString(heading)
	width := 0
	for _, c := range table {
		width = max(width, len(c.words))
	}
	for _, c := range table {
		if !c.hidden {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, c.words, c.short)
		}
	}
	b.WriteString("\nMore about one: gpuctl help COMMAND, or COMMAND --help. Flags of every command: gpuctl help flags\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// helpOne writes the help of one command; own holds its flags without the global ones.
func helpOne(w io.Writer, c command, own *pflag.FlagSet) error {
	text := "Usage: gpuctl " + c.words
	if own.HasFlags() {
		text += " [flags]"
	}
	if c.args != "" {
		text += " " + c.args
	}
	text += "\n\n" + c.short + ".\n"
	if c.long != "" {
		text += "\n" + strings.TrimSpace(c.long) + "\n"
	}
	if own.HasAvailableFlags() {
		text += "\nFlags:\n" + flagUsages(own)
	}
	_, err := io.WriteString(w, text+"\nFlags of every command: gpuctl help flags\n")
	return err
}

func superviseCommand() command {
	return command{
		words: "supervise", args: "DIR", short: "Internal: the supervisor of one run", hidden: true,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			return usageOnly("supervise is started by the agent, with the folder of a run")
		},
	}
}

func helpCommand() command {
	return command{
		words: "help", args: "[COMMAND | flags]", short: "Help about a command",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.help },
	}
}

// flagUsages lists flags one a line. A word in back quotes in a flag's text names its value.
func flagUsages(fs *pflag.FlagSet) string {
	kinds := map[string]string{"string": "TEXT", "stringArray": "TEXT", "strings": "A,B", "int": "N", "bool": ""}
	var names, texts []string
	width := 0
	fs.VisitAll(func(f *pflag.Flag) {
		kind, text := pflag.UnquoteUsage(f)
		if k, ok := kinds[kind]; ok {
			kind = k
		}
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if kind != "" && f.Value.Type() != "bool" {
			name += " " + kind
		}
		if f.Value.Type() == "int" && f.DefValue != "0" {
			text += " (default " + f.DefValue + ")"
		}
		names, texts, width = append(names, name), append(texts, text), max(width, len(name))
	})
	var b strings.Builder
	for i, name := range names {
		fmt.Fprintf(&b, "%-*s  %s\n", width, name, texts[i])
	}
	return b.String()
}
