package reach

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func scope(t *testing.T, alone bool, e *Entry) Scope {
	t.Helper()
	namespaces, entries := []string{"yarn", "other"}, map[string]Entry{}
	if alone { // whoever writes it twice
		namespaces = []string{"yarn", "yarn"}
	}
	if e != nil {
		entries["yarn"] = *e
	}
	all, err := Scopes(namespaces, entries)
	if err != nil {
		t.Fatal(err)
	}
	return all["yarn"]
}

// TestScope checks what follows from a list, and from none.
func TestScope(t *testing.T) {
	list := &Entry{Addresses: []string{"rm1.Example.", "rm2.example:8088", "10.1.0.0/24", "192.0.2.7", "192.0.2.8:88",
		"2001:db8::/64", "[2001:db8:1::1]:8090", "127.0.0.2", "169.254.7.0/24"}}
	for _, c := range []struct {
		what  string
		scope Scope
		host  string
		to    string
		want  bool
	}{
		{"alone", scope(t, true, nil), "rm.example", "10.9.9.9:8088", true},
		{"alone, a loopback address", scope(t, true, nil), "rm.example", "127.0.0.1:80", false},
		{"alone, another one", scope(t, true, nil), "rm.example", "127.9.9.9:80", false},
		{"alone, IPv6", scope(t, true, nil), "rm.example", "[::1]:80", false},
		{"alone, as IPv6", scope(t, true, nil), "rm.example", "[::ffff:127.0.0.1]:80", false},
		{"alone, behind a gateway", scope(t, true, nil), "rm.example", "[64:ff9b::a9fe:a9fe]:80", false},
		{"alone, another one behind a gateway", scope(t, true, nil), "rm.example", "[64:ff9b::a01:203]:80", true},
		{"alone, no address", scope(t, true, nil), "rm.example", "0.0.0.0:80", false},
		{"alone, no address of IPv6", scope(t, true, nil), "rm.example", "[::]:80", false},
		{"alone, metadata", scope(t, true, nil), "169.254.169.254", "169.254.169.254:80", false},
		{"alone, metadata of AWS by IPv6", scope(t, true, nil), "m", "[fd00:ec2::254]:80", false},
		{"alone, metadata of Alibaba", scope(t, true, nil), "m", "100.100.100.200:80", false},
		{"alone, link-local", scope(t, true, nil), "m", "[fe80::1%eth0]:80", false},
		{"alone, an empty list", scope(t, true, &Entry{Addresses: []string{}}), "rm.example", "10.9.9.9:8088", false},
		{"alone, only files", scope(t, true, &Entry{ExcludeFiles: []string{"a"}}), "rm.example", "10.9.9.9:8088", true},
		{"several", scope(t, false, nil), "rm.example", "10.9.9.9:8088", false},
		{"nobody", Scope{}, "rm.example", "10.9.9.9:8088", false},
		{"a name", scope(t, true, list), "RM1.example", "10.9.9.9:1", true},
		{"a name with a dot", scope(t, false, list), "rm1.example.", "10.9.9.9:1", true},
		{"a name that leads here", scope(t, false, list), "rm1.example", "127.0.0.1:1", false},
		{"another name", scope(t, true, list), "rm1.example.evil.example", "10.9.9.9:1", false},
		{"a name with a port", scope(t, true, list), "rm2.example", "10.9.9.9:8088", true},
		{"another port", scope(t, true, list), "rm2.example", "10.9.9.9:8033", false},
		{"a network", scope(t, false, list), "anything", "10.1.0.255:1", true},
		{"a network, as IPv6", scope(t, false, list), "anything", "[::ffff:10.1.0.255]:1", true},
		{"beside the network", scope(t, false, list), "anything", "10.1.1.0:1", false},
		{"an address", scope(t, false, list), "192.0.2.7", "192.0.2.7:9", true},
		{"an address with a port", scope(t, false, list), "kdc", "192.0.2.8:88", true},
		{"its other port", scope(t, false, list), "kdc", "192.0.2.8:89", false},
		{"a network of IPv6", scope(t, false, list), "anything", "[2001:db8::7]:1", true},
		{"an address of IPv6 with a port", scope(t, false, list), "a", "[2001:db8:1::1]:8090", true},
		{"its other port of IPv6", scope(t, false, list), "a", "[2001:db8:1::1]:8091", false},
		{"a written loopback address", scope(t, false, list), "localhost", "127.0.0.2:1", true},
		{"one that is not written", scope(t, false, list), "localhost", "127.0.0.1:1", false},
		{"written link-local addresses", scope(t, false, list), "a", "169.254.7.9:1", true},
		{"metadata beside them", scope(t, false, list), "a", "169.254.169.254:1", false},
		{"everything", scope(t, false, &Entry{Addresses: []string{"0.0.0.0/0"}}), "a", "10.9.9.9:1", true},
		{"all, not this machine", scope(t, false, &Entry{Addresses: []string{"0.0.0.0/0"}}), "a", "127.0.0.1:1", false},
		{"a half, not this machine", scope(t, false, &Entry{Addresses: []string{"0.0.0.0/1"}}), "a", "127.0.0.1:1", false},
	} {
		if got := c.scope.Allows(c.host, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%s: %s at %s: %v, want %v", c.what, c.host, c.to, got, c.want)
		}
	}
	for _, c := range []struct {
		what  string
		scope Scope
		to    string
		want  bool
	}{
		{"alone", scope(t, true, nil), "10.9.9.9:8042", true},
		{"with a list of others", scope(t, false, list), "10.9.9.9:8042", true},
		{"on this machine", scope(t, false, list), "127.0.0.1:8042", false},
		{"on this machine, written", scope(t, false, list), "127.0.0.2:8042", true},
		{"several", scope(t, false, nil), "10.9.9.9:8042", false},
	} {
		if got := c.scope.AllowsWorker(netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("a worker, %s: %v, want %v", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		what  string
		scope Scope
		want  bool
	}{
		{"alone", scope(t, true, nil), true},
		{"alone, only addresses", scope(t, true, &Entry{Addresses: []string{"a"}}), true},
		{"alone, another one", scope(t, true, &Entry{ExcludeFiles: []string{"b.xml"}}), false},
		{"alone, none", scope(t, true, &Entry{ExcludeFiles: []string{}}), false},
		{"several", scope(t, false, nil), false},
		{"several, this one", scope(t, false, &Entry{ExcludeFiles: []string{"b.xml", "a.xml"}}), true},
	} {
		if got := c.scope.AllowsFile("a.xml"); got != c.want {
			t.Errorf("an exclude file, %s: %v, want %v", c.what, got, c.want)
		}
	}
}

// TestBadEntries checks that a mistake is an error that names it, and never a smaller or larger list.
func TestBadEntries(t *testing.T) {
	for text, word := range map[string]string{
		"": "no name", "a b": "no name", "*.example": "no name", "http://a": "CIDR", "a:": "port", "a:0": "port",
		"a:65536": "port", "a:b": "port", "10.0.0.0/33": "CIDR", "10.0.0.1/8": "write 10.0.0.0/8", "10.0.0": "no name",
		"10.0.0.256": "no name", "1": "no name", "a/8": "CIDR", "::ffff:10.0.0.0/104": "IPv4", "fe80::1%eth0": "zone",
		"[::1]": "HOST", "::1:80:": "HOST", "-a": "no name", "a..b": "no name", strings.Repeat("a.", 130) + "a": "no name",
	} {
		_, err := Scopes([]string{"yarn"}, map[string]Entry{"yarn": {Addresses: []string{"good", text}}})
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "yarn") {
			t.Errorf("%q: %v, want an error with %q", text, err, word)
		}
	}
	if _, err := Scopes([]string{"yarn"}, map[string]Entry{"yran": {}}); err == nil {
		t.Error("a list for a namespace without pools is accepted")
	}
}

// TestScopeAtRandom compares lists with what Go's older types say of them.
func TestScopeAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ip := func() netip.Addr {
		if r.IntN(3) == 0 {
			b := [16]byte{0x20, 0x01, 0xd, 0xb8, 15: byte(r.IntN(4))}
			b[7+r.IntN(8)] = byte(r.IntN(2))
			return netip.AddrFrom16(b)
		}
		first, second := [...]byte{10, 127, 169}[r.IntN(3)], [...]byte{0, 254}[r.IntN(2)]
		return netip.AddrFrom4([4]byte{first, second, byte(r.IntN(3)), byte(r.IntN(4))})
	}
	names := []string{"a", "b.example", "c-1.example"}
	forbidden := func(ip net.IP) bool { return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() }
	allowed := 0
	for range 20000 {
		var texts []string
		for range r.IntN(4) {
			a := ip()
			switch r.IntN(4) {
			case 0:
				texts = append(texts, names[r.IntN(len(names))]+[]string{"", ":80", ":81"}[r.IntN(3)])
			case 1:
				texts = append(texts, net.JoinHostPort(a.String(), strconv.Itoa(80+r.IntN(2))))
			case 2:
				texts = append(texts, a.String())
			case 3:
				p := netip.PrefixFrom(a, r.IntN(a.BitLen()+1)).Masked()
				texts = append(texts, p.String())
			}
		}
		all, err := Scopes([]string{"x", "y"}, map[string]Entry{"x": {Addresses: texts}})
		if err != nil {
			t.Fatalf("%q: %v", texts, err)
		}
		s := all["x"]
		to, host := netip.AddrPortFrom(ip(), uint16(80+r.IntN(2))), names[r.IntN(len(names))]
		want := false
		for _, text := range texts {
			want = want || dumb(text, host, net.IP(to.Addr().AsSlice()), to.Port(), forbidden)
		}
		if got := s.Allows(host, to); got != want {
			t.Fatalf("%q: %s at %s: %v, want %v", texts, host, to, got, want)
		}
		if want {
			allowed++
		}
		if to.Addr().Is4() && s.Allows(host, netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())) != want {
			t.Fatalf("%q: %s is another address as IPv6", texts, to)
		}
		more, err := Scopes([]string{"x", "y"}, map[string]Entry{"x": {Addresses: append(texts, ip().String())}})
		if err != nil {
			t.Fatal(err)
		}
		if larger := more["x"]; want && !larger.Allows(host, to) {
			t.Fatalf("%q: one more entry takes %s away", texts, to)
		}
	}
	if allowed < 1000 {
		t.Errorf("only %d of all were allowed", allowed)
	}
}

// dumb says what one entry allows, in the words of the chart's values.
func dumb(text, host string, ip net.IP, port uint16, forbidden func(net.IP) bool) bool {
	if _, network, err := net.ParseCIDR(text); err == nil {
		ones, _ := network.Mask.Size()
		written := map[byte]int{127: 8, 169: 16}[network.IP[0]] // of addresses that count only if they are written
		return network.Contains(ip) && (!forbidden(ip) || written > 0 && ones >= written)
	}
	if h, p, err := net.SplitHostPort(text); err == nil {
		if text = h; p != fmt.Sprint(port) {
			return false
		}
	}
	if one := net.ParseIP(text); one != nil {
		return one.Equal(ip)
	}
	return text == host && !forbidden(ip)
}

// FuzzParse checks that an entry is an error or one thing.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"a:1", "10.0.0.0/8", "[::1]:2", "::1", "a.b."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parse(text)
		if err == nil && (a.host != "") == a.prefix.IsValid() {
			t.Errorf("%q: %+v", text, a)
		}
	})
}
