package main

// gpuctl ui: a link to the page that logs in once; on a desktop the browser is opened with it.

import (
	"context"
	"net/url"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
)

func uiCommand() command {
	return command{
		words: "ui", short: "Open the web page: a link that logs in once",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var printOnly bool
			fs.BoolVar(&printOnly, "print", false, "print the link, open nothing")
			return func(ctx context.Context, args []string) error { return c.ui(ctx, printOnly, args) }
		},
	}
}

func (c *cli) ui(ctx context.Context, printOnly bool, args []string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	link, err := cl.loginLink(ctx)
	if err != nil {
		return err
	}
	if c.p.json() {
		return c.p.writeJSON(link)
	}
	if err := c.p.data(link.URLs[0]); err != nil { // one line: a script takes it as it is
		return err
	}
	for _, u := range link.URLs[1:] {
		c.p.sayf("gpuctl: or %s", u)
	}
	c.p.sayf("gpuctl: the link works once, for 10 minutes; the page stays logged in for 30 days")
	if way := c.tunnel(link.URLs[0]); way != "" {
		c.p.sayf("gpuctl: from your own computer: %s, then open the link there", way)
	} else if !printOnly {
		c.openBrowser(link.URLs[0])
	}
	return nil
}

// tunnel is the ssh command that makes an address of loopback reachable for whoever is logged in here by ssh; "" when there is no need.
func (c *cli) tunnel(link string) string {
	u, err := url.Parse(link)
	words := strings.Fields(c.getenv("SSH_CONNECTION")) // client address, client port, server address, server port
	if err != nil || len(words) != 4 || !isLoopbackHost(u.Hostname()) {
		return ""
	}
	host := words[2]
	if user := c.getenv("USER"); user != "" {
		host = user + "@" + host
	}
	if words[3] != "22" {
		host = "-p " + words[3] + " " + host
	}
	return "ssh -L " + u.Port() + ":" + u.Host + " " + host
}

// openBrowser starts the desktop's browser and does not wait for it. Other accounts may see the link in the list of processes meanwhile;
// it works once, so whoever comes second notices.
func (c *cli) openBrowser(link string) {
	opener := "xdg-open"
	switch {
	case c.width == 0:
		return // not a terminal: a script reads the link
	case runtime.GOOS == "darwin":
		opener = "open"
	case c.getenv("DISPLAY") == "" && c.getenv("WAYLAND_DISPLAY") == "":
		return
	}
	cmd := exec.Command(opener, link)
	cmd.Env = c.environ
	if err := cmd.Start(); err != nil {
		c.p.sayf("gpuctl: no browser was opened: %v", err)
	}
}
