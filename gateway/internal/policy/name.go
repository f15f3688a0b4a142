package policy

import "strings"

const (
	maxNameBytes  = 253
	maxLabelBytes = 63
)

// Name gives a host name as rules have it: lower case, no final dot. Not ok for what is no name: an address, an empty label, bytes other than
// letters, digits, `-` and `_`.
func Name(text string) (name string, ok bool) {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > maxNameBytes {
		return "", false
	}
	label, digitsOnly := 0, true
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label, digitsOnly = 0, true
			continue
		case c >= '0' && c <= '9':
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '_':
			digitsOnly = false
		default:
			return "", false
		}
		if label++; label > maxLabelBytes {
			return "", false
		}
	}
	// A last label of digits alone is an IPv4 address in one of its spellings, and never a name (RFC 1123).
	if label == 0 || digitsOnly || hexNumber(text[strings.LastIndexByte(text, '.')+1:]) {
		return "", false
	}
	return strings.ToLower(text), true
}

func hexNumber(label string) bool {
	if len(label) < 2 || label[0] != '0' || (label[1] != 'x' && label[1] != 'X') {
		return false
	}
	return strings.Trim(label[2:], "0123456789abcdefABCDEF") == ""
}

func (r Rule) matchesName(name string) bool {
	if r.Host == "" {
		return false
	}
	if suffix, wildcard := strings.CutPrefix(r.Host, "*"); wildcard {
		return len(name) > len(suffix) && strings.HasSuffix(name, suffix)
	}
	return r.Host == name
}

func (r Rule) matchesPort(port uint16) bool {
	for _, ports := range r.Ports {
		if port >= ports.From && port <= ports.To {
			return true
		}
	}
	return false
}
