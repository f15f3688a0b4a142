package exec

import (
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	defaultCwd   = "/workspace"
	defaultPath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	maxCwdBytes  = 4096
	terminalKind = "xterm-256color"
	// As argv[0]: the account's own shell.
	accountShell    = "$SHELL"
	maxTerminalSide = 65_535
)

// ParseSpec parses the payload of a spec frame.
func ParseSpec(payload []byte) (protocol.ExecSpec, error) {
	var spec protocol.ExecSpec
	if err := json.Unmarshal(payload, &spec); err != nil {
		return spec, fault.New(fault.InvalidArgument, "the exec spec is not valid JSON: %v", err)
	}
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return spec, fault.New(fault.InvalidArgument, "argv must name a program").With("field", "argv")
	}
	for _, arg := range spec.Argv {
		if strings.ContainsRune(arg, 0) {
			return spec, fault.New(fault.InvalidArgument, "argv must not hold NUL").With("field", "argv")
		}
	}
	for name, value := range spec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return spec, fault.New(fault.InvalidArgument, "env holds a name or value that no process can have").With("field", "env")
		}
	}
	if spec.Cwd != "" && (!path.IsAbs(spec.Cwd) || len(spec.Cwd) > maxCwdBytes || strings.ContainsRune(spec.Cwd, 0)) {
		return spec, fault.New(fault.InvalidArgument, "cwd must be an absolute path").With("field", "cwd")
	}
	if spec.TimeoutMs < 0 {
		return spec, fault.New(fault.InvalidArgument, "timeout_ms must not be negative").With("field", "timeout_ms")
	}
	if spec.TTY != nil {
		return spec, checkSize(*spec.TTY)
	}
	return spec, nil
}

func checkSize(size protocol.TerminalSize) error {
	for field, side := range map[string]int{"rows": size.Rows, "cols": size.Cols} {
		if side < 1 || side > maxTerminalSide {
			return fault.New(fault.InvalidArgument, "%s must be 1 to %d", field, maxTerminalSide).With("field", field)
		}
	}
	return nil
}

// command is a spec resolved against the guest as it is now.
type command struct {
	name    string // as it was asked for
	program string
	argv    []string
	env     []string
	cwd     string
	account accounts.Account
	stdin   bool
	tty     *protocol.TerminalSize // nil: pipes
}

func resolve(spec protocol.ExecSpec, users *accounts.Directory) (command, error) {
	account, err := users.Lookup(spec.User)
	if err != nil {
		return command{}, execFailed(spec.Argv[0], "%v", err)
	}
	cwd, err := workingDirectory(spec)
	if err != nil {
		return command{}, err
	}
	env, searchPath := environment(spec, account)
	argv := slices.Clone(spec.Argv)
	if argv[0] == accountShell {
		argv[0] = account.Shell
	}
	name := argv[0]
	program, err := findProgram(name, searchPath, cwd)
	if err != nil {
		return command{}, err
	}
	if spec.Login {
		argv[0] = "-" + path.Base(name)
	}
	return command{name: name, program: program, argv: argv, env: env, cwd: cwd, account: account, stdin: spec.Stdin, tty: spec.TTY}, nil
}

func workingDirectory(spec protocol.ExecSpec) (string, error) {
	if spec.Cwd == "" {
		if err := os.MkdirAll(defaultCwd, 0o755); err != nil {
			return "", execFailed(spec.Argv[0], "working directory %s: %v", defaultCwd, reason(err))
		}
		return defaultCwd, nil
	}
	info, err := os.Stat(spec.Cwd)
	if err != nil {
		return "", execFailed(spec.Argv[0], "working directory %s: %v", spec.Cwd, reason(err))
	}
	if !info.IsDir() {
		return "", execFailed(spec.Argv[0], "working directory %s: not a directory", spec.Cwd)
	}
	return spec.Cwd, nil
}

// environment returns the base variables of the account with the spec's over them, and the PATH among them.
func environment(spec protocol.ExecSpec, account accounts.Account) (env []string, searchPath string) {
	all := map[string]string{
		"PATH": defaultPath,
		"HOME": account.Home,
		"USER": account.Name, "LOGNAME": account.Name,
		"LANG": "C.UTF-8",
	}
	if spec.TTY != nil {
		all["TERM"], all["SHELL"] = terminalKind, account.Shell
	}
	for name, value := range spec.Env {
		all[name] = value
	}
	env = make([]string, 0, len(all))
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, all["PATH"]
}

// findProgram does what execvp does: a name with a slash is a path from cwd, any other is looked for along PATH.
func findProgram(name, searchPath, cwd string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	denied := false
	for _, dir := range strings.Split(searchPath, ":") {
		if !path.IsAbs(dir) {
			dir = path.Join(cwd, dir)
		}
		candidate := path.Join(dir, name)
		info, err := os.Stat(candidate)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return candidate, nil
		}
		denied = true
	}
	if denied {
		return "", execFailed(name, "permission denied: the file found on PATH is not executable")
	}
	return "", execFailed(name, "no such program on PATH")
}
