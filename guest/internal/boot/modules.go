package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// loadModules loads every module of the directory in the order of the names, and removes the files, which lie in memory.
func loadModules(directory string) error {
	names, err := filepath.Glob(directory + "/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := loadModule(name); err != nil {
			return fmt.Errorf("load %s: %w", filepath.Base(name), err)
		}
		os.Remove(name)
	}
	return nil
}

func loadModule(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
