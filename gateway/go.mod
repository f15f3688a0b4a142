module fuse/gateway

go 1.24.0

require (
	golang.org/x/net v0.44.0
	golang.org/x/sys v0.36.0
)

require golang.org/x/time v0.13.0
