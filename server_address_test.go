package main

// Where the server listens and by which names it is known.

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestCheckBind(t *testing.T) {
	for _, c := range []struct {
		host         string
		insecure     bool
		warns, fails bool
	}{
		{"127.0.0.1", false, false, false},
		{"127.9.9.9", false, false, false},
		{"::1", false, false, false},
		{"[::1]", false, false, false},
		{"::ffff:127.0.0.1", false, false, false},
		{"localhost", false, false, false},
		{"10.0.0.5", false, true, false},
		{"172.31.0.1", false, true, false},
		{"192.168.1.7", false, true, false},
		{"169.254.3.3", false, true, false},
		{"100.64.0.1", false, true, false}, // Tailscale
		{"100.128.0.1", false, false, true},
		{"fd7a:115c:a1e0::1", false, true, false},
		{"8.8.8.8", false, false, true},
		{"8.8.8.8", true, true, false},
		{"::ffff:8.8.8.8", false, false, true},
		{"2001:4860::8888", false, false, true},
	} {
		var log bytes.Buffer
		err := checkBind(serverConfig{Host: c.host, InsecureHTTP: c.insecure}, slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != c.fails || (log.Len() > 0) != c.warns {
			t.Errorf("%s, insecure_http %v: %v, log %q", c.host, c.insecure, err, log.String())
		}
		if p, ok := asProblem(err); err != nil && (!ok || p.Hint == "") {
			t.Errorf("%s: %v has no hint", c.host, err)
		}
	}
}

// 0.0.0.0 is IPv4 only, by name and by socket; its URL is one that this machine can use.
func TestListenEverywhere(t *testing.T) {
	for _, c := range []struct {
		host, network string
		family        int
	}{{"0.0.0.0", "tcp4", 4}, {"::", "tcp", 46}, {"", "tcp", 46}, {"[::]", "tcp", 46}, {"127.0.0.1", "tcp", 0}, {"gpu1", "tcp", 0}} {
		if listenNetwork(c.host) != c.network || wildcardFamily(c.host) != c.family {
			t.Errorf("%q: %s, %d", c.host, listenNetwork(c.host), wildcardFamily(c.host))
		}
	}
	l, err := net.Listen(listenNetwork("0.0.0.0"), "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if got := localURL(l.Addr()); got != "http://127.0.0.1:"+port {
		t.Errorf("listens at %s, local URL %s", l.Addr(), got)
	}
	for addr, want := range map[string]string{"10.0.0.5:8600": "http://10.0.0.5:8600", "[fd00::1]:8600": "http://[fd00::1]:8600", "127.0.0.1:1": "http://127.0.0.1:1"} {
		if got := localURL(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

func TestOutsideURLs(t *testing.T) {
	for _, c := range []struct {
		host  string
		names []string
		want  string
	}{
		{"10.0.0.5", nil, "http://10.0.0.5:8600"},
		{"fd00::5", nil, "http://[fd00::5]:8600"},
		{"gpu1.lan", nil, "http://gpu1.lan:8600"},
		{"10.0.0.5", []string{"gpu1.tail1.ts.net", "proxy.example:80", "fd00::7", "", "10.0.0.5"}, "http://gpu1.tail1.ts.net:8600 http://proxy.example:80 http://[fd00::7]:8600 http://10.0.0.5:8600"},
	} {
		if got := strings.Join(outsideURLs(c.host, c.names, 8600), " "); got != c.want {
			t.Errorf("%s %q: %s", c.host, c.names, got)
		}
	}
	own, err := machineAddresses()
	if err != nil {
		t.Fatal(err)
	}
	everywhere := outsideURLs("::", nil, 8600)
	for _, a := range own {
		want := !a.IsLoopback() && !a.IsLinkLocalUnicast()
		if got := slices.Contains(everywhere, "http://"+net.JoinHostPort(a.String(), "8600")); got != want {
			t.Errorf("%s among %q: %v", a, everywhere, got)
		}
	}
}

// A server that others reach goes by every address of its machine; one on loopback does not.
func TestDoorOwnAddresses(t *testing.T) {
	own, err := machineAddresses()
	if err != nil {
		t.Fatal(err)
	}
	beyond, local := newDoorGuard(serverConfig{Host: "10.1.2.3"}), newDoorGuard(serverConfig{Host: "127.0.0.1"})
	for _, a := range own {
		host := net.JoinHostPort(a.String(), "8600")
		if err := beyond.checkHost(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if err := local.checkHost(host); err == nil && !a.IsLoopback() {
			t.Errorf("%s is a name of a server on loopback", host)
		}
	}
	for _, host := range []string{"203.0.113.9:8600", "evil.example", "10.1.2.3.evil.example"} {
		if beyond.checkHost(host) == nil {
			t.Errorf("%s is a name of ours", host)
		}
	}
}
