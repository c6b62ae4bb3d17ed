//go:build never

// Package peers pins the versions of the Go peers. install.py builds them.
package peers

import (
	_ "github.com/fatedier/frp/cmd/frpc"
	_ "github.com/fatedier/frp/cmd/frps"
	_ "github.com/jpillora/chisel"
)
