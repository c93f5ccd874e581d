module github.com/fencelock/fencelock/adapters/etcd

go 1.26

require (
	github.com/fencelock/fencelock/core v0.0.0
	github.com/fencelock/fencelock/contracts/parity v0.0.0
	github.com/fencelock/fencelock/tools/testenv v0.0.0
)

replace (
	github.com/fencelock/fencelock/core => ../../core
	github.com/fencelock/fencelock/contracts/parity => ../../contracts/parity
	github.com/fencelock/fencelock/tools/testenv => ../../tools/testenv
)
