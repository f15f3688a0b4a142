package journal

import (
	"fmt"
	"testing"
	"time"

	"fuse/gateway/internal/policy"
)

func always() bool { return true }

func subject(name string, port uint16) Subject {
	return Subject{Name: name, Port: &port, Protocol: TLS}
}

func TestEqualRefusalsInARowAreOne(t *testing.T) {
	j := New(always)
	for range 3 {
		j.Refuse(subject("a", 443), policy.NotAllowed, "")
	}
	j.Refuse(subject("a", 80), policy.NotAllowed, "")
	j.Refuse(Subject{Name: "a", Protocol: DNS}, policy.NotAllowed, "")
	j.Refuse(subject("a", 443), policy.NotAllowed, "")
	totals := j.Totals()
	if totals.Refused != 6 || totals.RefusedSeq != 4 || len(totals.LatestRefused) != 4 {
		t.Fatalf("%+v", totals)
	}
	for i, want := range []int{3, 1, 1, 1} {
		if got := totals.LatestRefused[i]; got.Count != want || got.Seq != uint64(i+1) || got.Verdict != "refused" {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	if newest := j.Connections()[0]; newest.Name != "a" || *newest.Port != 443 || newest.Count != 1 || newest.DurationMs == nil {
		t.Fatalf("%+v", newest)
	}
}

func TestTheLatestAreKept(t *testing.T) {
	j := New(always)
	for i := range 3 * MaxEntries {
		j.Refuse(subject(fmt.Sprint(i), 1), policy.Denied, "")
	}
	connections, totals := j.Connections(), j.Totals()
	if len(connections) != MaxEntries || len(totals.LatestRefused) != maxLatest || totals.Refused != 3*MaxEntries {
		t.Fatalf("%d, %d, %d", len(connections), len(totals.LatestRefused), totals.Refused)
	}
	for i, c := range connections {
		if c.Name != fmt.Sprint(3*MaxEntries-1-i) {
			t.Fatalf("%d: %s", i, c.Name)
		}
	}
	if last := totals.LatestRefused[maxLatest-1]; last.Name != fmt.Sprint(3*MaxEntries-1) || last.Seq != totals.RefusedSeq {
		t.Fatalf("%+v", last)
	}
}

func TestBytesOfAnOpenConnection(t *testing.T) {
	j := New(always)
	entry := j.Allow(subject("a", 443), time.Now())
	entry.Sent(3)
	entry.Received(5)
	if c, totals := j.Connections()[0], j.Totals(); c.Sent != 3 || c.Received != 5 || c.DurationMs != nil || totals.Open != 1 || totals.Sent != 3 || totals.Allowed != 1 {
		t.Fatalf("%+v %+v", c, totals)
	}
	entry.Close("cut")
	entry.Close("again")
	if c, totals := j.Connections()[0], j.Totals(); c.DurationMs == nil || c.Detail != "cut" || c.Verdict != "allowed" || totals.Open != 0 {
		t.Fatalf("%+v %+v", c, totals)
	}
}

func TestWithoutRoomForMoreTheOldestMakesRoom(t *testing.T) {
	room := 3
	j := New(func() bool { room--; return room >= 0 })
	names := func() (names string) {
		for _, connection := range j.Connections() {
			names += connection.Name
		}
		return names
	}
	for i, want := range []string{"0", "10", "210", "321", "432"} {
		j.Refuse(subject(fmt.Sprint(i), 1), policy.Denied, "")
		if got := names(); got != want {
			t.Fatalf("after %d: %s in place of %s", i, got, want)
		}
	}
	room = 2 // once the oldest is the first again, there may be more
	for i, want := range []string{"543", "6543", "76543", "87654"} {
		j.Refuse(subject(fmt.Sprint(i+5), 1), policy.Denied, "")
		if got := names(); got != want {
			t.Fatalf("later, after %d: %s in place of %s", i+5, got, want)
		}
	}
	j = New(func() bool { return false })
	j.Refuse(subject("a", 1), policy.Denied, "")
	if got := j.Connections(); len(got) != 0 || j.Totals().Refused != 1 {
		t.Fatalf("%+v", got)
	}
}
