package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"testing"
)

// echConfigList is that of a server which takes Encrypted ClientHello (draft-ietf-tls-esni-22, HPKE X25519, SHA-256, AES-128-GCM).
func echConfigList(t *testing.T, publicName string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := key.PublicKey().Bytes()
	body := []byte{7, 0, 0x20}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(public))), public...)
	body = append(body, 0, 4, 0, 1, 0, 1, 64, byte(len(publicName)))
	body = append(append(body, publicName...), 0, 0)
	config := append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body))), body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
