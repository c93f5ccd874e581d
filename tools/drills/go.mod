module github.com/fencelock/fencelock/tools/drills

go 1.26.0

require (
	github.com/fencelock/fencelock/core v0.0.0
	github.com/fencelock/fencelock/contracts/api v0.0.0
	github.com/fencelock/fencelock/adapters/client v0.0.0
	github.com/fencelock/fencelock/tools/testenv v0.0.0
)

replace (
	github.com/fencelock/fencelock/core => ../../core
	github.com/fencelock/fencelock/contracts/api => ../../contracts/api
	github.com/fencelock/fencelock/adapters/client => ../../adapters/client
	github.com/fencelock/fencelock/tools/testenv => ../testenv
)
