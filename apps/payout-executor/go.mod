module github.com/fencelock/fencelock/apps/payout-executor

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/fencelock/fencelock/adapters/client v0.0.0
	github.com/fencelock/fencelock/adapters/rpc v0.0.0
	github.com/fencelock/fencelock/contracts/api v0.0.0
	github.com/fencelock/fencelock/contracts/parity v0.0.0
	github.com/fencelock/fencelock/core v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
)

require (
	connectrpc.com/grpchealth v1.5.0 // indirect
	connectrpc.com/grpcreflect v1.3.1 // indirect
)

replace (
	github.com/fencelock/fencelock/adapters/client => ../../adapters/client
	github.com/fencelock/fencelock/adapters/rpc => ../../adapters/rpc
	github.com/fencelock/fencelock/apps/program => ../program
	github.com/fencelock/fencelock/contracts/api => ../../contracts/api
	github.com/fencelock/fencelock/contracts/parity => ../../contracts/parity
	github.com/fencelock/fencelock/core => ../../core
)
