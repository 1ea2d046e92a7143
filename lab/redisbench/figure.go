package redisbench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// figureMargin is how much higher than the usual one without batch the figure may be, in hundredths.
const figureMargin = 15

// figure is where the generator serves the server's own figure to the agent, and what it may be at most. The zero value
// is none.
type figure struct {
	address netip.AddrPort
	max     time.Duration
}

// figure returns the figure of the server at a load. It may be somewhat higher than the usual one of the slowest run
// alone. The highest one would not do: a stall of the machine makes it many times the usual one.
func (b *bench) figure(part float64) (f figure, err error) {
	for _, run := range b.found.Of(Alone, part) {
		f.max = max(f.max, usual(run.Requests)*(100+figureMargin)/100)
	}
	if f.max == 0 {
		return f, fmt.Errorf("the figure without batch at %.0f %% is not known: the generator was late each time", 100*part)
	}
	f.address, err = freePort()
	return f, err
}

// usual returns the median of the figure while the requests were answered; 0 if they make up no whole window.
func usual(requests []load.Request) time.Duration {
	all := slices.Clone(requests)
	slices.SortFunc(all, func(a, b load.Request) int { return int(a.Ready - b.Ready) })
	var figures []time.Duration
	first := 0
	for i := range all {
		for all[i].Ready-all[first].Ready > load.FigureWindow {
			first++
		}
		if all[i].Ready-all[0].Ready >= load.FigureWindow {
			figures = append(figures, load.Figure(all[first:i+1]))
		}
	}
	if len(figures) == 0 {
		return 0
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// freePort returns a free port of an address of this machine. The agent asks no loopback address: a pod has none.
func freePort() (netip.AddrPort, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		listener, err := net.Listen("tcp", netip.AddrPortFrom(prefix.Addr(), 0).String())
		if err != nil {
			continue // such as an address that is still tentative
		}
		port, err := netip.ParseAddrPort(listener.Addr().String())
		return port, errors.Join(err, listener.Close())
	}
	return netip.AddrPort{}, fmt.Errorf("%w: this machine has no IP address at which an agent could ask for the figure "+
		"of a service", sandbox.ErrUnusable)
}

// policy returns what the policy says of the figure.
func (f figure) policy(p *sandbox.Pod) string {
	return fmt.Sprintf("  protect: {services: [{selector: {matchLabels: {app: %s}}, metric: {port: %d, name: %s}, "+
		"max: \"%.6f\"}]}\n", p.Name, f.address.Port(), load.FigureMetric, f.max.Seconds())
}
