package main

// Addresses: where the server listens, whether that is wise over plain HTTP, and by which addresses others reach it. It opens nothing.

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// carrierGrade is 100.64.0.0/10: Tailscale and carrier-grade NAT, not reachable from the internet.
var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// checkBind looks at the address to listen on: loopback is fine, a private range is said, a public one over plain HTTP has to be meant.
// 0.0.0.0 and :: count as the worst address of the machine.
func checkBind(cfg serverConfig, log *slog.Logger) error {
	worst, err := worstAddress(cfg.Host)
	if err != nil {
		return newProblem(codeUsage, "set host in server.yaml to an address of this machine", "host %q: %v", cfg.Host, err)
	}
	switch {
	case addressRank(worst) == 0:
	case addressRank(worst) == 1:
		log.Warn("listening beyond this machine over plain HTTP: whoever sees this network sees the tokens", "host", cfg.Host)
	case cfg.InsecureHTTP:
		log.Warn("listening at a public address over plain HTTP: whoever is on the way sees the tokens", "host", cfg.Host, "address", worst)
	default:
		return newProblem(codeUsage, "listen on 127.0.0.1 or a private address, or set insecure_http: true in server.yaml",
			"host %s is reachable at the public address %s, and plain HTTP shows the tokens", cfg.Host, worst)
	}
	return nil
}

// addressRank says how far an address reaches: 0 this machine, 1 a private network, 2 the internet.
func addressRank(a netip.Addr) int {
	switch {
	case a.IsLoopback():
		return 0
	case a.IsPrivate() || a.IsLinkLocalUnicast() || carrierGrade.Contains(a):
		return 1
	}
	return 2
}

// wildcardFamily tells a host that means every address of the machine: 4 for 0.0.0.0, 46 for :: and nothing; 0 for any other.
func wildcardFamily(host string) int {
	a, err := netip.ParseAddr(hostOnly(host))
	switch {
	case host == "" || err == nil && a == netip.IPv6Unspecified():
		return 46
	case err == nil && a == netip.IPv4Unspecified():
		return 4
	}
	return 0
}

// listenNetwork is the network to listen on: 0.0.0.0 means IPv4, which Go would widen to both.
func listenNetwork(host string) string {
	if wildcardFamily(host) == 4 {
		return "tcp4"
	}
	return "tcp"
}

// localURL is the address at which this machine reaches a server that listens at addr.
func localURL(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1" // :: takes IPv4 too
		if own, err := machineAddresses(); err == nil && !slices.ContainsFunc(own, func(a netip.Addr) bool { return a.Is4() }) {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// machineAddresses are the addresses of this machine's interfaces, as IPv4 where they are that.
func machineAddresses() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, x := range addrs {
		if n, ok := x.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	return out, nil
}

// boundAddresses are the addresses that a host of server.yaml makes the server reachable at.
func boundAddresses(host string) ([]netip.Addr, error) {
	if family := wildcardFamily(host); family != 0 {
		all, err := machineAddresses()
		if family == 4 {
			all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.Is4() })
		}
		return all, err
	}
	if a, err := netip.ParseAddr(hostOnly(host)); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, a.Unmap())
		}
	}
	return all, nil
}

// worstAddress is the most public address that a host makes the server reachable at.
func worstAddress(host string) (netip.Addr, error) {
	all, err := boundAddresses(host)
	if err != nil {
		return netip.Addr{}, err
	}
	if len(all) == 0 {
		return netip.Addr{}, errors.New("it has no address")
	}
	return slices.MaxFunc(all, func(a, b netip.Addr) int { return cmp.Compare(addressRank(a), addressRank(b)) }), nil
}

// beyondLoopback reports whether others than this machine reach a server that listens on host.
func beyondLoopback(host string) bool {
	worst, err := worstAddress(host)
	return err == nil && addressRank(worst) > 0
}

// outsideURLs are the addresses by which other machines may reach a server that listens on host and port, best first: the names that its
// owner gave, a host that is a name, the address that this machine uses towards others, then its other ones.
func outsideURLs(host string, names []string, port int) []string {
	var hosts []string
	add := func(h string) { hosts = append(hosts, net.JoinHostPort(h, strconv.Itoa(port))) }
	for _, n := range names {
		if _, _, err := net.SplitHostPort(n); err == nil { // it carries a port of its own
			hosts = append(hosts, n)
		} else if h := hostOnly(n); h != "" {
			add(h)
		}
	}
	if _, err := netip.ParseAddr(hostOnly(host)); err != nil && host != "" {
		add(hostOnly(host))
	} else if all, err := boundAddresses(host); err == nil {
		all = slices.DeleteFunc(all, func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() })
		main, bridges := mainAddress(), bridgeAddresses()
		order := func(a netip.Addr) int {
			switch {
			case slices.Contains(bridges, a):
				return 6 // containers of this machine reach it there, nobody else
			case a == main:
				return 0
			case a.Is4():
				return 1 + addressRank(a)
			}
			return 3 + addressRank(a)
		}
		slices.SortStableFunc(all, func(a, b netip.Addr) int { return cmp.Compare(order(a), order(b)) })
		for _, a := range all {
			add(a.String())
		}
	}
	urls := []string{}
	for _, h := range hosts {
		if u := "http://" + h; !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	return urls
}

// mainAddress is the address that this machine has towards others, by the routing table: connecting a UDP socket sends nothing. The zero
// Addr when there is no route. 192.0.2.1 is an address of nobody (RFC 5737).
func mainAddress() netip.Addr {
	c, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	if cerr := c.Close(); err != nil || cerr != nil {
		return netip.Addr{}
	}
	return a.Addr()
}

// bridgeAddresses are those of interfaces that lead to containers and virtual machines only.
func bridgeAddresses() []netip.Addr {
	faces, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, f := range faces {
		if !slices.ContainsFunc([]string{"docker", "br-", "veth", "virbr", "lxc", "cni", "flannel", "podman"}, func(p string) bool { return strings.HasPrefix(f.Name, p) }) {
			continue
		}
		addrs, err := f.Addrs()
		if err != nil {
			continue // the interface is gone again
		}
		for _, x := range addrs {
			if n, ok := x.(*net.IPNet); ok {
				if a, ok := netip.AddrFromSlice(n.IP); ok {
					out = append(out, a.Unmap())
				}
			}
		}
	}
	return out
}
