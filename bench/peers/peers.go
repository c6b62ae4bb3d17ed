//go:build never

// Package peers pins the Go programs that the bench runs beside ours; install.py builds them.
package peers

import (
	_ "github.com/fatedier/frp/cmd/frpc"
	_ "github.com/fatedier/frp/cmd/frps"
	_ "github.com/jpillora/chisel"
)
