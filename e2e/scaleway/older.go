//go:build !newer

package main

// What both SDKs have is all that the older one has.
var newerChecks []struct {
	name string
	run  func(*world)
}
