// Command fused is the guest agent: PID 1 of a Fuse VM. It makes the machine from what the kernel gives, then answers the host.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/boot"
	"fuse/guest/internal/cgroup"
	"fuse/guest/internal/channel"
	"fuse/guest/internal/disk"
	"fuse/guest/internal/exec"
	"fuse/guest/internal/health"
	"fuse/guest/internal/hooks"
	"fuse/guest/internal/identity"
	"fuse/guest/internal/processes"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/reaper"
	"fuse/guest/internal/server"
	"fuse/guest/internal/tree"
	"fuse/guest/internal/tunnel"
)

// version is set by the linker: -X main.version=…
var version = "dev"

const (
	channelWait      = 15 * time.Second
	agentMemoryBytes = 64 << 20
	// Output that the host has not acknowledged, of all execs: a part of the machine's memory within these bounds.
	outputShare    = 16
	outputMinBytes = 8 << 20
	outputMaxBytes = 256 << 20
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "fused is PID 1 of a Fuse guest; it does nothing elsewhere")
		os.Exit(2)
	}
	boot.IgnoreSignals()
	debug.SetMemoryLimit(agentMemoryBytes)
	err := boot.Early()
	boot.CalmScheduler()
	logger := log.New(kernelLog(), "fused: ", 0)
	if err == nil {
		err = run(logger)
	}
	// PID 1 must not return. A machine that the host cannot reach is of no use: it goes off, and the host sees that. A restart is what ends
	// every VMM; Firecracker knows no power-off.
	logger.Printf("giving up: %v", err)
	unix.Sync()
	for {
		unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
		time.Sleep(time.Second)
	}
}

func kernelLog() *os.File {
	file, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return os.Stderr
	}
	return file
}

func run(logger *log.Logger) error {
	machine, err := boot.Run()
	if err != nil {
		return err
	}
	users := accounts.NewDirectory(accounts.System)
	registry, err := newRegistry(machine, users)
	if err != nil {
		return err
	}
	names := channel.Names{Greeting: protocol.Greeting, VirtioPort: protocol.PortName, VsockPort: protocol.VsockPort}
	listener, err := channel.Find(names, machine.Devices, channelWait, func(err error) { logger.Printf("guest channel: %v", err) })
	if err != nil {
		return err
	}
	protocol.Rehearse()
	identified := identity.New(machine.Random)
	if err := identified.ExpectNetwork(); err != nil {
		logger.Print(err)
	}
	agent := &server.Agent{
		Execs:       registry,
		Machine:     identified,
		Hooks:       hooks.New(protocol.RestoredHooksDirectory, registry),
		Disk:        disk.New(machine.Disk),
		Processes:   processes.NewTable(machine.Processes, users, registry.Groups),
		Tunnels:     &tunnel.Tunnels{},
		Healthcheck: health.New(registry),
		Files:       &tree.Tree{Users: users},
		Version:     version,
	}
	if err := server.New(agent, logger).Serve(listener); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return errors.New("the server ended")
}

func newRegistry(machine *boot.Machine, users *accounts.Directory) (*exec.Registry, error) {
	memory, err := boot.ReadMemory()
	if err != nil {
		return nil, err
	}
	limits, err := boot.ExecLimits(memory)
	if err != nil {
		return nil, err
	}
	tree, err := cgroup.NewTree(machine.Cgroups, limits)
	if err != nil {
		return nil, err
	}
	if err := boot.RaiseOpenFiles(); err != nil {
		return nil, err
	}
	return exec.NewRegistry(exec.Options{
		Forker:            &exec.Forker{Reaper: reaper.Start(), OOMScore: machine.OOMScore, Terminals: machine.Terminals},
		NewGroup:          func() (exec.Group, error) { return tree.New() },
		Users:             users,
		OutputBudgetBytes: min(max(memory.Total/outputShare, outputMinBytes), outputMaxBytes),
	}), nil
}
