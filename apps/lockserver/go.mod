module github.com/fencelock/fencelock/apps/lockserver

go 1.26

require (
	github.com/fencelock/fencelock/core v0.0.0
	github.com/fencelock/fencelock/contracts/api v0.0.0
	github.com/fencelock/fencelock/adapters/etcd v0.0.0
	github.com/fencelock/fencelock/adapters/rpc v0.0.0
)

replace (
	github.com/fencelock/fencelock/core => ../../core
	github.com/fencelock/fencelock/contracts/api => ../../contracts/api
	github.com/fencelock/fencelock/adapters/etcd => ../../adapters/etcd
	github.com/fencelock/fencelock/adapters/rpc => ../../adapters/rpc
)
