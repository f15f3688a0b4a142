// Command fuse-gateway is the way out of a host's VMs: it answers their DNS, accepts their connections, and passes on what their policies allow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/gateway/internal/control"
	"fuse/gateway/internal/egress"
	"fuse/gateway/internal/privileges"
)

// version is set by the linker: -X main.version=…
var version = "dev"

const (
	wantedOpenFiles = 1 << 20
	// Of a connection, while its addresses are tried.
	descriptorsEach = 9
	// Beside what VMs have it hold.
	minMemoryMiB = 64
)

func main() {
	directory := flag.String("directory", "", "where control.sock and listeners.sock are made")
	uid := flag.Int("uid", 0, "user to become once they are made; 0: stay")
	gid := flag.Int("gid", 0, "group to become")
	memoryMiB := flag.Int64("memory-mib", 1024, "what it may take; what VMs may have it hold follows from that")
	cgroup := flag.String("cgroup", "", "directory of the control group to enter first")
	flag.Parse()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if *directory == "" || flag.NArg() > 0 || *uid < 0 || *gid < 0 || (*uid == 0) != (*gid == 0) || *memoryMiB < minMemoryMiB {
		fmt.Fprintln(os.Stderr, "usage: fuse-gateway --directory DIR [--uid N --gid N] [--memory-mib N] [--cgroup DIR]")
		os.Exit(2)
	}
	debug.SetMemoryLimit(*memoryMiB << 20)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, logger, options{*directory, *cgroup, *uid, *gid, *memoryMiB << 20}); err != nil {
		logger.Error("fuse-gateway ends", "error", err.Error())
		os.Exit(1)
	}
}

type options struct {
	directory, cgroup string
	uid, gid          int
	memoryBytes       int64
}

func run(ctx context.Context, logger *slog.Logger, o options) error {
	directory, uid, gid := o.directory, o.uid, o.gid
	if o.cgroup != "" {
		if err := os.WriteFile(filepath.Join(o.cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	// Two on one directory would take each other's sockets.
	lock, err := os.OpenFile(filepath.Join(directory, "gateway.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("another gateway runs in this directory")
	}
	controlSocket, err := listen(filepath.Join(directory, "control.sock"))
	if err != nil {
		return err
	}
	defer controlSocket.Close()
	listenersSocket, err := listen(filepath.Join(directory, "listeners.sock"))
	if err != nil {
		return err
	}
	defer listenersSocket.Close()
	openFiles, err := privileges.RaiseOpenFiles(wantedOpenFiles)
	if err != nil {
		return err
	}
	gateway, err := egress.New(logger, o.memoryBytes, int(openFiles/descriptorsEach))
	if err != nil {
		return err
	}
	defer gateway.Close()
	server := control.New(gateway, logger, version)
	if uid != 0 {
		err = privileges.Drop(uid, gid)
	} else {
		err = privileges.NoNewPrivileges()
	}
	if err != nil {
		return err
	}
	logger.Info("fuse-gateway is there", "version", version, "pid", os.Getpid(), "open_files", openFiles, "uid", os.Getuid())
	if err := privileges.Filter(); err != nil { // after the first line of the log, which looks for the time zone's file
		return err
	}
	ends := make(chan error, 2)
	go func() { ends <- server.ServeListeners(listenersSocket) }()
	go func() { ends <- server.ServeControl(ctx, controlSocket) }()
	select {
	case err := <-ends:
		return err
	case <-ctx.Done():
		logger.Info("fuse-gateway ends", "reason", "signal")
		return nil
	}
}

// listen replaces what a gateway that is gone has left.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	previous := unix.Umask(0o177)
	defer unix.Umask(previous)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
