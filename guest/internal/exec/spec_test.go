package exec

import (
	"strings"
	"testing"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/protocol"
)

func FuzzParseSpec(f *testing.F) {
	for _, seed := range []string{`{"argv":["true"],"stdin":false}`, `{"argv":["$SHELL"],"stdin":true,"login":true,"tty":{"rows":24,"cols":80}}`, `{"argv":[]}`,
		`{"argv":["a\u0000"]}`, `{"argv":["a"],"env":{"A=B":"x"}}`, `{"argv":["a"],"cwd":"x"}`, `{"argv":["a"],"timeout_ms":-1}`, `{"argv":["a"],"tty":{"rows":0,"cols":1}}`, `[]`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		spec, err := ParseSpec(payload)
		if err != nil {
			return
		}
		if len(spec.Argv) == 0 || spec.Argv[0] == "" || strings.Contains(strings.Join(spec.Argv, ""), "\x00") || spec.TimeoutMs < 0 {
			t.Errorf("%+v", spec)
		}
		if tty := spec.TTY; tty != nil && (tty.Rows < 1 || tty.Rows > 65_535 || tty.Cols < 1 || tty.Cols > 65_535) {
			t.Errorf("%+v", tty)
		}
		env, _ := environment(spec, accounts.Account{Name: "root", Home: "/root", Shell: "/bin/sh"})
		for _, each := range env {
			if strings.IndexByte(each, '=') < 1 || strings.ContainsRune(each, 0) {
				t.Errorf("%q", each)
			}
		}
	})
}

func FuzzParseSignal(f *testing.F) {
	for _, seed := range []string{"SIGTERM", "term", "9", "0", "65", "-1", "SIG", "", "SIGSIGTERM"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if signal, err := ParseSignal(text); err == nil && (signal < 1 || signal > 64) {
			t.Errorf("%q: %d", text, signal)
		}
	})
}

func TestAnAccountsShellIsAsked(t *testing.T) {
	users := accounts.NewDirectory(accounts.System)
	account, err := users.Lookup("root")
	if err != nil {
		t.Fatal(err)
	}
	got, err := resolve(protocol.ExecSpec{Argv: []string{"$SHELL", "-c", "x"}, Cwd: "/", Login: true}, users)
	if err != nil || got.program != account.Shell || got.argv[0] != "-"+account.Shell[strings.LastIndexByte(account.Shell, '/')+1:] || got.argv[2] != "x" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := resolve(protocol.ExecSpec{Argv: []string{"/bin/cat"}, Cwd: "/", Login: true}, users); err != nil || got.argv[0] != "-cat" || got.program != "/bin/cat" {
		t.Errorf("%+v, %v", got, err)
	}
}
