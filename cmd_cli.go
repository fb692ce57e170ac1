package main

// One call of the CLI: its streams, environment, global flags; parsing, running, ending.

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// runFunc is what a command does; args are the words behind its flags.
type runFunc func(ctx context.Context, args []string) error

// cli is one call of the program.
type cli struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	signals  chan os.Signal // SIGINT and SIGTERM; nil in tests that send none
	width    int            // of stdout when it is a terminal, else 0

	global globalFlags
	p      *printer
	flags  *pflag.FlagSet // of the command that runs
}

// globalFlags are taken by every command.
type globalFlags struct {
	server, tokenFile string
	output, colour    string
	columns           []string
	noHeaders         bool
	quiet, verbose    bool
	timeout           string
	help, version     bool
}

func newCLI(in io.Reader, out, err io.Writer, environ []string) *cli {
	c := &cli{in: in, out: out, err: err, environ: environ}
	c.width = terminalWidth(out)
	c.p = &printer{out: out, err: err, format: outTable, now: time.Now()}
	return c
}

// terminalWidth is the number of columns of the terminal behind w, 0 when it is not one.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if ws.Col == 0 { // a terminal that does not know its size
		return 80
	}
	return int(ws.Col)
}

// getenv reads the environment that the call was given.
func (c *cli) getenv(name string) string {
	for _, kv := range slices.Backward(c.environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// register adds the global flags to a set. Values that an earlier set got (flags before the command) stay as defaults.
func (g *globalFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&g.server, "server", g.server, "`URL` of the server, like http://127.0.0.1:8600")
	fs.StringVar(&g.tokenFile, "token-file", g.tokenFile, "`FILE` that holds the token, mode 0600")
	fs.StringVarP(&g.output, "output", "o", g.output, "output `FORMAT`: "+strings.Join(outFormats, "|"))
	fs.StringSliceVar(&g.columns, "columns", g.columns, "columns of a table, like id,name,state")
	fs.BoolVar(&g.noHeaders, "no-headers", g.noHeaders, "tables without the line of names")
	fs.BoolVarP(&g.quiet, "quiet", "q", g.quiet, "no hints; ids only")
	fs.BoolVarP(&g.verbose, "verbose", "v", g.verbose, "say more (server, agent: debug lines)")
	fs.StringVar(&g.colour, "color", g.colour, "`WHEN`: auto|always|never")
	fs.StringVar(&g.timeout, "timeout", g.timeout, "give up after this `TIME`, like 10m; exit code 124")
	fs.BoolVarP(&g.help, "help", "h", g.help, "help about this command")
}

// run carries one command line out and gives the exit code.
func (c *cli) run(ctx context.Context, args []string) int {
	err := c.dispatch(ctx, args)
	return c.p.fail(err)
}

func newFlagSet(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

func (c *cli) dispatch(ctx context.Context, args []string) error {
	c.global = globalFlags{output: outTable, colour: "auto"}
	if v := c.getenv("GPUCTL_OUTPUT"); v != "" {
		c.global.output = v
	}
	front := newFlagSet("gpuctl")
	front.SetInterspersed(false)
	c.global.register(front)
	front.BoolVar(&c.global.version, "version", false, "print the version")
	if err := front.Parse(args); err != nil {
		c.shapeErrors(args)
		return flagProblem(err, "", front)
	}
	args = front.Args()
	table := commandTable()
	switch {
	case c.global.version:
		args = append([]string{"version"}, args...)
	case len(args) == 0 && c.global.help:
		return c.help(ctx, nil)
	case len(args) == 0:
		if err := helpAll(c.err, table, helpHeading); err != nil {
			return err
		}
		return exitStatus(2)
	}
	cmd, rest, group, err := findCommand(table, args)
	if err != nil {
		if serr := c.settle(outFormats); serr != nil { // -o json before the command shapes the error too
			return serr
		}
		c.shapeErrors(args)
		return err
	}
	if group != nil {
		return helpAll(c.out, group, "Usage: gpuctl "+args[0]+" VERB ...\n\n")
	}
	fs := newFlagSet(cmd.words)
	fs.SetInterspersed(!cmd.wordsEnd)
	do := cmd.setup(c, fs)
	own := newFlagSet(cmd.words)
	fs.VisitAll(own.AddFlag)
	c.global.register(fs)
	c.flags = fs
	if cmd.raw {
		rest = append([]string{"--"}, rest...)
	}
	perr := fs.Parse(rest)
	if err := c.settle(cmd.formats()); err != nil {
		return err
	}
	if perr != nil {
		c.shapeErrors(rest)
		perr = flagProblem(perr, cmd.words, fs)
		if cmd.exitsAsJob {
			return asOurs(perr)
		}
		return perr
	}
	if c.global.help {
		return helpOne(c.out, *cmd, own)
	}
	ctx, stop, err := c.context(ctx, cmd)
	if err != nil {
		return err
	}
	defer stop()
	err = do(ctx, fs.Args())
	if p, ok := asProblem(err); ok && p.Code == codeUsage && p.Hint == "" {
		p.Hint = "gpuctl help " + cmd.words
	}
	return err
}

// shapeErrors looks for -o json in words that could not be parsed to their end: the error is then JSON too, wherever the flag stands.
func (c *cli) shapeErrors(words []string) {
	for i, w := range words {
		format := ""
		switch {
		case w == "--":
			return
		case (w == "-o" || w == "--output") && i+1 < len(words):
			format = words[i+1]
		case strings.HasPrefix(w, "--output="):
			format = strings.TrimPrefix(w, "--output=")
		case strings.HasPrefix(w, "-o"):
			format = strings.TrimPrefix(strings.TrimPrefix(w, "-o"), "=")
		}
		if format == outJSON || format == outNDJSON {
			c.p.format = format
		}
	}
}

// settle checks the global flags and sets the printer by them.
func (c *cli) settle(formats []string) error {
	g := c.global
	if !slices.Contains(formats, g.output) {
		return newProblem(codeUsage, "-o "+strings.Join(formats, "|"), "there is no output format %q", g.output)
	}
	c.p.format, c.p.columns, c.p.noHeaders, c.p.quiet, c.p.width = g.output, g.columns, g.noHeaders, g.quiet, c.width
	switch g.colour {
	case "always":
		c.p.colour = true
	case "never":
		c.p.colour = false
	case "auto":
		force := c.getenv("CLICOLOR_FORCE")
		c.p.colour = c.getenv("NO_COLOR") == "" && (c.width > 0 && c.getenv("TERM") != "dumb" || force != "" && force != "0")
	default:
		return newProblem(codeUsage, "--color auto|always|never", "--color does not know %q", g.colour)
	}
	return nil
}

// context ends at --timeout and, unless the command reads the signals itself, at the first signal; a second one ends the process.
func (c *cli) context(ctx context.Context, cmd *command) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	if c.global.timeout != "" {
		d, err := parseDuration(c.global.timeout)
		if err != nil || d <= 0 {
			stop()
			return nil, nil, newProblem(codeUsage, "--timeout 10m", "--timeout: %q is not a length of time", c.global.timeout)
		}
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, d, newProblem(codeTimeout, "", "not done within %s", formatDuration(d)))
		stop = func() { end(); cancel(nil) }
	}
	if !cmd.ownSignals && c.signals != nil {
		go func() {
			select {
			case <-c.signals:
				cancel(newProblem(codeInterrupted, "", "interrupted"))
			case <-ctx.Done():
				return
			}
			<-c.signals
			os.Exit(exitCode(newProblem(codeInterrupted, "", "interrupted")))
		}()
	}
	return ctx, stop, nil
}

