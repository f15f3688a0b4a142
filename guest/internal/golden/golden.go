// Package golden reads the vectors that hold both sides of the guest protocol to the same bytes. Tests alone use it.
package golden

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

const directory = "../../../packages/host-protocol/golden/"

// Read parses a file of vectors.
func Read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(directory + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Hex decodes.
func Hex(t *testing.T, text string) []byte {
	t.Helper()
	bytes, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
