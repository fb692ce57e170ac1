package main

// gpuctl token list|create|revoke, and version.

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

func tokenCommands() []command {
	return []command{
		{words: "token list", short: "List tokens, without their secrets", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.tokenList }},
		{words: "token create", args: "NAME", short: "Make a token; its text is shown once", setup: tokenCreateSetup},
		{words: "token revoke", args: "TOKEN...", short: "Revoke tokens by number or name, at once", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.tokenRevoke }},
	}
}

func (p *printer) tokenColumns() []column[tokenView] {
	return []column[tokenView]{
		{name: "id", right: true, cell: func(t tokenView) string { return strconv.FormatInt(t.ID, 10) }},
		{name: "name", cell: func(t tokenView) string { return t.Name }},
		{name: "scope", cell: func(t tokenView) string { return t.Scope }},
		{name: "node", cell: func(t tokenView) string { return textOf(t.Node) }},
		{name: "created", cell: func(t tokenView) string { return p.ago(&t.CreatedMS) }},
		{name: "used", cell: func(t tokenView) string { return p.ago(t.LastUsedMS) }},
		{name: "expires", cell: func(t tokenView) string { return p.ago(t.ExpiresMS) }},
		{name: "revoked", cell: func(t tokenView) string { return p.ago(t.RevokedMS) }},
	}
}

func (c *cli) tokenList(ctx context.Context, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	l, err := getOne[list[tokenView]](ctx, cl, "/tokens", nil)
	if err != nil {
		return err
	}
	return printList(c.p, l, c.p.tokenColumns(), func(t tokenView) string { return t.Name })
}

func tokenCreateSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var scope, expires string
	fs.StringVar(&scope, "scope", scopeRead, strings.Join(tokenScopes, "|")+" (default "+scopeRead+")")
	fs.StringVar(&expires, "expires", "", "valid this long, like 30d (default: for ever)")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 1, 1, "NAME"); err != nil {
			return err
		}
		if !slices.Contains(tokenScopes, scope) {
			return newProblem(codeUsage, "--scope "+strings.Join(tokenScopes, "|"), "there is no scope %q", scope)
		}
		valid, err := flagSeconds("--expires", expires)
		if err != nil {
			return err
		}
		cl, err := c.connect()
		if err != nil {
			return err
		}
		t, err := cl.createToken(ctx, tokenRequest{Name: args[0], Scope: scope, Expires: valid})
		if err != nil {
			return err
		}
		if c.p.json() {
			return c.p.writeJSON(t)
		}
		if err := c.p.data(t.Token); err != nil {
			return err
		}
		c.p.sayf("gpuctl: token %d (%s, %s); it is not shown again", t.ID, t.Name, t.Scope)
		return nil
	}
}

func (c *cli) tokenRevoke(ctx context.Context, args []string) error {
	if err := argCount(args, 1, -1, "TOKEN"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	l, err := getOne[list[tokenView]](ctx, cl, "/tokens", nil)
	if err != nil {
		return err
	}
	var ids []int64
	for _, ref := range args { // all are found before one is revoked
		id, err := findToken(l.Items, ref)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for i, id := range ids {
		if err := cl.revokeToken(ctx, id); err != nil {
			return err
		}
		if !c.p.json() {
			c.p.sayf("gpuctl: token %s revoked", args[i])
		}
	}
	if !c.p.json() {
		return nil
	}
	if l, err = getOne[list[tokenView]](ctx, cl, "/tokens", nil); err != nil {
		return err
	}
	l.Items = slices.DeleteFunc(l.Items, func(t tokenView) bool { return !slices.Contains(ids, t.ID) })
	return printList(c.p, l, c.p.tokenColumns(), func(t tokenView) string { return t.Name })
}

// findToken finds a token that is not revoked, by number or whole name.
func findToken(tokens []tokenView, ref string) (int64, error) {
	var ids []int64
	for _, t := range tokens {
		if strconv.FormatInt(t.ID, 10) == ref {
			return t.ID, nil
		}
		if t.Name == ref && t.RevokedMS == nil {
			ids = append(ids, t.ID)
		}
	}
	switch len(ids) {
	case 0:
		return 0, newProblem(codeNotFound, "gpuctl token list", "there is no token %q", ref)
	case 1:
		return ids[0], nil
	}
	return 0, newProblem(codeAmbiguous, "give its number: gpuctl token list", "%d tokens are named %q", len(ids), ref)
}

func versionCommand() command {
	return command{words: "version", short: "Print the version; -v also the server's", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.version }}
}

func (c *cli) version(ctx context.Context, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	if c.p.json() {
		if err := c.p.writeJSON(map[string]string{"version": buildVersion()}); err != nil {
			return err
		}
	} else if err := c.p.data("gpuctl " + buildVersion()); err != nil {
		return err
	}
	if !c.global.verbose {
		return nil
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	v, err := cl.version(ctx)
	if err != nil {
		return err
	}
	return printOne(c.p, v, func(v versionView) string { return v.Version }, []field{
		{"server", v.Version}, {"sqlite", v.SQLite}, {"schema", strconv.Itoa(v.Schema)}, {"incarnation", v.Incarnation},
	})
}