// interrupted is why a command's context ended: the timeout, a signal, or nil when it did not end.
func interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if p, ok := asProblem(context.Cause(ctx)); ok {
		return p
	}
	return newProblem(codeInterrupted, "", "interrupted")
}

// argCount refuses another number of words than a command takes; most < 0 is without limit.
func argCount(args []string, least, most int, what string) error {
	if len(args) < least {
		return newProblem(codeUsage, "", "%s is missing", what)
	}
	if most >= 0 && len(args) > most {
		return newProblem(codeUsage, "quote it when it has blanks", "unexpected %q", args[most])
	}
	if i := slices.Index(args, ""); i >= 0 {
		return newProblem(codeUsage, "a variable in the script that is not set?", "word %d is empty", i+1)
	}
	return nil
}

// usageOnly is a command that cannot be called like this.
func usageOnly(text string) runFunc {
	return func(context.Context, []string) error { return newProblem(codeUsage, "gpuctl help", "%s", text) }
}

const helpHeading = `gpuctl runs your training on your own GPUs and keeps an eye on it.

  gpuctl up                      start server and agent on this machine
  gpuctl go -- python train.py   queue a command, follow its log, get its exit code

Usage: gpuctl COMMAND ...

`

// help is the help command.
func (c *cli) help(ctx context.Context, args []string) error {
	table := commandTable()
	if len(args) == 0 {
		return helpAll(c.out, table, helpHeading)
	}
	if len(args) == 1 && args[0] == "flags" {
		fs := newFlagSet("flags")
		c.global = globalFlags{output: outTable, colour: "auto"}
		c.global.register(fs)
		_, err := io.WriteString(c.out, "Flags of every command:\n"+flagUsages(fs))
		return err
	}
	cmd, _, group, err := findCommand(table, args)
	if err != nil {
		return err
	}
	if group != nil {
		return helpAll(c.out, group, "Usage: gpuctl "+args[0]+" VERB ...\n\n")
	}
	fs := newFlagSet(cmd.words)
	cmd.setup(c, fs)
	return helpOne(c.out, *cmd, fs)
}
