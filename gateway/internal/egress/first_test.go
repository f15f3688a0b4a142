package egress

import (
	"io"
	"testing"
	"time"
)

// The server's first word and the wait for the guest's come in any order.
func TestAServerThatSpeaksAtOnceIsHeard(t *testing.T) {
	for range 300 {
		guest, outside := pair(t)
		upstream, server := pair(t)
		c := opened("good.test", outside)
		c.target.port = 22
		if _, err := io.WriteString(server, "hello"); err != nil {
			t.Fatal(err)
		}
		done := make(chan bool)
		go func() {
			spoke := c.awaitServer(upstream)
			_, _ = c.peek(time.Hour, true)
			done <- spoke()
		}()
		select {
		case spoke := <-done:
			if !spoke {
				t.Fatal("not heard")
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the guest is waited for")
		}
		for _, connection := range []io.Closer{guest, outside, upstream, server} {
			_ = connection.Close()
		}
	}
}
