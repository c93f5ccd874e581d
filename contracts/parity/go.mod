module github.com/fencelock/fencelock/contracts/parity

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/fencelock/fencelock/core v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/fencelock/fencelock/core => ../../core
