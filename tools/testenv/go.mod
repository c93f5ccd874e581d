module github.com/fencelock/fencelock/tools/testenv

go 1.26
