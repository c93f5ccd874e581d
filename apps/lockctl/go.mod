module github.com/fencelock/fencelock/apps/lockctl

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/fencelock/fencelock/adapters/client v0.0.0
	github.com/fencelock/fencelock/contracts/api v0.0.0
	github.com/fencelock/fencelock/core v0.0.0
	github.com/spf13/cobra v1.10.2
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
)

replace (
	github.com/fencelock/fencelock/adapters/client => ../../adapters/client
	github.com/fencelock/fencelock/adapters/rpc => ../../adapters/rpc
	github.com/fencelock/fencelock/contracts/api => ../../contracts/api
	github.com/fencelock/fencelock/contracts/parity => ../../contracts/parity
	github.com/fencelock/fencelock/core => ../../core
)
