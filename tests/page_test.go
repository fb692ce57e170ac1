package tests

// The first page in a real browser: logging in by link, the list, a run with its following log.

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// hostile is a name, and a line of a log, that would be markup where text is not kept text.
const hostile = `<img src=x onerror=alert(1)>`

// pageBrowser starts a browser, or skips where there is none; CI has one.
func pageBrowser(t *testing.T, o *outcome) *browser {
	t.Helper()
	path := findChromium()
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no Chromium: apt-get install chromium")
		}
		o.skip(t, "there is no Chromium here: apt-get install chromium")
	}
	return newBrowser(t, path)
}

// waitText waits until an element's text has a part.
func (b *browser) waitText(within time.Duration, selector, part string) {
	b.t.Helper()
	waitFor(b.t, within, fmt.Sprintf("%s shows %q", selector, part), func() bool { return strings.Contains(b.text(selector), part) })
}

// fits checks that nothing is wider than the window.
func (b *browser) fits(what string) {
	b.t.Helper()
	var over float64
	b.eval("document.documentElement.scrollWidth - innerWidth", &over)
	if over > 0 {
		b.t.Errorf("%s: %v px wider than the window", what, over)
	}
}

// everySize looks at the page as it is on a phone and on a desk, light and dark.
func (b *browser) everySize(what string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int{{360, 740}, {1440, 900}} {
			b.screen(size[0], size[1], scheme)
			b.fits(fmt.Sprintf("%s at %dx%d, %s", what, size[0], size[1], scheme))
			var ground string
			b.eval("getComputedStyle(document.body).backgroundColor", &ground)
			if want := map[string]string{"light": "rgb(245, 246, 247)", "dark": "rgb(15, 18, 20)"}[scheme]; ground != want {
				b.t.Errorf("%s: ground %s in %s", what, ground, scheme)
			}
		}
	}
}

// loginLink is what `gpuctl ui --print` prints.
func (p *plane) loginLink() string {
	p.t.Helper()
	return strings.TrimSpace(p.ok("ui", "--print"))
}

func TestPageLogin(t *testing.T) {
	o := promise(t, "the page: a one-time link logs in once, a token typed logs in, logging out ends it; no cookie")
	b := pageBrowser(t, o)
	p := newPlane(t)
	p.up()
	link := p.loginLink()
	b.open(link)
	b.waitText(20*time.Second, "h1", "Nothing is running")
	b.waitText(10*time.Second, ".empty", "gpuctl go")
	b.quiet()
	b.everySize("the empty list")
	var state struct{ Path, Hash, Cookie, Token string }
	b.eval("({path: location.pathname, hash: location.hash, cookie: document.cookie, token: JSON.parse(localStorage['gpuctl.session']).token})", &state)
	if state.Path != "/" || state.Hash != "" || state.Cookie != "" {
		t.Errorf("after the login: %+v", state)
	}
	if a, err := p.send("GET", "/api/v1/auth/whoami", state.Token, nil, nil); err != nil || !strings.Contains(string(a.body), `"scope":"write"`) {
		t.Errorf("the page's token: %v %s", err, a.body)
	}

	b.click(`[aria-label="Log out"]`)
	b.waitText(10*time.Second, "h1", "Log in")
	waitFor(t, 5*time.Second, "the token of the page has ended", func() bool {
		a, err := p.send("GET", "/api/v1/auth/whoami", state.Token, nil, nil)
		return err == nil && a.status == 401
	})
	b.quiet()
	b.everySize("the login")

	b.open(p.url() + "/runs/7.1?tab=log") // where somebody wants to go is kept
	b.waitText(10*time.Second, "h1", "Log in")
	b.eval("document.querySelector('#token').focus()", nil)
	b.call("Input.insertText", map[string]any{"text": p.token()}, nil)
	b.click("form button.pri")
	b.waitText(10*time.Second, "[role=alert]", "7.1")
	b.eval("({path: location.pathname + location.search})", &state)
	if state.Path != "/runs/7.1?tab=log" {
		t.Errorf("after the login: %s", state.Path)
	}
	b.quiet("status 404", "/api/v1/runs/7.1") // that run does not exist

	b.screen(360, 740, "dark")
	b.click(`[aria-label="Theme: auto"]`)
	var ground string
	if b.eval("getComputedStyle(document.body).backgroundColor", &ground); ground != "rgb(245, 246, 247)" {
		t.Errorf("light was chosen, the ground is %s", ground)
	}
	var refused bool
	b.eval("(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return false; } catch { return true; } })()", &refused)
	if !refused {
		t.Error("text can become markup")
	}
	b.quiet("TrustedHTML")

	b.eval("localStorage.clear()", nil)
	b.open(link) // a second time
	b.waitText(10*time.Second, "[role=alert]", "used")
	b.quiet("status 401", "/api/v1/login")
}

