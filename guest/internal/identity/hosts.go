package identity

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxHostsBytes = 1 << 20
	ownAddress    = "127.0.1.1"
	standardHosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
)

// renameInHosts puts the machine's new name in the place of its previous one and leaves the rest of the guest's file as it is. A file that is
// larger than any such file should be is left alone.
func renameInHosts(name, previous, hostname string) error {
	text, err := readRegular(name, maxHostsBytes+1)
	if err != nil {
		text = standardHosts
	}
	if len(text) > maxHostsBytes {
		return nil
	}
	renamed := withHostname(text, previous, hostname)
	if err == nil && renamed == text {
		return nil
	}
	return WriteFile(name, renamed)
}

// withHostname renames the machine on the lines of its own addresses, and adds a line when none of them names it.
func withHostname(text, previous, hostname string) string {
	var renamed strings.Builder
	named := false
	for line := range strings.Lines(text) {
		entry, comment, commented := strings.Cut(strings.TrimSuffix(line, "\n"), "#")
		fields := strings.Fields(entry)
		changed := false
		if len(fields) > 1 && isOwn(fields[0]) {
			for i, name := range fields[1:] {
				if name == previous && name != hostname && name != "localhost" {
					fields[i+1], changed = hostname, true
				}
				named = named || fields[i+1] == hostname
			}
		}
		if !changed {
			renamed.WriteString(line)
			continue
		}
		renamed.WriteString(fields[0] + "\t" + strings.Join(fields[1:], " "))
		if commented {
			renamed.WriteString(" #" + comment)
		}
		renamed.WriteString("\n")
	}
	if !named {
		if text != "" && !strings.HasSuffix(text, "\n") {
			renamed.WriteString("\n")
		}
		renamed.WriteString(ownAddress + "\t" + hostname + "\n")
	}
	return renamed.String()
}

func isOwn(address string) bool { return address == "::1" || strings.HasPrefix(address, "127.") }

// nameIn is the host name that a file holds, "" when it holds none.
func nameIn(file string) string {
	text, err := readRegular(file, maxHostnameBytes+2)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(text)
}

// readRegular reads at most so many bytes of a regular file of the guest's, never through a link.
func readRegular(name string, most int64) (string, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errNotRegular
	}
	var text strings.Builder
	_, err = io.Copy(&text, io.LimitReader(file, most))
	return text.String(), err
}
