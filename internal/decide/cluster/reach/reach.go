// Package reach decides to which addresses the worker pools of a namespace may make the manager connect, and which
// exclude files they may name. Whoever writes a pool may be a tenant, and the manager stands in another network.
package reach

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Entry is what an administrator writes for a namespace. A list that is nil is not written, and an empty one allows
// nothing.
type Entry struct {
	// Addresses are names or addresses, each with a port or without one (HOST, HOST:PORT, [IPV6]:PORT), or CIDRs.
	Addresses []string `json:"addresses"`
	// ExcludeFiles are names of files in the manager's directory of exclude files.
	ExcludeFiles []string `json:"excludeFiles"`
}

// Scope is what the pools of one namespace may reach. Its zero value reaches nothing.
type Scope struct {
	open    bool // every address but special ones
	allowed []address
	anyFile bool
	files   []string
}

// address is one entry of a list.
type address struct {
	host   string       // in lower case, without a dot at its end; "": the prefix counts
	prefix netip.Prefix // of addresses
	port   uint16       // 0: all
}

// special are addresses that no pool reaches unless an entry lies within one of them: those of the manager's own
// machine, of its link, and of the services by which clouds hand out credentials. The last five are those services of
// AWS, of its pod identities, Google, Alibaba and Azure; the others of such are link-local.
func special() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{
		"127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128", "169.254.0.0/16", "fe80::/10",
		"fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32",
	} {
		if prefix, err := netip.ParsePrefix(text); err == nil { // each is one
			all = append(all, prefix)
		}
	}
	return all
}

// Scopes returns the scope of each namespace that may have pools. A single one reaches all but special addresses and
// any exclude file, unless its entry says otherwise. Of several, a namespace reaches what its entry has, and without an
// entry nothing: its pools belong to another tenant. Which namespaces have pools at the moment does not count, or the
// first pool of one tenant would stop those of another.
func Scopes(namespaces []string, entries map[string]Entry) (map[string]Scope, error) {
	all := map[string]Scope{}
	alone := !slices.ContainsFunc(namespaces, func(n string) bool { return n != namespaces[0] })
	for _, namespace := range namespaces {
		e := entries[namespace]
		s := Scope{open: alone && e.Addresses == nil, anyFile: alone && e.ExcludeFiles == nil, files: e.ExcludeFiles}
		for _, text := range e.Addresses {
			a, err := parse(text)
			if err != nil {
				return nil, fmt.Errorf("namespace %s may reach %q: %w", namespace, text, err)
			}
			s.allowed = append(s.allowed, a)
		}
		all[namespace] = s
	}
	for namespace := range entries {
		if _, known := all[namespace]; !known {
			return nil, fmt.Errorf("namespace %s has a list of what its pools may reach, and may have no pools", namespace)
		}
	}
	return all, nil
}

// hostName is a name of hosts in lower case.
var hostName = regexp.MustCompile(`^[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*$`)

// parse reads an entry.
func parse(text string) (address, error) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return address{}, fmt.Errorf("it is no CIDR: %w", err)
		case prefix.Addr().Is4In6():
			return address{}, errors.New("write it as a CIDR of IPv4")
		case prefix != prefix.Masked():
			return address{}, fmt.Errorf("it has bits beyond its prefix; write %s", prefix.Masked())
		}
		return address{prefix: prefix}, nil
	}
	host, port := text, uint16(0)
	if _, err := netip.ParseAddr(text); err != nil && strings.Contains(text, ":") {
		colon := strings.LastIndex(text, ":")
		if host = text[:colon]; strings.Contains(host, ":") {
			if !strings.HasPrefix(host, "[") || !strings.HasSuffix(host, "]") {
				return address{}, errors.New("it is neither HOST nor HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT")
			}
			host = host[1 : len(host)-1]
		}
		n, err := strconv.ParseUint(text[colon+1:], 10, 16)
		if err != nil || n == 0 {
			return address{}, errors.New("its port is no number from 1 to 65535")
		}
		port = uint16(n)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip = ip.Unmap(); ip.Zone() != "" {
			return address{}, errors.New("it has a zone")
		}
		return address{prefix: netip.PrefixFrom(ip, ip.BitLen()), port: port}, nil
	}
	host = plain(host)
	last := host[strings.LastIndex(host, ".")+1:]
	if len(host) > 253 || !hostName.MatchString(host) || strings.Trim(last, "0123456789") == "" {
		return address{}, errors.New("it is no name of a host, no address and no CIDR")
	}
	return address{host: host, port: port}, nil
}

func plain(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// Closed reports whether pools reach nothing, because nobody has written what they may reach.
func (s *Scope) Closed() bool { return !s.open && len(s.allowed) == 0 }

// Allows reports whether pools may reach an address to which a host was resolved, at this moment.
func (s *Scope) Allows(host string, to netip.AddrPort) bool {
	return s.open && !isSpecial(to.Addr()) || s.lists(host, to)
}

// AllowsWorker reports whether pools may reach the address of a worker of theirs, at a port of workers.
func (s *Scope) AllowsWorker(to netip.AddrPort) bool {
	return !s.Closed() && !isSpecial(to.Addr()) || s.lists("", to)
}

// AllowsFile reports whether pools may name an exclude file.
func (s *Scope) AllowsFile(name string) bool { return s.anyFile || slices.Contains(s.files, name) }

// lists reports whether an entry has the address, or the name by which it was called.
func (s *Scope) lists(host string, to netip.AddrPort) bool {
	ip := bare(to.Addr())
	return slices.ContainsFunc(s.allowed, func(a address) bool {
		switch {
		case a.port != 0 && a.port != to.Port():
			return false
		case a.host != "": // whoever answers for the name must not lead to the manager's own machine
			return a.host == plain(host) && !isSpecial(ip)
		}
		return a.prefix.Contains(ip) && (!isSpecial(ip) || within(a.prefix))
	})
}

// gateway is the beginning of an address that stands for an IPv4 address behind a gateway (64:ff9b::/96, RFC 6052).
var gateway = [12]byte{0, 0x64, 0xff, 0x9b}

// isSpecial reports whether an address is one of [special].
func isSpecial(ip netip.Addr) bool {
	ip = bare(ip)
	if b := ip.As16(); ip.Is6() && [12]byte(b[:12]) == gateway {
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return !ip.IsValid() || slices.ContainsFunc(special(), func(p netip.Prefix) bool { return p.Contains(ip) })
}

// within reports whether a prefix lies within a special one.
func within(prefix netip.Prefix) bool {
	return slices.ContainsFunc(special(), func(p netip.Prefix) bool {
		return p.Bits() <= prefix.Bits() && p.Contains(prefix.Addr())
	})
}

// bare returns an address without its zone, and an IPv4 address as such.
func bare(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }
