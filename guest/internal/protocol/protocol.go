// Package protocol holds the JSON bodies between host and guest, as packages/host-protocol/src/guest.ts defines them. The golden vectors
// in packages/host-protocol/golden hold both sides to the same bytes.
package protocol

const (
	PortName        = "fuse.guest.0"
	VsockPort       = 1024
	Greeting        = "FUSE/1 ready\n"
	Version         = 1
	ExecWindowBytes = 1 << 20

	RestoredHooksDirectory = "/etc/fuse/restored.d"
	GenerationFile         = "/run/fuse/generation"
)

type Health struct {
	Protocol     int    `json:"protocol"`
	AgentVersion string `json:"agent_version"`
	Kernel       string `json:"kernel"`
	BootID       string `json:"boot_id"`
	UptimeMs     int64  `json:"uptime_ms"`
	Generation   int64  `json:"generation"`
	Execs        int    `json:"execs"`
}

type Identity struct {
	TimeUnixNs    string `json:"time_unix_ns"`
	EntropyBase64 string `json:"entropy_base64"`
	Hostname      string `json:"hostname"`
	MachineID     string `json:"machine_id"`
	Generation    int64  `json:"generation"`
	// HooksDeadlineMs is for all hooks together; 0: none are run.
	HooksDeadlineMs int64  `json:"hooks_deadline_ms,omitempty"`
	Reason          string `json:"reason,omitempty"`
	// Network is nil for a machine without a network.
	Network *Network `json:"network,omitempty"`
}

// Network is what the card and the resolver of the machine are to be.
type Network struct {
	MAC        string `json:"mac"`
	Address    string `json:"address"`
	PrefixBits int    `json:"prefix_bits"`
	Gateway    string `json:"gateway"`
	Resolver   string `json:"resolver"`
	MTU        int    `json:"mtu"`
}

// UsualNetwork is what a host gives every machine with a card, but for the hardware address.
var UsualNetwork = Network{Address: "192.0.0.2", PrefixBits: 29, Gateway: "192.0.0.1", Resolver: "192.0.0.1", MTU: 1_500}

type IdentityConfirmed struct {
	Generation int64        `json:"generation"`
	TimeUnixNs string       `json:"time_unix_ns"`
	Hostname   string       `json:"hostname"`
	Hooks      []HookResult `json:"hooks,omitempty"`
}

type HookResult struct {
	Name     string `json:"name"`
	ExitCode int    `json:"exit_code"`
	TimedOut bool   `json:"timed_out"`
	Output   string `json:"output"`
}

type Freeze struct {
	DeadlineMs int64 `json:"deadline_ms"`
}

type ExecSpec struct {
	Argv       []string          `json:"argv"`
	Env        map[string]string `json:"env,omitempty"`
	Cwd        string            `json:"cwd,omitempty"`
	User       string            `json:"user,omitempty"`
	TimeoutMs  int64             `json:"timeout_ms,omitempty"`
	Stdin      bool              `json:"stdin"`
	KillOnExit bool              `json:"kill_on_exit,omitempty"`
	TTY        *TerminalSize     `json:"tty,omitempty"`
	Login      bool              `json:"login,omitempty"`
}

type TerminalSize struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

type ExecExit struct {
	ExitCode    int    `json:"exit_code"`
	Signal      string `json:"signal,omitempty"`
	TimedOut    bool   `json:"timed_out"`
	OOMKilled   bool   `json:"oom_killed"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	DurationMs  int64  `json:"duration_ms"`
}

type ExecStatus struct {
	ID          string    `json:"id"`
	Pid         int       `json:"pid"`
	Running     bool      `json:"running"`
	StdinBytes  int64     `json:"stdin_bytes"`
	StdinClosed bool      `json:"stdin_closed"`
	OffsetEnd   int64     `json:"offset_end"`
	OffsetAcked int64     `json:"offset_acked"`
	Exit        *ExecExit `json:"exit,omitempty"`
}

type ExecList struct {
	Execs []ExecStatus `json:"execs"`
}

type ExecStdin struct {
	StdinBytes int64 `json:"stdin_bytes"`
	Closed     bool  `json:"closed"`
}

type Signal struct {
	Signal string `json:"signal"`
	Tree   bool   `json:"tree,omitempty"`
}

type Process struct {
	Pid         int      `json:"pid"`
	Ppid        int      `json:"ppid"`
	Command     []string `json:"command"`
	User        string   `json:"user"`
	State       string   `json:"state"`
	StartedAt   string   `json:"started_at"`
	CPUSeconds  float64  `json:"cpu_seconds"`
	MemoryBytes int64    `json:"memory_bytes"`
	ExecID      string   `json:"exec_id,omitempty"`
}

type ProcessList struct {
	Processes []Process `json:"processes"`
	Truncated bool      `json:"truncated"`
}

// Healthcheck has exactly one of HTTP and Exec; a number that is 0 or absent is the default.
type Healthcheck struct {
	HTTP               *HealthcheckHTTP `json:"http,omitempty"`
	Exec               []string         `json:"exec,omitempty"`
	IntervalSeconds    int64            `json:"interval_seconds,omitempty"`
	TimeoutSeconds     int64            `json:"timeout_seconds,omitempty"`
	Retries            int              `json:"retries,omitempty"`
	StartPeriodSeconds int64            `json:"start_period_seconds,omitempty"`
}

type HealthcheckHTTP struct {
	Port int    `json:"port"`
	Path string `json:"path,omitempty"`
}

type HealthcheckState struct {
	State      string `json:"state"`
	SinceMsAgo int64  `json:"since_ms_ago"`
	Failures   int    `json:"failures,omitempty"`
	Message    string `json:"message,omitempty"`
}

type FileWritten struct {
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256,omitempty"` // absent when it was not to be made
}

type GlobRequest struct {
	Cwd      string   `json:"cwd"`
	Patterns []string `json:"patterns"`
	MaxFiles int      `json:"max_files"`
}

type GlobFile struct {
	Path         string `json:"path"`
	AbsolutePath string `json:"absolute_path"`
	SizeBytes    int64  `json:"size_bytes"`
	Mode         uint32 `json:"mode"`
}

type GlobSkipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

type GlobResult struct {
	Files   []GlobFile    `json:"files"`
	Skipped []GlobSkipped `json:"skipped"`
}

type ErrorBody struct {
	Error ErrorFields `json:"error"`
}

type ErrorFields struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}
