module github.com/fencelock/fencelock/core

go 1.26.0
