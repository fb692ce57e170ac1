package tests

// A real browser: headless Chromium, driven through the pipe of its debugging protocol (CDP). Whatever it complains about is kept: a page
// that is fine says nothing.

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is one Chromium with one tab.
type browser struct {
	t       *testing.T
	session string
	in      *os.File

	mu      sync.Mutex
	last    int
	waiting map[int]chan cdpMessage
	noise   []string          // console messages, exceptions, violations, failed requests
	urls    map[string]string // of requests
}

type cdpMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// findChromium is the browser's path, "" when there is none.
func findChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// newBrowser starts Chromium. It ends with the test.
func newBrowser(t *testing.T, path string) *browser {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--no-proxy-server",
		"--force-color-profile=srgb", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: ourOut, waiting: map[int]chan cdpMessage{}, urls: map[string]string{}}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		b.listen(ourIn)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the browser said %q, the page shows: %.3000s", b.takeNoise(), b.text("body"))
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		ourOut.Close()
		<-gone
		ourIn.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// listen takes everything that comes, until the browser is gone.
func (b *browser) listen(from io.Reader) {
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m cdpMessage
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m); err != nil {
			b.complain("cdp: " + err.Error())
			continue
		}
		b.mu.Lock()
		c := b.waiting[m.ID]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		if c != nil {
			c <- m
			continue
		}
		b.hear(m)
	}
}

// hear keeps what a clean page would not say.
func (b *browser) hear(m cdpMessage) {
	var p struct {
		RequestID string `json:"requestId"`
		ErrorText string
		Canceled  bool
		Type      string
		Args      []struct{ Value, Description any }
		Entry     struct{ Level, Text, URL string }
		Request   struct{ URL string }
		Response  struct {
			URL    string
			Status int
		}
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return // an event with another shape is none of those below
	}
	switch m.Method {
	case "Runtime.consoleAPICalled":
		b.complain(fmt.Sprintf("console %s: %v", p.Type, p.Args))
	case "Runtime.exceptionThrown":
		b.complain("exception: " + p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		b.complain("log " + p.Entry.Level + ": " + p.Entry.Text + " " + p.Entry.URL)
	case "Page.javascriptDialogOpening":
		b.complain("a dialog opened")
	case "Network.requestWillBeSent":
		b.mu.Lock()
		b.urls[p.RequestID] = p.Request.URL
		b.mu.Unlock()
	case "Network.responseReceived":
		if p.Response.Status >= 400 {
			b.complain(fmt.Sprintf("status %d: %s", p.Response.Status, p.Response.URL))
		}
	case "Network.loadingFailed":
		if !p.Canceled { // the page itself ends what it waits for when it is left
			b.mu.Lock()
			url := b.urls[p.RequestID]
			b.mu.Unlock()
			b.complain("failed: " + url + " " + p.ErrorText)
		}
	}
}

func (b *browser) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noise = append(b.noise, text)
}

// takeNoise gives what was complained about since the last time.
func (b *browser) takeNoise() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.noise
	b.noise = nil
	return n
}

// call does one command of the protocol.
func (b *browser) call(method string, params, out any) {
	b.t.Helper()
	if err := b.try(method, params, out); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

func (b *browser) try(method string, params, out any) error {
	b.mu.Lock()
	b.last++
	id, answer := b.last, make(chan cdpMessage, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	msg := map[string]any{"id": id, "method": method}
	if params != nil {
		msg["params"] = params
	}
	if b.session != "" {
		msg["sessionId"] = b.session
	}
	line, err := json.Marshal(msg)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(line, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("the browser is gone")
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case out == nil:
			return nil
		}
		return json.Unmarshal(m.Result, out)
	case <-time.After(30 * time.Second):
		return errors.New("no answer in 30 s")
	}
}

// open goes to an address and waits until the document is loaded.
func (b *browser) open(url string) {
	b.t.Helper()
	var nav struct{ ErrorText string }
	b.call("Page.navigate", map[string]any{"url": url}, &nav)
	if nav.ErrorText != "" {
		b.t.Fatalf("open %s: %s", url, nav.ErrorText)
	}
}

// eval runs a script in the page and decodes what it gives.
func (b *browser) eval(script string, out any) {
	b.t.Helper()
	if err := b.tryEval(script, out); err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
}

func (b *browser) tryEval(script string, out any) error {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := b.try("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &got)
	if err != nil {
		return err
	}
	if e := got.ExceptionDetails; e != nil {
		return errors.New(e.Text + " " + e.Exception.Description)
	}
	if out == nil || len(got.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(got.Result.Value, out)
}

// text is the text of the first element that a selector finds, "" without one. While a page is being left there is none.
func (b *browser) text(selector string) string {
	var s string
	if b.tryEval("document.querySelector("+jsString(selector)+")?.textContent ?? ''", &s) != nil {
		return ""
	}
	return s
}

func (b *browser) count(selector string) int {
	b.t.Helper()
	var n int
	b.eval("document.querySelectorAll("+jsString(selector)+").length", &n)
	return n
}

// click presses the mouse on the middle of an element, as a person does.
func (b *browser) click(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	b.eval("(() => { const e = document.querySelector("+jsString(selector)+"); e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return {x: r.left + r.width / 2, y: r.top + r.height / 2}; })()", &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// screen sets the size of the window and what the system prefers.
func (b *browser) screen(width, height int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture is what the window shows, as PNG.
func (b *browser) picture() []byte {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// quiet fails the test when the browser complained about anything but what is allowed.
func (b *browser) quiet(allowed ...string) {
	b.t.Helper()
	for _, n := range b.takeNoise() {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(n, a) }) {
			b.t.Errorf("the browser complains: %s", n)
		}
	}
}

func jsString(s string) string {
	j, err := json.Marshal(s)
	if err != nil {
		return `""` // a Go string always marshals
	}
	return string(j)
}