func TestPageLog(t *testing.T) {
	o := promise(t, "the page: the list lives, the log follows, markup in names and lines stays text, the console stays empty")
	b := pageBrowser(t, o)
	p := newPlane(t)
	p.up()
	script := p.script("talk.sh", `#!/bin/bash
for i in $(seq 1 60); do echo "early $i"; done
echo '`+hostile+`'
printf '\033[31mred\033[0m plain\n'
while [ ! -e "$1/more" ]; do sleep 0.05; done
for i in $(seq 1 300); do echo "later $i"; done
printf 'half a line'
while [ ! -e "$1/end" ]; do sleep 0.05; done
echo; exit 3
`)
	b.open(p.loginLink())
	b.waitText(20*time.Second, "h1", "Nothing is running")
	id := p.submit("-g", "0", "-n", hostile, "--", script, p.work)
	b.waitText(5*time.Second, ".tbl tbody", hostile)
	b.waitText(5*time.Second, ".tbl tbody", "Running")
	b.everySize("the list")
	b.screen(1440, 900, "light")
	b.click(".tbl tbody a")
	b.waitText(10*time.Second, "h1", hostile)
	b.waitText(10*time.Second, ".logbody", "red plain")
	if b.count("img") != 0 || b.count(".logbody .a31") != 1 || !strings.Contains(b.text(".logbody"), hostile) {
		t.Error("a line of the log is not the text that it was")
	}
	waitFor(t, 10*time.Second, "the log is at its end", func() bool { return b.atEnd() })
	b.everySize("the log")

	b.eval("document.querySelector('.logbody').scrollTop = 0", nil) // somebody reads further up
	b.waitText(5*time.Second, ".pill", "new")
	p.touch("more")
	b.waitText(10*time.Second, ".pill", "300 new lines")
	var top float64
	if b.eval("document.querySelector('.logbody').scrollTop", &top); top != 0 {
		t.Errorf("what is read moved away: %v", top)
	}
	b.waitText(10*time.Second, ".livebar", "half a line")
	b.click(".pill")
	waitFor(t, 5*time.Second, "the log is at its end", func() bool { return b.count(".pill") == 0 && b.atEnd() })
	p.touch("end")
	b.waitText(10*time.Second, ".meta", "Failed")
	b.waitText(10*time.Second, ".page", "exit code 3")
	waitFor(t, 5*time.Second, "the last line is there", func() bool {
		return strings.HasSuffix(strings.TrimSpace(b.text(".logbody")), "half a line") && b.atEnd()
	})
	b.eval("history.back()", nil)
	b.waitText(10*time.Second, ".tbl tbody", "Failed")
	if b.count("img") != 0 {
		t.Error("a name became an image")
	}
	b.quiet()
	_ = id
}

// atEnd reports whether the log is scrolled to its end.
func (b *browser) atEnd() bool {
	var left float64
	return b.tryEval("(e => e.scrollHeight - e.scrollTop - e.clientHeight)(document.querySelector('.logbody'))", &left) == nil && left < 2
}

func (p *plane) touch(name string) {
	p.t.Helper()
	p.write(p.work+"/"+name, "")
}

// A server that goes away: what is shown stays, with its age, and comes to life again by itself.
func TestPageStale(t *testing.T) {
	o := promise(t, "the page: without a server the data stays, grey and with its age, and lives again when the server does")
	b := pageBrowser(t, o)
	p := newPlane(t)
	up := p.up()
	script := p.script("wait.sh", "#!/bin/bash\necho started; while [ ! -e \"$1/end\" ]; do sleep 0.05; done\n")
	p.submit("-g", "0", "-n", "patient", "--", script, p.work)
	b.open(p.loginLink())
	b.waitText(20*time.Second, ".tbl tbody", "Running")
	b.quiet()
	up.kill()
	b.waitText(20*time.Second, ".live", "as of")
	b.waitText(20*time.Second, ".banner", "No word from the server since")
	if !strings.Contains(b.text(".stale .tbl tbody"), "patient") {
		t.Error("the list is gone or not grey")
	}
	b.everySize("the stale list")
	p.up()
	b.waitText(40*time.Second, ".live", "Live")
	p.touch("end")
	b.waitText(20*time.Second, ".tbl tbody", "Succeeded")
	if b.count(".stale") != 0 {
		t.Error("still grey")
	}
	b.quiet("net::ERR_") // while the server was away
}
