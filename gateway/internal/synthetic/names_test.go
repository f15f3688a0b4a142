package synthetic

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func TestEachNameHasItsOwnAddress(t *testing.T) {
	names := New(func() bool { return true })
	given := map[netip.Addr]string{}
	for i := range MaxNames {
		name := fmt.Sprintf("%d.example", i)
		address, err := names.Address(name)
		if err != nil || !Range.Contains(address) || given[address] != "" {
			t.Fatalf("%s: %s, %v, of %q", name, address, err, given[address])
		}
		given[address] = name
	}
	for address, name := range given {
		if got, ok := names.Name(address); !ok || got != name {
			t.Fatalf("%s is %q, not %q", address, got, name)
		}
		if again, err := names.Address(name); err != nil || again != address {
			t.Fatalf("%s is %s, then %s", name, address, again)
		}
	}
	if _, err := names.Address("one.more"); !errors.Is(err, ErrTooMany) {
		t.Fatal(err)
	}
}

func TestAddressesAreThoseOfBefore(t *testing.T) {
	first, second := New(func() bool { return true }), New(func() bool { return true })
	if _, err := second.Address("another.example"); err != nil {
		t.Fatal(err)
	}
	a, _ := first.Address("a.example")
	b, _ := second.Address("a.example")
	if a != b {
		t.Fatalf("%s and %s", a, b)
	}
}

func TestAddressesThatNoNameHas(t *testing.T) {
	names := New(func() bool { return true })
	for _, text := range []string{"198.18.0.0", "198.19.255.255", "198.18.0.1", "8.8.8.8", "2600::1", "198.17.255.255", "198.20.0.0"} {
		if name, ok := names.Name(netip.MustParseAddr(text)); ok {
			t.Errorf("%s is %s", text, name)
		}
	}
}
