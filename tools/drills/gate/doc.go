// Package gate is a network between executors and the services they write to, which can keep one call back: its
// request before the service sees it, or its answer before the caller does. A packet that is on its way arrives
// whatever became of its sender, so a request that is let go is delivered though its caller has been killed.
package gate
