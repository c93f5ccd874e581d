module github.com/fencelock/fencelock/tools/boundaries

go 1.26.0
