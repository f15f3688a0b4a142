package policy

import (
	"cmp"
	"slices"
)

// inOrder gives the same ports as ranges that neither overlap nor touch, in ascending order: what the functions below take and give.
func inOrder(ranges []PortRange) []PortRange {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b PortRange) int { return cmp.Compare(a.From, b.From) })
	var joined []PortRange
	for _, r := range sorted {
		joined = join(joined, r)
	}
	return joined
}

// join adds a range that begins no earlier than the last one.
func join(to []PortRange, r PortRange) []PortRange {
	if last := len(to) - 1; last >= 0 && int(r.From) <= int(to[last].To)+1 {
		to[last].To = max(to[last].To, r.To)
		return to
	}
	return append(to, r)
}

// portsOf gives the ports of all rules that match a name.
func portsOf(rules []Rule, name string) []PortRange {
	var matching [][]PortRange
	for _, r := range rules {
		if r.matchesName(name) {
			matching = append(matching, r.Ports)
		}
	}
	return union(matching)
}

// union merges halves, so that a policy of many ranges costs little more than reading them.
func union(lists [][]PortRange) []PortRange {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0]
	}
	a, b := union(lists[:len(lists)/2]), union(lists[len(lists)/2:])
	merged := make([]PortRange, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].From > b[0].From {
			a, b = b, a
		}
		merged = join(merged, a[0])
		a = a[1:]
	}
	for _, r := range append(a[:len(a):len(a)], b...) {
		merged = join(merged, r)
	}
	return merged
}

func intersection(a, b []PortRange) []PortRange {
	var both []PortRange
	for len(a) > 0 && len(b) > 0 {
		if from, to := max(a[0].From, b[0].From), min(a[0].To, b[0].To); from <= to {
			both = append(both, PortRange{from, to})
		}
		if a[0].To > b[0].To {
			a, b = b, a
		}
		a = a[1:]
	}
	return both
}

// leaves says whether any of the ports is not one of the others.
func leaves(ports, others []PortRange) bool {
	for _, r := range ports {
		for len(others) > 0 && others[0].To < r.From {
			others = others[1:]
		}
		if len(others) == 0 || others[0].From > r.From || others[0].To < r.To {
			return true
		}
	}
	return false
}
