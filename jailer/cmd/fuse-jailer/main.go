// Command fuse-jailer starts the programs of a host agent, confined where it is told to: what Node cannot do by itself.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"fuse/jailer/internal/jail"
	"fuse/jailer/internal/listen"
	"fuse/jailer/internal/serve"
)

// Namespaces, credentials and filters belong to threads: what `enter` does happens on the one that becomes the program.
func init() {
	runtime.LockOSThread()
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	var err error
	switch command {
	case "serve":
		runtime.UnlockOSThread()
		err = serve.Run()
	case jail.EnterCommand:
		err = jail.Enter(os.Args[2:])
	case "listen":
		err = listen.Run(os.Args[2:])
	default:
		err = errors.New("usage: fuse-jailer serve | listen --namespace PATH --slot NAME --gateway PATH")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fuse-jailer: %v\n", err)
		os.Exit(1)
	}
}
