// Package netns does things in another network namespace.
package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Enter puts the calling thread into the namespace of a path; the caller has locked it.
func Enter(path string) error {
	namespace, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace %s: %w", path, err)
	}
	defer unix.Close(namespace)
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", path, err)
	}
	return nil
}

// in runs `do` in the namespace of a path. Its thread comes back; one that cannot ends with its goroutine.
func in(path string, do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer own.Close()
		if err = Enter(path); err == nil {
			err = do()
		}
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}
