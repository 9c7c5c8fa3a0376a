//go:build tools

// Package tools names the programs of other modules that run.sh builds, so that go.mod keeps their modules.
package tools

import (
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
