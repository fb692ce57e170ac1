package main

// gpuctl ui: what it prints, and what it says to somebody who is logged in from elsewhere.

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestUITunnel(t *testing.T) {
	const link = "http://127.0.0.1:8600/login#code=x"
	for _, c := range []struct {
		link, ssh, user, want string
	}{
		{link, "", "mei", ""},
		{link, "10.0.0.9 51000 10.0.0.5 22", "mei", "ssh -L 8600:127.0.0.1:8600 mei@10.0.0.5"},
		{link, "10.0.0.9 51000 10.0.0.5 2222", "", "ssh -L 8600:127.0.0.1:8600 -p 2222 10.0.0.5"},
		{"http://gpu.lan:8600/login#code=x", "10.0.0.9 51000 10.0.0.5 22", "mei", ""},
		{link, "half a line", "mei", ""},
	} {
		cl := newCLI(nil, new(bytes.Buffer), new(bytes.Buffer), []string{"SSH_CONNECTION=" + c.ssh, "USER=" + c.user})
		if got := cl.tunnel(c.link); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// The link leads to where the CLI itself reached the server, whatever the server calls itself; stdout holds it and nothing else.
func TestUIPrints(t *testing.T) {
	f := newDoors(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "127.0.0.1:8600" // as a proxy in front may do
		f.h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	var out, errs bytes.Buffer
	c := newCLI(nil, &out, &errs, []string{"GPUCTL_HOME=" + t.TempDir(), "GPUCTL_SERVER_URL=" + srv.URL, "GPUCTL_TOKEN=" + f.tokens[scopeRead]})
	if code := c.run(t.Context(), []string{"ui"}); code != 0 {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	link := strings.TrimSuffix(out.String(), "\n")
	code, ok := strings.CutPrefix(link, srv.URL+"/login#code=")
	if !ok || !strings.HasPrefix(code, "gpc_code_") {
		t.Fatalf("printed %q", out.String())
	}
	if !strings.Contains(errs.String(), "works once") || !strings.Contains(errs.String(), "or http://127.0.0.1:8600/login#code=") {
		t.Errorf("said %q", errs.String())
	}
	if a := f.login(`{"code":"` + code + `"}`); a.Scope != scopeRead {
		t.Errorf("the link gives %+v", a)
	}
}
